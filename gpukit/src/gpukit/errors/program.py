"""What is the program's own: tensors, precisions, gradients, settings."""

from __future__ import annotations

from gpukit.errors.causes import CPU_BUILD, CUDA_AFTER_FORK, LIBRARIES_MIXED
from gpukit.errors.evidence import text_has
from gpukit.errors.rule import BROAD, GENERAL, VERIFY, Rule
from gpukit.findings.finding import Cause

RULES = (
    Rule(
        "fork-after-cuda",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
        (
            r"Cannot re-initialize CUDA in forked subprocess",
            r"can't create new processes if CUDA is already initialized",
            r"CUDA (?:has been|was|is already) initialized before",
        ),
        (CUDA_AFTER_FORK,),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "main-guard",
        "start a new process before the current process has finished its bootstrapping phase.",
        (r"before the current process has finished its bootstrapping phase",),
        (
            Cause(
                "main-guard",
                "The program starts processes while it is being imported.",
                'Put the code that starts it under `if __name__ == "__main__":`.',
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "start-method-twice",
        "RuntimeError: context has already been set",
        (r"RuntimeError: context has already been set",),
        (
            Cause(
                "start-method-twice",
                "The start method of processes is set twice.",
                "Call `set_start_method(..., force=True)` once, at the start of the program.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "not-picklable",
        "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
        (
            r"Can't (?:pickle|get) local object",
            r"cannot pickle '[^']+' object|can't pickle [\w.]+ objects?",
            r"Can't pickle <(?:function|class)|(?<!Un)PicklingError",
        ),
        (
            Cause(
                "not-picklable",
                "An object is passed to another process that cannot be pickled, such as a lambda, a local function, "
                "a generator, or an open file.",
                "Move the function to the top level of a module; `num_workers=0` avoids the other process.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "quantized-move",
        "ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models.",
        (
            r"`\.to` is not supported for `?4-bit`?",
            r"can't train a model that has been loaded in (?:8|4)-bit precision (?:on a different device|with)",
            r"Calling `?(?:cuda|to)\(\)`? is not supported for `?(?:4|8)-bit",
        ),
        (
            Cause(
                "quantized-move",
                "A model quantized with bitsandbytes cannot be moved or trained on another device than the one it "
                "was loaded on.",
                'Load it with `device_map={"": local_rank}` (0 with one GPU), do not call `.to()` or `.cuda()`, and '
                "update transformers, accelerate, and bitsandbytes together.",
            ),
            Cause(
                "quantized-too-large",
                'The model did not fit on one GPU, so `device_map="auto"` put parts of it on other devices.',
                "Use a smaller model or fewer bits, or free the GPU's memory.",
                tell="`model.hf_device_map` names cpu, disk, or several GPUs",
                given=text_has(r"dispatched|different device"),
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "meta-tensor",
        "NotImplementedError: Cannot copy out of meta tensor; no data!",
        (
            r"Cannot copy out of meta tensor",
            r"is on the meta device",
            r"device meta[^\n]{0,60}(?:not on the expected|mismatch)",
        ),
        (
            Cause(
                "meta-tensor",
                "A part of the model has no values yet (device meta), as with `device_map` or `low_cpu_mem_usage`, "
                "and the program moves or uses it.",
                "Do not call `.to()` on such a model; load it without `device_map`, or use "
                "`module.to_empty(device=...)` and load the weights.",
            ),
            Cause(
                "loader-releases-differ",
                "The releases of torch, transformers, accelerate, and the package that loads the model are not "
                "compatible with each other.",
                "Run `pip install -U transformers accelerate` and update the package that the traceback names, or "
                "install the releases that the project lists.",
                tell="the program does not use `device_map`, and its code worked with older releases",
            ),
            Cause(
                "model-offloaded",
                "The model did not fit into the GPU's memory, so a part of it was left on the disk or on device meta.",
                "Use a smaller or quantized model, or end other programs on the GPU.",
                tell="`model.hf_device_map` names disk, cpu, or meta",
                given=text_has(r"offload|disk"),
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "two-devices",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        (
            r"Expected all tensors to be on the same device",
            r"torch\.cuda\.(?P<kind>\w+)Tensor\b[^\n]{0,80}torch\.(?P=kind)Tensor",
            r"torch\.(?P<type>\w+)Tensor\b[^\n]{0,80}torch\.cuda\.(?P=type)Tensor",
            r"to have the same device as tensor",
            r"Input type \(torch\.(?:cuda\.)?\w+\) and weight type \(torch\.(?:cuda\.)?\w+\) should be the same",
            r"indices should be either on cpu or on the same device",
            r"Expected (?:object of )?(?:device type|backend) (?:cuda|CUDA) but got",
            r"Tensor for '?\w+'? is on (?:CPU|cpu), but expected",
            r"module must have its parameters and buffers on device cuda:\d+",
            r"Expected a '(?:cuda|cpu)' device type for generator",
        ),
        (
            Cause(
                "two-devices",
                "A tensor or a part of the model is on another device than the rest.",
                'Move it with `.to(device)` at the line that the traceback names; with `device_map="auto"`, move '
                "inputs to `model.device`.",
            ),
            Cause(
                "device-map-split",
                "`device_map` spread the model over several devices, and the program or its package does not move "
                "tensors between them.",
                'Load it on one GPU with `device_map={"": 0}` (in distributed training, `{"": local_rank}`), set '
                "`CUDA_VISIBLE_DEVICES=0`, or update transformers and accelerate.",
                tell="`model.hf_device_map` names several devices",
                given=text_has(r"device_map|accelerate/hooks|cuda:[1-9] and cuda:\d|cuda:0 and cuda:[1-9]"),
            ),
            Cause(
                "tensor-not-registered",
                "A tensor is created inside the model without a device, or is a plain attribute that `.to(device)` "
                "does not move.",
                "Create it with `device=x.device`, and keep constants with `self.register_buffer(...)`; in a package, "
                "update it.",
                tell="the traceback ends in the model's own `forward`",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "half-on-cpu",
        "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        (r"\"\w*cpu\w*\" not implemented for '(?:Half|BFloat16)'", r"\"(?!\w*cuda)\w+\" not implemented for 'Half'"),
        (
            Cause(
                "half-on-cpu",
                "A model in half precision runs on the CPU, which does not support this operation in it.",
                "Move the model to the GPU; on the CPU, use `torch.float32`.",
            ),
            CPU_BUILD,
        ),
        more=VERIFY,
    ),
    Rule(
        "type-not-served",
        "RuntimeError: \"index_add_cuda\" not implemented for 'Float8_e4m3fn'",
        (r"\"\w+\" not implemented for '(\w+)'",),
        (
            Cause(
                "dtype-not-supported",
                "This operation is not implemented for tensors of type {0}.",
                "Convert the tensor first, for example with `.float()` or `.long()`, or update torch: newer releases "
                "implement more.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "no-pad-token",
        "ValueError: Asking to pad but the tokenizer does not have a padding token.",
        (
            r"[Aa]sking to pad but the tokenizer does not have a padding token",
            r"Cannot handle batch sizes > 1 if no padding token is defined",
        ),
        (
            Cause(
                "no-pad-token",
                "The tokenizer has no padding token.",
                "Set `tokenizer.pad_token = tokenizer.eos_token`, and `model.config.pad_token_id` to its id.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "unequal-lengths",
        "ValueError: Unable to create tensor, you should probably activate truncation and/or padding",
        (
            r"you should probably activate truncation and/or padding",
            r"expected sequence of length \d+ at dim \d+ \(got \d+\)",
        ),
        (
            Cause(
                "unequal-lengths",
                "Samples of different lengths are put into one tensor.",
                "Tokenize with `padding=True, truncation=True`, or use a data collator that pads.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "flash-dtype",
        "ValueError: Flash Attention 2 only supports torch.float16 and torch.bfloat16 data types",
        (
            r"Flash ?Attention[\s\d.]*(?:only )?supports? (?:only )?(?:torch\.)?(?:float16|fp16|"
            r"half)[^\n]{0,40}(?:bfloat16|bf16)",
            r"FlashAttention only supports? fp16 and bf16",
        ),
        (
            Cause(
                "flash-dtype",
                "FlashAttention got fp32 tensors; it supports only fp16 and bf16.",
                'Load the model with `dtype=torch.bfloat16`, and wrap the call in `torch.autocast("cuda", '
                "torch.bfloat16)`.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "relative-import",
        "ImportError: attempted relative import with no known parent package",
        (r"attempted relative import (?:with no known parent package|beyond top-level package|in non-package)",),
        (
            Cause(
                "relative-import",
                "A file that belongs to a package is run as a script.",
                "Run it as a module from the folder above the package: `python -m package.module`.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "no-chat-template",
        "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set",
        (r"tokenizer\.chat_template is not set|does not have a chat template",),
        (
            Cause(
                "no-chat-template",
                "The tokenizer has no chat template, usually because the model is a base model.",
                "Use the model's instruct variant, or set `tokenizer.chat_template`.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "optimizer-state",
        "Tensors of the same index must be on the same device and the same dtype except `step` tensors",
        (r"Tensors of the same index must be on the same device and the same dtype",),
        (
            Cause(
                "optimizer-state",
                "The optimizer's state and the weights are on different devices or have different precisions, for "
                "example after a checkpoint was loaded.",
                "Create the optimizer after `.to(device)` and `.to(dtype)`, and load its state with `map_location` "
                "of that device.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "two-dtypes",
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half",
        (
            r"expected (?:scalar type|m1 and m2|mat1 and mat2)[^\n]{0,40}(?:but found|but got|"
            r"to have the same dtype)",
            r"mat1 and mat2 must have the same dtype",
            r"to have the same type as tensor",
            r"[Ee]xpected (?:object of )?(?:scalar )?type \S+ but (?:got|found)",
            r"type \S+ does not equal \S+Tensor",
            r"(?:must|should) (?:all )?(?:have|be of) the same d?type",
            r"Input type \(\S+\) and (?:weight|bias) type \(\S+\) should be the same",
            r"Found dtype \w+ but expected \w+",
            r"result type \w+ can't be cast to the desired output type",
            r"query, key, and value to have the same dtype",
            r"Index put requires the source and destination dtypes match",
            r"value cannot be converted to type at::(?:Half|BFloat16)",
        ),
        (
            Cause(
                "two-dtypes",
                "Tensors of two precisions are combined in an operation that needs the same one.",
                "Wrap the model's call in `torch.autocast`, or convert one with `.to(dtype)`; if the code is not "
                "yours, update the package that contains it.",
            ),
            Cause(
                "label-dtype",
                "Labels, indices, or arrays from NumPy have another type than the operation needs, such as float64 or "
                "int32.",
                "Convert them: `.long()` for class labels and indices, `.float()` for regression targets and NumPy "
                "arrays.",
                tell="the text names Long, Int, or Double",
                given=text_has(r"\bLong\b|\bDouble\b|\bInt\b|LongTensor|DoubleTensor"),
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "empty-tensor",
        "RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at non-singleton dimension 1",
        (
            r"The size of tensor \w \(0\) must match",
            r"must match the size of tensor \w \(0\)",
            r"the shape in current model is torch\.Size\(\[0\]\)",
        ),
        (
            Cause(
                "sharded-weight",
                "A weight is empty because DeepSpeed ZeRO-3 or FSDP has distributed it among the processes.",
                "Gather it first (`deepspeed.zero.GatheredParameters`, FSDP's `summon_full_params`), or use ZeRO "
                "stage 2.",
                tell="it works with one process",
                given=text_has(r"deepspeed|zero|fsdp|accelerate"),
            ),
            Cause(
                "empty-batch",
                "A sample or a batch is empty.",
                "Print the shapes at that line, and check the data.",
                tell="it happens with some of the data only",
            ),
        ),
        level=BROAD,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "shapes",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 768x10)",
        (
            r"mat1 and mat2 shapes cannot be multiplied",
            r"The size of tensor a \(\d+\) must match",
            r"shape '[^']*' is invalid for input",
            r"Sizes of tensors must match except in dimension",
            r"Expected input batch_size \(\d+\) to match target",
            r"Given groups=\d+, weight of size",
            r"Dimension out of range",
            r"expected \d+D(?: \([^)]*\))? (?:or \d+D )?(?:\([^)]*\) )?input",
            r"size mismatch, m1:|shape mismatch: |Target size \([^)]*\) must be the same as input size",
            r"stack expects each tensor to be equal size",
            r"The expanded size of the tensor \(\d+\) must match",
            r"view size is not compatible with input tensor's size",
            r"operands could not be broadcast together",
            r"embed_dim must be divisible by num_heads",
        ),
        (
            Cause(
                "shapes",
                "Two tensors, or the data and the model, have shapes that do not match.",
                "Print the shapes at the line that the traceback names; if a checkpoint or config was changed, use "
                "the one that belongs to the model.",
            ),
        ),
        excludes=r"(?:The size of tensor \w|must match the size of tensor \w) \(0\)",
        program=True,
        more=VERIFY,
    ),
    Rule(
        "batch-of-one",
        "ValueError: Expected more than 1 value per channel when training",
        (r"Expected more than 1 value per channel when training",),
        (
            Cause(
                "batch-of-one",
                "A batch holds one sample, which batch normalization cannot train on; usually it is the last batch.",
                "Set `drop_last=True` in the DataLoader.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "tensor-to-numpy",
        "TypeError: can't convert cuda:0 device type tensor to numpy.",
        (
            r"can't convert (?:cuda:?\d* device type|CUDA) tensor to numpy",
            r"Can't call numpy\(\) on Tensor that requires grad",
        ),
        (
            Cause(
                "tensor-to-numpy",
                "NumPy only accepts tensors on the CPU and without gradients.",
                "Convert with `.detach().cpu().numpy()`.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "gradients",
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
        (
            r"needed for gradient computation has been modified by an inplace operation",
            r"Trying to backward through the graph a second time",
            r"element \d+ of tensors does not require grad",
            r"leaf [Vv]ariable that requires grad[^\n]{0,30}(?:in-place|inplace)",
            r"grad can be implicitly created only for scalar outputs",
            r"Inference tensors cannot be saved for backward|Inplace update to inference tensor",
            r"does not require grad and does not have a grad_fn",
            r"A different number of tensors was saved during the original forward and recomputation",
        ),
        (
            Cause(
                "gradients",
                "A tensor that is needed for the gradient was changed, freed, or detached.",
                "Run once with `torch.autograd.set_detect_anomaly(True)`, which names the line.",
            ),
            Cause(
                "checkpointing-no-grad",
                "With gradient checkpointing, the inputs do not require gradients, as in LoRA training.",
                'Call `model.enable_input_require_grads()`, or pass `gradient_checkpointing_kwargs={"use_reentrant": '
                "False}`.",
                tell="gradient checkpointing is on",
                given=text_has(r"gradient_checkpointing|utils/checkpoint|peft|lora"),
            ),
            Cause(
                "nothing-trainable",
                "No parameter that the loss depends on is trainable: all are frozen, or the forward pass runs under "
                "`torch.no_grad()`.",
                "Print `[n for n, p in model.named_parameters() if p.requires_grad]`, set `requires_grad_(True)` on "
                "what is trained, and remove `no_grad` and `.detach()` from the path of the loss.",
                tell="`loss.requires_grad` is False",
                given=text_has(r"does not require grad"),
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "loss-scale",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        (
            r"Current loss scale already at minimum",
            r"Minimum loss scale reached",
            r"Function '\w+' returned nan values in its \d+th output",
            r"(?:loss|gradient|grad norm)\w* (?:is|became|was|are) (?:nan|inf|not finite)|Loss is nan|nan loss",
            r"probability tensor contains either `?inf`?, `?nan`?",
        ),
        (
            Cause(
                "loss-not-finite",
                "Numbers became infinite or NaN: too large for their precision, because of the learning rate or the "
                "data.",
                "Use bf16 instead of fp16 if the GPU supports it, a smaller learning rate, and gradient clipping; "
                "check the data for NaN.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "scaler-halves",
        "ValueError: Attempting to unscale FP16 gradients.",
        (r"Attempting to unscale FP16 gradients",),
        (
            Cause(
                "scaler-halves",
                "The trainable weights are in fp16, which the gradient scaler does not support.",
                "Load the model in fp32 (or bf16) and let `torch.autocast` choose; convert LoRA adapters to fp32.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "arguments",
        "error: the following arguments are required: --data",
        (r"error: (?:the following arguments are required|unrecognized arguments|argument \S+: invalid)",),
        (
            Cause(
                "arguments",
                "The program was called with arguments that it does not accept; its message names them.",
                "Run the program with `--help`; after an update of a package, check its options.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "shapes-differ",
        "AssertionError: shape mismatch between input and weight",
        (
            r"(?:shape|size|dimension)s? (?:mismatch|do(?:es)? not match|don't match|must match)",
            r"invalid shape \[[\d, ]+\]",
            r"(?:expected|got)(?: input)?(?: with)? shape \S",
            r"must match the (?:size|shape|existing size)",
            r"(?:mismatch|mismatched|incompatible) (?:shape|size|dimension)s?",
        ),
        (
            Cause(
                "shapes",
                "Two tensors, or the data and the model, have shapes that do not match.",
                "Print the shapes at the line that the traceback names; if a checkpoint or config was changed, use "
                "the one that belongs to the model.",
            ),
        ),
        level=GENERAL,
        program=True,
        requires=r"torch|tensor|numpy|tensorflow|\bcuda|\bmodel\b|input and weight",
        more=VERIFY,
    ),
    Rule(
        "not-implemented",
        "NotImplementedError: Could not run 'aten::slow_conv3d' with arguments from the 'SparseCUDA' backend.",
        (
            r"Could not run '((?:aten|prims?|quantized|xla|c10d|sparse|mkldnn)::[^']+)' with arguments from the "
            r"'\w+' backend",
            r"The operator '([^']+)' is not currently implemented for",
        ),
        (
            Cause(
                "operation-not-implemented",
                "{0} is not implemented for this kind of tensor or device.",
                "Use another device or kind of tensor (`.cpu()`, `.to_dense()`) for that step, or update torch.",
            ),
        ),
        level=GENERAL,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "torch-internal",
        "RuntimeError: r INTERNAL ASSERT FAILED, please report a bug to PyTorch.",
        (r"INTERNAL ASSERT FAILED|please report a bug to PyTorch",),
        (
            Cause(
                "torch-bug",
                "PyTorch reached a state that it does not expect: a bug in this release.",
                "Update PyTorch; if it remains, search PyTorch's issues for that line.",
                tell="`./launch verify` passes",
            ),
            LIBRARIES_MIXED,
        ),
        level=GENERAL,
        more=VERIFY,
    ),
)
