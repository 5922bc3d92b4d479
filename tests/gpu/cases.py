"""What gpukit and exactrun do in a loop: a step that is repeated after an out-of-memory error, and pinned loading.

Also runs on the CPU, where the out-of-memory error is simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SAMPLES = 64  # in the batch
ROOM = 20  # how many of them fit into memory
# a sample takes 4 MiB for each tensor of its forward pass
WIDTH = 512
COPIES = 2048
MIB = 1 << 20
TOLERANCE = 1e-4  # of the parameters' change: sums in another order differ by about 1e-6


def replay(device: str) -> dict[str, Any]:
    """Two steps with limited GPU memory, and the same two steps without a limit.

    `difference`: that of the parameters after both, relative to their change.
    """
    import torch

    from exactrun.fits import Fits

    gpu = torch.device(device).type == "cuda"
    generator = torch.Generator().manual_seed(16)
    batches = [torch.randn(SAMPLES, WIDTH, generator=generator) for _ in range(2)]

    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(WIDTH, WIDTH)
            self.scale = torch.nn.Parameter(torch.ones(COPIES, 1))
            self.limited = False

        def forward(self, x: Any) -> Any:
            if self.limited and not gpu and len(x) > ROOM:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            wide = torch.tanh(self.first(x)).unsqueeze(1) * self.scale
            return torch.relu(wide).mean(1)

    def trained(limited: bool) -> tuple[Fits, list[float], Any]:
        torch.manual_seed(17)
        model = Wide().to(device)
        before = [each.detach().clone() for each in model.parameters()]
        model.limited = limited
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        fits = Fits(model)
        losses = []
        for batch in batches:
            optimizer.zero_grad()
            for attempt in fits(batch):
                with attempt:
                    total = 0.0
                    for share, (part,) in attempt:
                        loss = share * model(part.to(device)).square().sum(1).mean()
                        loss.backward()
                        total += loss.item()
            optimizer.step()
            losses.append(total)
        change = torch.cat([(each - old).flatten() for each, old in zip(model.parameters(), before)])
        return fits, losses, change.detach()

    _, losses, whole = trained(limited=False)
    if gpu:
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info(device)[1]
        room = torch.cuda.memory_reserved(device) + 3 * ROOM * 4 * MIB
        fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)
        torch.cuda.set_per_process_memory_fraction(min(1.0, room / total), device)
    try:
        fits, again, parts = trained(limited=True)
    finally:
        if gpu:
            torch.cuda.set_per_process_memory_fraction(fraction, device)
    return {
        "device": device,
        "microbatch": fits.most,
        "difference": float((parts - whole).norm() / whole.norm()),
        "losses": [losses, again],
    }


def pinned(device: str, folder: Path, workers: int = 2) -> dict[str, Any]:
    """Two epochs of a run's loader: whether the batches are pinned, and each sample is returned once per epoch."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from exactrun.run import Run

    numbers = torch.arange(512)
    arrived = []
    all_pinned = True
    batches = DataLoader(TensorDataset(numbers), 64, shuffle=True, num_workers=workers, pin_memory=True)
    with Run(folder) as run:
        for _ in run.epochs(range(2)):
            for _, batch in run.enumerate(batches):
                all_pinned &= batch[0].is_pinned()
                arrived.append(batch[0].to(device, non_blocking=True))
                run.step()
    epochs = torch.cat([each.cpu() for each in arrived]).reshape(2, -1).sort().values
    return {"device": device, "pinned": all_pinned, "equal": bool((epochs == numbers).all()), "workers": workers}
