"""What gpukit.script does: replay after an out-of-memory error, pinned loading, the fp16 scaler.

Also runs on the CPU, where the out-of-memory error is simulated.
"""

from __future__ import annotations

from typing import Any

SAMPLES, ROOM = 64, 20  # samples in the batch, and how many of them fit into memory
WIDTH, COPIES = 512, 2048  # a sample takes 4 MiB for each tensor of its forward pass
MIB = 1 << 20
TOLERANCE = 1e-4  # of the parameters' change: sums in another order differ by about 1e-6


def replay(device: str) -> dict[str, Any]:
    """Two steps with limited GPU memory, and the same two steps without a limit.

    `difference`: that of the parameters after both, relative to their change.
    """
    import torch

    from gpukit.script.device import choose
    from gpukit.script.step import Step
    from gpukit.script.task import Task

    place = choose(device=device, dtype="fp32", tf32=False)
    gpu = place.device.type == "cuda"
    generator = torch.Generator().manual_seed(16)
    batches = [torch.randn(SAMPLES, WIDTH, generator=generator) for _ in range(2)]

    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.scale = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Parameter(torch.ones(COPIES, 1))
            self.limited = False

        def forward(self, x: Any) -> Any:
            if self.limited and not gpu and len(x) > ROOM:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            wide = torch.tanh(self.first(x)).unsqueeze(1) * self.scale
            return torch.relu(wide).mean(1)

    def trained(limited: bool) -> tuple[Step, Any, Any]:
        torch.manual_seed(17)
        model = place.prepare(Wide())
        before = [each.detach().clone() for each in model.parameters()]
        model.limited = limited
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        step = Step(Task(model, optimizer, None, lambda model, x: model(x).square().sum()), place)
        losses = [float(step(batch, seed)) for seed, batch in enumerate(batches)]
        change = torch.cat([(each - old).flatten() for each, old in zip(model.parameters(), before)])
        return step, losses, change.detach()

    _, losses, whole = trained(limited=False)
    if gpu:
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info(place.device)[1]
        room = torch.cuda.memory_reserved(place.device) + 3 * ROOM * 4 * MIB
        fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(place.device)
        torch.cuda.set_per_process_memory_fraction(min(1.0, room / total), place.device)
    try:
        step, again, parts = trained(limited=True)
    finally:
        if gpu:
            torch.cuda.set_per_process_memory_fraction(fraction, place.device)
    return {
        "device": device,
        "retries": step.retries,
        "microbatch": step.microbatch,
        "difference": float((parts - whole).norm() / whole.norm()),
        "losses": [losses, again],
    }


def pinned(device: str, workers: int = 2) -> dict[str, Any]:
    """Two epochs from the loader: whether the batches are pinned, and each sample is returned once per epoch."""
    import torch
    from torch.utils.data import TensorDataset

    from gpukit.script.device import choose
    from gpukit.script.loader import Loading, loader

    place = choose(device=device, dtype="fp32", tf32=False)
    numbers = torch.arange(512)
    batches = iter(loader(TensorDataset(numbers), 64, 18, loading=Loading(workers=workers), device=device))
    arrived, all_pinned = [], True
    for _ in range(16):
        batch = next(batches)
        all_pinned &= batch[0].is_pinned()
        arrived.append(place.move(batch)[0])
    del batches
    epochs = torch.cat([each.cpu() for each in arrived]).reshape(2, -1).sort().values
    return {"device": device, "pinned": all_pinned, "equal": bool((epochs == numbers).all()), "workers": workers}


def scaler(device: str) -> dict[str, Any]:
    """Twenty steps in fp16, then one whose gradients overflow, then one with the scaler of a resumed run."""
    import torch

    from gpukit.script.device import choose
    from gpukit.script.step import Step
    from gpukit.script.task import Task

    place = choose(device=device, dtype="fp16", tf32=False)
    torch.manual_seed(19)
    model = place.prepare(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    def loss(model: Any, batch: Any) -> Any:
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(model(inputs), wanted, reduction="sum")

    task = Task(model, optimizer, None, loss, scheduler=scheduler)
    step = Step(task, place, clip=1.0)
    inputs = torch.randn(256, 32)
    batch = (inputs, inputs[:, :1] - inputs[:, 1:2])
    losses = [float(step(batch, seed)) for seed in range(20)]
    steps, scale = scheduler.last_epoch, step.scaler.get_scale()
    before = [each.detach().clone() for each in model.parameters()]
    step((inputs * 3e4, batch[1]), 20)
    kept = all(bool(torch.equal(each, old)) for each, old in zip(model.parameters(), before))
    resumed = Step(task, place, clip=1.0)
    resumed.load_state_dict(step.state_dict())
    last = float(resumed(batch, 21))
    return {
        "device": device,
        "first": losses[0],
        "last": last,
        "kept": kept and scheduler.last_epoch == steps + 1,
        "scales": [scale, step.scaler.get_scale(), resumed.scaler.get_scale()],
    }
