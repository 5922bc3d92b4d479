"""What is the program's own: tensors, precisions, gradients, settings."""

from __future__ import annotations

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
        (
            Cause(
                "fork-after-cuda",
                "The program itself: it used the GPU before it started its workers, which are copies (fork) and cannot use "
                "it then.",
                "torch.multiprocessing.set_start_method('spawn'), or touch the GPU only after the DataLoader is made.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "main-guard",
        "start a new process before the current process has finished its bootstrapping phase.",
        (r"before the current process has finished its bootstrapping phase",),
        (
            Cause(
                "main-guard",
                "The program itself: it starts workers while it is being imported.",
                'Put what it does below if __name__ == "__main__":',
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "start-method-twice",
        "RuntimeError: context has already been set",
        (r"RuntimeError: context has already been set",),
        (
            Cause(
                "start-method-twice",
                "The program itself: the way of starting processes is set twice.",
                "set_start_method(..., force=True), once and at the beginning.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: something is handed to another process that cannot be copied, such as a lambda, a "
                "generator or an open file.",
                "A function at the top of a module instead; num_workers=0 shows whether that is it.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: a quantized model stays on the GPU where it was loaded.",
                'device_map={"": local rank} when it is loaded, and no .to() afterwards.',
            ),
        ),
        look=VERIFY,
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
                "The program itself: a part of the model was made without values (meta), as with device_map, and is moved "
                "before it has any.",
                "No .to() on a model loaded with device_map; else module.to_empty(device=...).",
            ),
        ),
        look=VERIFY,
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
                "The program itself: a tensor or the model is not on the GPU with the others.",
                "Move it with .to(device); the traceback names the line.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "half-on-cpu",
        "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        (
            r"\"\w*cpu\w*\" not implemented for '(?:Half|BFloat16)'",
            r"\"(?!\w*cuda)\w+\" not implemented for 'Half'",
        ),
        (
            Cause(
                "half-on-cpu",
                "The program itself: a model in half precision runs on the CPU, where that is not served.",
                "Move it to the GPU, or .float() on the CPU; `./launch verify` says whether torch sees the GPU.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "type-not-served",
        "RuntimeError: \"index_add_cuda\" not implemented for 'Float8_e4m3fn'",
        (r"\"\w+\" not implemented for '(\w+)'",),
        (
            Cause(
                "type-not-served",
                "The program itself: this operation is not served for tensors of the type {0}.",
                "Convert before it, such as .float() or .long(); the traceback names the line.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: the tokenizer has no token for padding.",
                "tokenizer.pad_token = tokenizer.eos_token",
            ),
        ),
        look=VERIFY,
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
                "The program itself: samples of unequal length are put into one tensor.",
                "padding=True and truncation=True, or a collator that pads.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: FlashAttention is given fp32, and takes fp16 and bf16 only.",
                "dtype=torch.bfloat16 when the model is loaded, and torch.autocast around it.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "relative-import",
        "ImportError: attempted relative import with no known parent package",
        (r"attempted relative import (?:with no known parent package|beyond top-level package|in non-package)",),
        (
            Cause(
                "relative-import",
                "The program itself: a file of a package is started as if it were a program of its own.",
                "python -m package.module, from the folder above the package.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-chat-template",
        "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set",
        (r"tokenizer\.chat_template is not set|does not have a chat template",),
        (
            Cause(
                "no-chat-template",
                "The program itself: it treats as a chat model one that has no template for chats.",
                "The model's instruct variant, or tokenizer.chat_template set to one.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "optimizer-state",
        "Tensors of the same index must be on the same device and the same dtype except `step` tensors",
        (r"Tensors of the same index must be on the same device and the same dtype",),
        (
            Cause(
                "optimizer-state",
                "The program itself: the optimizer's tensors and the weights lie on different devices or have "
                "different precisions, as after a checkpoint was loaded or the model was moved.",
                "Make the optimizer after .to(device) and .to(dtype), and load its state with map_location of that device.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: tensors of two precisions meet where they must be the same.",
                "torch.autocast around the model's call, or .to(dtype) for the one.",
            ),
        ),
        look=VERIFY,
    ),
    # about: A tensor is empty where it should hold values.
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
                "empty-tensor-1",
                "It is a weight that DeepSpeed (ZeRO 3) or FSDP has shared out among the processes.",
                "Print its shape at that line.",
                tell="it works with one process or stage 2: gather it first (deepspeed.zero.GatheredParameters)",
            ),
            Cause(
                "empty-tensor-2",
                "A sample or a batch is empty.",
                "Print its shape at that line.",
                tell="it comes with some of the data only",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
                "The program itself: two tensors, or the data and a model, have shapes that do not fit.",
                "The traceback names the line; print the shapes there.",
            ),
        ),
        look=VERIFY,
        unless=r"(?:The size of tensor \w|must match the size of tensor \w) \(0\)",
    ),
    Rule(
        "batch-of-one",
        "ValueError: Expected more than 1 value per channel when training",
        (r"Expected more than 1 value per channel when training",),
        (
            Cause(
                "batch-of-one",
                "The program itself: a batch holds one sample, too few for batch normalization; mostly the last one.",
                "drop_last=True in the DataLoader.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: NumPy takes tensors on the CPU and without gradients only.",
                ".detach().cpu().numpy()",
            ),
        ),
        look=VERIFY,
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
                "The program itself: what is to be differentiated was changed, freed or cut off before.",
                "torch.autograd.set_detect_anomaly(True) names the line.",
            ),
        ),
        look=VERIFY,
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
                "loss-scale",
                "The program itself: numbers have become inf or nan, too large for their precision, by the learning "
                "rate or by the data.",
                "bf16 instead of fp16 where the card has it, a smaller learning rate, and clipped gradients.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "scaler-halves",
        "ValueError: Attempting to unscale FP16 gradients.",
        (r"Attempting to unscale FP16 gradients",),
        (
            Cause(
                "scaler-halves",
                "The program itself: the model is in fp16 as a whole, which GradScaler does not serve.",
                "Load it in fp32, and let torch.autocast choose; adapters (LoRA) in fp32.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "arguments",
        "error: the following arguments are required: --data",
        (r"error: (?:the following arguments are required|unrecognized arguments|argument \S+: invalid)",),
        (
            Cause(
                "arguments",
                "The program was called with other arguments than it takes; its own line says which.",
                "Its --help lists them.",
            ),
        ),
        look=VERIFY,
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
                "shapes-differ",
                "The program itself: two tensors, or the data and a model, have shapes that do not fit.",
                "The traceback names the line; print the shapes there.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
        beside=r"torch|tensor|numpy|tensorflow|\bcuda|\bmodel\b|input and weight",
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
                "not-implemented",
                "The program itself: {0} is not implemented for this kind of tensor.",
                "Another device or kind of tensor (.to_dense(), .cpu()) for that step.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: PyTorch met what it does not expect.
    Rule(
        "torch-internal",
        "RuntimeError: r INTERNAL ASSERT FAILED, please report a bug to PyTorch.",
        (r"INTERNAL ASSERT FAILED|please report a bug to PyTorch",),
        (
            Cause(
                "torch-internal-1",
                "Libraries of two releases are mixed.",
                "`./launch verify`",
                tell="`./launch verify` fails",
            ),
            Cause(
                "torch-internal-2",
                "It is a fault of this release of PyTorch.",
                "`./launch verify`",
                tell="`./launch verify` passes; a newer one, or PyTorch's issues by that line",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
)
