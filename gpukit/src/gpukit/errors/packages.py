"""Python packages: what does not fit together, what is missing, and what does not compile."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, BUILD, GENERAL, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

VENV = "./launch doctor --only venv"
WITH_COMPILER = "the base with a compiler: copier update --trust --data base=cuda"
ISOLATED = r"(?:Getting requirements to build wheel|pip-build-env|build isolation|egg_info|build_wheel|setup\.py)"

RULES = (
    Rule(
        "build-needs",
        "pip install flash-attn --no-build-isolation ... No module named 'wheel'",
        (
            r"--?no-build-isolation[\s\S]{0,3000}No module named ['\"]?(wheel|packaging|psutil|setuptools|numpy|"
            r"ninja|cmake|hatchling|scikit_build_core|pybind11|Cython)\b",
            r"Cannot import 'setuptools\.build_meta'",
        ),
        (
            Cause(
                "build-needs",
                "Without build isolation the package is built with what is installed, and {0}, which its build needs, is not.",
                "uv pip install wheel setuptools packaging ninja in the step before it.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "build-isolation",
        "Getting requirements to build wheel did not run successfully ... No module named 'torch'",
        (
            ISOLATED + r"[\s\S]{0,3000}No module named ['\"]?(?:torch|packaging|wheel|psutil|numpy)\b",
            r"No module named '?(?:torch|packaging|wheel|psutil)'?[\s\S]{0,1500}"
            r"(?:when getting requirements|subprocess-exited-with-error|metadata-generation-failed|"
            r"Failed to build|egg_info|build isolation)",
            r"doesn't declare it as a build dependency",
            r"(?:build backend returned an error|Failed to build `)[\s\S]{0,3000}No module named ['\"]?(?:torch|"
            r"packaging|wheel|psutil|numpy)\b",
        ),
        (
            Cause(
                "build-isolation",
                "A package asks for torch (or another one) while it is built, and does not find it: building happens "
                "apart from what is installed, or it is not installed.",
                "uv pip install --no-build-isolation PACKAGE in the Dockerfile, or a release that has a wheel.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-compiler",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        (
            r"Failed to find C compiler",
            r"(?<!nv)\b(?:gcc|g\+\+|cc|clang): (?:command )?not found",
            r"unable to execute '[\w-]*g(?:cc|\+\+)'",
            r"command '[\w/-]*(?:gcc|g\+\+|cc)' failed: No such file",
            r"No such file or directory: '(?:gcc|g\+\+|cc|c\+\+)'",
            r"Python\.h: No such file",
            r"No working C\+\+ compiler found",
            r"InvalidCxxCompiler",
            r"No CMAKE_C(?:XX)?_COMPILER could be found",
            r"linker [`']cc[`'] not found",
            r"command '[\w-]*gcc' failed: None",
            r"fatal error: '?(?:std(?:def|lib|io|int)|limits|math|string|bits/\w+)(?:\.h)?'?: No such file",
        ),
        (
            Cause(
                "no-compiler",
                "torch.compile, Triton and many packages compile with gcc and Python's headers, and here one of them is "
                "missing.",
                "Start with ./launch: the image brings both. In an image of your own: g++ and python3-dev.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "cmake-no-torch",
        'CMake Error: By not providing "FindTorch.cmake" in CMAKE_MODULE_PATH',
        (
            r"FindTorch\.cmake",
            r"Could not find a package configuration file provided by \"Torch\"",
            r"TorchConfig\.cmake",
        ),
        (
            Cause(
                "cmake-no-torch",
                "CMake does not find torch.",
                "CMAKE_PREFIX_PATH=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "source-too-old",
        "fatal error: THC/THC.h: No such file or directory",
        (
            r"THC?/THC?\w*\.(?:h|hpp|cuh): No such file",
            r"'(?:AT_CHECK|THCState_\w+|THCCeilDiv)' was not declared|identifier \"(?:AT_CHECK|"
            r"THC\w+)\" is undefined",
            r"(?:at|torch|c10)::\w+[^\n]{0,80}has no member named '(?:type|data|scalar_type)'",
            r"You need C\+\+1[47]",
            r"from \W*const at::DeprecatedTypeProperties",
            r"DeprecatedTypeProperties[^\n]{0,40}(?:to|has no)",
        ),
        (
            Cause(
                "source-too-old",
                "The package's source is older than this torch, and does not compile against it.",
                "A newer release of the package, or its fork for this torch.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "submodules",
        "CMake Error: The source directory /src/third_party/pybind11 does not contain a CMakeLists.txt file.",
        (
            r"does not contain a CMakeLists\.txt file",
            r"git submodule update --init",
            r"(?:third_party|csrc)/\S+[^\n]{0,40}(?:is empty|does not exist)",
        ),
        (
            Cause(
                "submodules",
                "Parts of the source are missing, which git mostly fetches as submodules.",
                "git submodule update --init --recursive in it, then again.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "not-a-package",
        "ERROR: File \"setup.py\" or \"setup.cfg\" not found. Neither 'setup.py' nor 'pyproject.toml' found.",
        (
            r"[Nn]either '?setup\.py'? nor '?pyproject\.toml'? found",
            r"Multiple top-level (?:packages|modules) discovered in a flat-layout",
            r"does not appear to be a Python project",
        ),
        (
            Cause(
                "not-a-package",
                "That folder is no Python package that pip can install.",
                "The folder that holds its pyproject.toml, or without installing: PYTHONPATH.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "no-nvcc",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        (
            r"CUDA_HOME environment variable is not set",
            r"CUDA_HOME does not exist",
            r"fatal error: (?:cu\w+|crt/host_defines|nvtx3/\w+|device_launch_parameters|thrust/\w+|cub/\w+)\.(?:h|"
            r"cuh)"
            r"(?:pp)?: No such file",
            r"Could not find CUDA\b(?! drivers)(?![^\n]{0,40}unsuitable)",
            r"nvcc: (?:command )?not found",
            r"nvcc was not found",
            r"No such file or directory: '[^']*nvcc'|nvcc[\"']?: (?:executable file not found|No such file)",
            r"MissingCUDAException",
            r"No CUDA toolset found",
            r"No CMAKE_CUDA_COMPILER could be found|CMAKE_CUDA_COMPILER-NOTFOUND",
            r"(?:Failed|Unable|Could not|cannot) (?:to )?find (?:nvcc|the CUDA compiler|CUDA (?:toolkit|compiler))",
            r"specify CUDA_TOOLKIT_ROOT_DIR|CUDA_TOOLKIT_ROOT_DIR not found",
            r"CMAKE_CUDA_COMPILER not set",
            r"Failed to execute `nvcc`",
        ),
        (
            Cause(
                "no-nvcc",
                "A package wants to compile CUDA code, and finds no CUDA compiler: this base has none, or CUDA_HOME does not "
                "name it.",
                "Take a built wheel of the package, or " + WITH_COMPILER,
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "gcc-too-new",
        "error: #error -- unsupported GNU version! gcc versions later than 13 are not supported!",
        (
            r"unsupported GNU version! gcc versions later than",
            r"parameter packs not expanded with",
            r"exception specification is incompatible with that of previous function \"(?:cospi|sinpi|rsqrt)",
            r"The current installed version of g\+\+ \([^)]*\) is greater than the maximum required version",
            r"identifier \"_Float(?:32|64|128)\w*\" is undefined",
            r"identifier \"__builtin_\w+\" is undefined",
        ),
        (
            Cause(
                "gcc-too-new",
                "The C++ compiler or system is newer than this CUDA's compiler accepts.",
                "A base with a newer CUDA: copier update --trust",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-ninja",
        "RuntimeError: Ninja is required to load C++ extensions",
        (
            r"Ninja is required to load C\+\+ extensions",
            r"No such file or directory: 'ninja'",
            r"ninja: (?:command )?not found",
        ),
        (
            Cause(
                "no-ninja",
                "The build tool ninja is missing, with which C++ and CUDA parts are compiled.",
                "./launch add ninja",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-build-tool",
        "error: can't find Rust compiler",
        (
            r"can't find (Rust) compiler",
            r"could not find `?(cargo|rustc|cmake)`?",
            r"(Cargo), the Rust package manager, is not installed",
            r"(CMake) must be installed",
            r"No such file or directory: '(cmake|git|swig|make|cargo|rustc)'",
            r"Cannot find command '(git)'",
            r"error: command '(swig|cmake|make|rustc|cargo)' failed: No such file",
            r"(pg_config|mpicc|mysql_config)[^\n]{0,20} not found",
            r"Cannot (?:find|compile) (mpicc|MPI programs)",
            r"(cmake|swig|cargo|rustc|protoc): (?:command )?not found",
        ),
        (
            Cause(
                "no-build-tool",
                "A package is compiled here, and the tool {0} is missing for it.",
                "A release of the package that has a wheel, or the tool in apt.txt, then ./launch build",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "toolkit-other-than-torch",
        "The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).",
        (
            r"The detected CUDA version \(([\d.]+)\) mismatches the version that was used to compile",
            r"Installed CUDA version ([\d.]+) does not match the version torch was compiled with",
            r"CUDAMismatchException",
            r"compiled with a version of Cuda that does not match",
            r"Installed CUDA version [^\n]{0,40}mismatch",
            r"CUDA version[^\n]{0,60}(?:does not match|mismatch(?:es)?)[^\n]{0,60}torch",
            r"nvcc[^\n]{0,60}does not match[^\n]{0,60}(?:torch|cuda)",
        ),
        (
            Cause(
                "toolkit-other-than-torch",
                "The CUDA compiler here ({0}) is of another version than the CUDA that torch was built with.",
                "Take the base whose CUDA is torch's: copier update --trust",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "nvcc-too-old-for-package",
        "RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.",
        (r"is only supported on CUDA ([\d.]+) and above", r"requires CUDA ([\d.]+) or (?:newer|higher|above|later)"),
        (
            Cause(
                "nvcc-too-old-for-package",
                "The package asks for a CUDA compiler of {0} or newer.",
                "A base with a newer CUDA (copier update --trust), or an older release of the package.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "arch-list-empty",
        "arch_list[-1] += '+PTX' IndexError: list index out of range",
        (
            r"arch_list\[-1\]",
            r"CMAKE_CUDA_ARCHITECTURES must be (?:non-empty|set)",
            r"TORCH_CUDA_ARCH_LIST (?:is not set|must be set|environment variable)(?![^\n]*all archs)",
            r"target CUDA architecture must be explicitly provided",
        ),
        (
            Cause(
                "arch-list-empty",
                "No GPU is seen while this is compiled, as in the build of an image, that could be asked for its "
                "architecture, and none was named.",
                "ENV TORCH_CUDA_ARCH_LIST with the card's capability, such as 9.0, before that step of the Dockerfile.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "musl",
        "ImportError: Error loading shared library ld-linux-x86-64.so.2: No such file or directory",
        (
            r"Error loading shared library (\S+?): No such file",
            r"Error relocating [^\n:]+: (\w+): symbol not found",
            r"musl(?:linux)?[^\n]{0,60}(?:not supported|is not a supported)",
        ),
        (
            Cause(
                "musl",
                "This system is Alpine (musl), and what is loaded was made for glibc, or lacks {0}.",
                "A base of Debian or Ubuntu, for which PyTorch's packages are made: the project's own has one.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "executable-stack",
        "ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid argument",
        (r"([\w.+-]+): cannot enable executable stack as shared object requires",),
        (
            Cause(
                "executable-stack",
                "The library {0} asks for an executable stack, which this system (glibc since 2.41, SELinux) does not give.",
                "A newer release of the package that brings it; for now: patchelf --clear-execstack with that file.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "static-tls",
        "libgomp.so.1: cannot allocate memory in static TLS block",
        (r"cannot allocate memory in static TLS block",),
        (
            Cause(
                "static-tls",
                "A library was loaded too late for its kind (mostly libgomp on arm64).",
                "Import torch first, or LD_PRELOAD with the file that is named.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torch-parts",
        "OSError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory",
        (r"lib(?:torch|c10)\w*\.so(?:\.\d+)?: cannot open shared object file",),
        (
            Cause(
                "torch-parts",
                "A compiled package does not find the parts of torch that it was built with: it is imported before "
                "torch, or was built for another release or another build of torch (for CUDA, for ROCm, for the CPU).",
                "./launch add the package's release for this torch; `./launch verify` says which one is here.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mkl-too-new",
        "libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent",
        (r"undefined symbol: iJIT_NotifyEvent",),
        (
            Cause(
                "mkl-too-new",
                "This torch is conda's, and is older than the mkl beside it, which no longer has that part.",
                "conda install 'mkl<2024.1'; the project's image needs no conda.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mixed-cuda-libraries",
        "undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
        (
            r"undefined symbol: (?:__nvJitLink\w*|cu(?:blas|sparse|solver|dnn|fft|rand)\w*|nccl\w+|cuda[A-Z]\w*)",
            r"libtorch(?:_cpu|_cuda|_python|_global_deps)?\.so(?:\.\d+)?: undefined symbol",
            r"/torch/(?:_C|lib/)[^\s:]*: undefined symbol",
            r"libtorch\w*\.so[^\n]{0,20}: version `",
        ),
        (
            Cause(
                "mixed-cuda-libraries",
                "Libraries that do not belong together are loaded: one of CUDA's (or torch's own) is found elsewhere "
                "than where torch brought it, or a file was built without being linked with it.",
                "unset LD_LIBRARY_PATH, and take what brings a second one out of pyproject.toml; ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "built-for-other-torch",
        "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs",
        (
            r"undefined symbol:? _ZT?[A-Z]*N[KRO]*(?:2at|3c10|5torch|4c10d)\w*",
            r"xFormers was built for",
            r"WARNING\[XFORMERS\]",
            r"PyTorch version \S+ (?:is )?(?:not |in)compatible with (?:the )?(?:installed )?\w+ extension",
            r"was compiled (?:with|against|for) (?:PyTorch|torch) [\d.]+[^\n]{0,60}(?:but|installed)",
        ),
        (
            Cause(
                "built-for-other-torch",
                "A compiled package was built for another torch (another version, or another kind of build) than the "
                "one that is here.",
                "./launch add the package's release for this torch, or build it here without build isolation.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "link-library",
        "/usr/bin/ld: cannot find -lcurand: No such file or directory",
        (
            r"\bld: cannot find -l(cu(?:da|dart|rand|blas\w*|dnn|fft|sparse|solver|pti)|nv\w+)\b",
            r"warning: (libcuda)\.so\.1, needed by \S+, not found",
        ),
        (
            Cause(
                "link-library",
                "Something is compiled here against CUDA's library {0}, and the linker finds no file of it to link with.",
                "Take a built wheel of the package, or an environment with the CUDA Toolkit, its lib64 in LIBRARY_PATH; "
                "for libcuda, its lib64/stubs.",
            ),
        ),
        look=BUILD,
    ),
    # about: The compiled part of a package ({0}) is not found where Python looks for it.
    Rule(
        "compiled-part-missing",
        "ImportError: cannot import name '_C' from 'groundingdino'",
        (
            r"cannot import name '_\w*[Cc]\w*' from (?:partially initialized module )?'(\w+)[\w.]*'",
            r"No module named '(\w+)(?:\.\w+)*\.(?:_C\w*|_ext|_cuda|cuda_ext|version)'",
            r"name '_C' is not defined",
            r"No module named '(\w+)_(?:cuda|cpp|ext|C|cuda_ext|_ext)'",
            r"torch_extensions/\S+?/(\w+)\.so: cannot open shared object",
            r"'DeepSpeedCPUAdam' object has no attribute '(ds_opt_adam)'",
            r"'NoneType' object has no attribute 'origin'",
        ),
        (
            Cause(
                "compiled-part-missing-1",
                "It was installed without being compiled, or that failed in silence.",
                "Install it again with a compiler there and TORCH_CUDA_ARCH_LIST set, and look at what it prints.",
                tell="its folder in site-packages holds no .so",
            ),
            Cause(
                "compiled-part-missing-2",
                "It was compiled for another Python, torch or CUDA, or files of two releases are mixed.",
                "Install it again with a compiler there and TORCH_CUDA_ARCH_LIST set, and look at what it prints.",
                tell="its folder holds a .so of another cp3xx, or pip list shows two: rm its folder, and install it again",
            ),
            Cause(
                "compiled-part-missing-3",
                "A folder of the same name, such as its source, stands before it.",
                "Install it again with a compiler there and TORCH_CUDA_ARCH_LIST set, and look at what it prints.",
                tell="it works when started from another folder",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "bitsandbytes",
        "The installed version of bitsandbytes was compiled without GPU support.",
        (
            r"bitsandbytes was compiled without GPU support",
            r"CUDA[_ ]SETUP: (?:WARNING|Required|CUDA detection failed)",
            r"libbitsandbytes_cpu\.so",
            r"CUDA SETUP: (?:Something unexpected|Setup Failed|Problem|Solution)",
            r"did not contain \['?libcudart",
            r"CUDA Setup failed despite (?:GPU|CUDA) being available",
            r"libbitsandbytes_cuda\w*\.so[^\n]{0,60}(?:not found|No such file|cannot open)",
            r"Could not find the bitsandbytes CUDA binary",
            r"Configured (?:CUDA|ROCm) binary[^\n]{0,80}not found",
            r"name 'str2optimizer\w*' is not defined",
            r"in file \S*bitsandbytes\S*\.cu\b",
            r"object has no attribute '(?:cadam32bit\w*|cquantize\w*|cget_\w+|cdequantize\w*)'",
        ),
        (
            Cause(
                "bitsandbytes",
                "bitsandbytes finds no part of itself for CUDA here: its release has none for this CUDA or "
                "processor, it does not find CUDA's libraries, or sees no GPU.",
                "python -m bitsandbytes says what it looked for; ./launch add 'bitsandbytes' in its newest release; "
                "`./launch verify` says whether torch sees the GPU.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torchvision-other",
        "RuntimeError: operator torchvision::nms does not exist",
        (
            r"operator torchvision::\w+ does not exist",
            r"Unknown builtin op: torchvision::",
            r"No such operator torchvision::",
            r"Couldn't load custom C\+\+ ops",
            r"Detected that PyTorch and torch(?:vision|audio) were compiled with different",
            r"torchvision::nms' (?:with arguments from the 'CUDA' backend|is only available)",
            r"module 'torchvision' has no attribute 'extension'",
        ),
        (
            Cause(
                "torchvision-other",
                "torchvision (or torchaudio) was made for another torch than the one that is here.",
                "Take its version out of pyproject.toml, then ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "built-for-other-cuda",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        (
            r"(lib(?:cudart|cublas|cublasLt|cudnn\w*|cusparse\w*|cufft\w*|curand|cusolver\w*|cupti|nvrtc|nvJitLink|"
            r"nccl|nvToolsExt|cufile|nvshmem\w*|npp\w+|nvjpeg\w*|nvinfer\w*|nvfatbin)\.so(?:\.\d+)*)[^\n]{0,10}: "
            r"cannot open shared object file",
            r"(?:Could not load dynamic library|Couldn't open CUDA library) '?(?!libcuda|libnvidia)(lib(?:cu|"
            r"nv)[\w.]+)",
            r"(lib(?:cudart|cublas\w*|cudnn\w*|nvrtc|cufft|curand)[\w.]*) is not found or cannot be loaded",
            r"Library (lib(?:cublas|cudnn)\S+) is not found",
            r"Unable to load lib(?:cudnn|cublas)\S+|Could not load library (libcudnn\S+)",
            r"Cannot dlopen some GPU libraries",
        ),
        (
            Cause(
                "built-for-other-cuda",
                "What is loaded asks for CUDA's library {0}, which is not found here: it was built for another CUDA, "
                "or the package that brings that library is missing or not looked into.",
                "Take the package's build for this CUDA (`./launch verify` says which one is here); a library that "
                "torch itself asks for: ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "other-libc",
        "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found",
        (r"version [`'](?:GLIBC(?:XX)?|CXXABI|GCC)_[\d.]+' not found",),
        (
            Cause(
                "other-libc",
                "A compiled file asks for a newer C or C++ library than the one that is found: it was made on a "
                "newer system, or an older library (conda's or the system's) stands before the right one.",
                "Take the package's build for this image, or build it inside; a file from the machine itself does not fit.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "openmp-twice",
        "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.",
        (
            r"OMP: Error #15",
            r"MKL_THREADING_LAYER=INTEL is incompatible",
            r"Intel (?:oneAPI )?MKL (?:FATAL )?ERROR",
        ),
        (
            Cause(
                "openmp-twice",
                "OpenMP or MKL does not work as it was loaded: two packages bring it, each its own, or it is not whole.",
                "import numpy before torch, or MKL_THREADING_LAYER=GNU; packages from one source, pip or conda.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "numpy-unavailable",
        "RuntimeError: Numpy is not available",
        (r"RuntimeError: Numpy is not available",),
        (
            Cause(
                "numpy-unavailable",
                "torch cannot use NumPy: none is here, or one of another major version than torch was built for.",
                "./launch add numpy; for a torch before 2.3 'numpy<2'.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "numpy-2",
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.0",
        (
            r"compiled using NumPy 1\.x cannot be run in",
            r"numpy\.core\.multiarray failed to import|numpy\._core\.multiarray failed to import",
            r"numpy\.(?:dtype|ufunc|ndarray) size changed",
            r"_ARRAY_API not found",
            r"module compiled against A[PB]I version 0x\w+ but this version of numpy is",
        ),
        (
            Cause(
                "numpy-2",
                "A compiled package was built for another major version of NumPy than the one that is here.",
                "./launch add that package's newer release.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "numpy-names",
        "AttributeError: module 'numpy' has no attribute 'float'.",
        (
            r"module 'numpy' has no attribute '(\w+)'",
            r"`np\.(\w+)` was (?:removed in the NumPy|a deprecated alias)",
            r"No module named 'numpy\.(_core|char|rec|strings)",
        ),
        (
            Cause(
                "numpy-names",
                "A program or package is older (or newer) than this NumPy, which has no name {0} any more (or not yet).",
                "./launch add that package's newer release; in your own code the builtin, such as float.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "protobuf",
        "TypeError: Descriptors cannot be created directly.",
        (r"Descriptors cannot (?:not )?be created directly", r"cannot import name 'builder' from 'google\.protobuf"),
        (
            Cause(
                "protobuf",
                "A package was generated for another protobuf than the one that is here.",
                "./launch add that package's newer release, or 'protobuf<4' where there is none.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "python-too-new",
        "ModuleNotFoundError: No module named 'distutils'",
        (
            r"No module named '(distutils|imp|asynchat|asyncore|cgi|telnetlib|imghdr|pipes|numpy\.distutils)[\w.]*'",
            r"module 'pkgutil' has no attribute '(ImpImporter)'",
            r"cannot import name '(?:Mapping|MutableMapping|Iterable|Callable|Sequence)' from 'collections'",
            r"module 'inspect' has no attribute '(getargspec)'",
            r"module 'collections' has no attribute '(\w+)'",
            r"module 'inspect' has no attribute '(formatargspec)'",
            r"module 'ast' has no attribute '(Num|Str|NameConstant)'",
        ),
        (
            Cause(
                "python-too-new",
                "A package is older than this Python, which does not have {0} (any more); before 3.12 Debian keeps "
                "distutils in a package of its own.",
                "./launch add that package's newer release; before 3.12 python3-distutils in apt.txt.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "setuptools",
        "ModuleNotFoundError: No module named 'pkg_resources'",
        (r"No module named 'pkg_resources'", r"cannot import name 'packaging' from 'pkg_resources'"),
        (
            Cause(
                "setuptools",
                "A package asks for a part of setuptools that is missing, or that its newer releases do not have.",
                "./launch add 'setuptools<81'",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "python-too-old",
        "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'",
        (
            r"unsupported operand type\(s\) for \|: '\w+' and 'NoneType'",
            r"'type' object is not subscriptable",
            r"cannot import name '(?:Self|StrEnum|override|batched|UTC)' from '(?:typing|enum|itertools|datetime)'",
            r"No module named 'tomllib'",
        ),
        (
            Cause(
                "python-too-old",
                "The program is written for a newer Python than this one.",
                "Start it with the image's Python; a newer base has a newer one: copier update --trust",
            ),
        ),
        look=VENV,
    ),
    Rule(
        "python-required",
        "ERROR: Package 'foo' requires a different Python: 3.9.18 not in '>=3.10'",
        (
            r"requires a different Python: ([\d.]+) not in",
            r"the current Python version \(([\d.]+)\) does not satisfy Python",
            r"requires Python (?:'|>=|<|~=)[^\n]{0,40}but (?:the )?(?:running|current|installed)",
        ),
        (
            Cause(
                "python-required",
                "The package does not serve this Python ({0}).",
                "Another release of the package: loosen its version in pyproject.toml.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "uv-requires-python",
        "Because the requested Python version (>=3.9) does not satisfy Python>=3.10 and ... we can conclude",
        (
            r"requested Python version \(([^)]*)\) does not satisfy Python",
            r"`requires-python` value \(?([^)\n]*?)\)? includes Python versions that are not supported by your "
            r"dependencies",
        ),
        (
            Cause(
                "uv-requires-python",
                "The project's requires-python ({0}) admits Pythons that a package does not serve.",
                'requires-python = ">=3.12" (the base\'s Python) in pyproject.toml',
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "uv-index-order",
        "`torch` was found on https://download.pytorch.org/whl/cu128, but not at the requested version",
        (
            r"was found on \S+ but not at the requested version",
            r"was found on [^\n]{0,120}, but not at",
            r"not at the requested version[\s\S]{0,200}subsequent index",
            r"first[- ]index strategy|index-strategy unsafe-best-match",
        ),
        (
            Cause(
                "uv-index-order",
                "uv looks only at the first index that has a package of that name, and the version asked for is on another.",
                "explicit = true for that index and [tool.uv.sources] for what comes from it; or --index-strategy "
                "unsafe-best-match",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "not-in-index",
        "Because torchfoo was not found in the package registry and you require torchfoo",
        (
            r"Because (\S+) was not found in the (?:package registry|provided package locations|cache)",
            r"(\S+) (?:was|were) not found in the (?:package registry|provided package locations)",
        ),
        (
            Cause(
                "not-in-index",
                "The index that is asked does not hold {0} at all: its name is another, or another index has it.",
                "Its name on the index; a mirror or --index-url that lacks it; offline it must be in the cache.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "venv-broken",
        "error: Project virtual environment directory `.venv` cannot be used because it is not a valid Python "
        "environment",
        (
            r"cannot be used because it is not a (?:valid Python|compatible) environment",
            r"Broken virtual environment",
            r"Failed to (?:inspect|query) Python interpreter (?:from|at)",
        ),
        (
            Cause(
                "venv-broken",
                "The environment (.venv) in the project was made by another Python or on another machine.",
                "rm -r .venv; the image's own Python needs none.",
            ),
        ),
        look=VENV,
    ),
    Rule(
        "setuptools-too-new",
        "error in foo setup command: use_2to3 is invalid.",
        (
            r"use_2to3 is invalid",
            r"error in \S+ setup command: '?\w+'? must be",
            r"invalid command 'bdist_wheel'",
            r"cannot import name '(?:_imp|msvccompiler|run_2to3)\w*' from '(?:setuptools|distutils)",
        ),
        (
            Cause(
                "setuptools-too-new",
                "The package's setup.py is older than the setuptools here (or wants `wheel` beside it).",
                "A newer release of the package, or one with a wheel; else its build with 'setuptools<58' and wheel.",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "windows-compiler",
        "error: Microsoft Visual C++ 14.0 or greater is required.",
        (
            r"Microsoft Visual C\+\+ 14\.\d (?:or greater )?is required",
            r"Unable to find a compatible Visual Studio installation",
            r"Cannot find the file specified[^\n]{0,60}cl\.exe|\bcl(?:\.exe)?['\"]? (?:is not recognized|not "
            r"found|failed)",
        ),
        (
            Cause(
                "windows-compiler",
                "On Windows itself a C++ compiler is missing for this package.",
                "Use the project's container, in WSL 2: ./launch shell",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "openssl-python",
        "AttributeError: module 'lib' has no attribute 'X509_V_FLAG_CB_ISSUER_CHECK'",
        (r"module 'lib' has no attribute 'X509|X509_V_FLAG_|GEN_EMAIL'",),
        (
            Cause(
                "openssl-python",
                "pyOpenSSL and cryptography do not fit together.",
                "./launch add 'pyopenssl' in its newest release.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "wheel-does-not-fit",
        "ERROR: Could not find a version that satisfies the requirement torch==2.1.0",
        (
            r"is not a supported wheel on this platform",
            r"Could not find a version that satisfies the requirement",
            r"No matching distribution found",
            r"doesn't have a source distribution or wheel for the current platform",
            r"has no wheels? with a matching (?:Python|platform|abi)",
            r"has no usable wheels|No compatible (?:wheel|tags)",
            r"because there is no version of|there (?:is|are) no versions? of \S+",
            r"Unable to find installation candidates for",
            r"No candidate is found for",
            r"wheel\(s\) were skipped as your project's environment",
            r"no wheels (?:are )?available (?:for \S+ )?with a matching",
            r"only has wheels for the following",
            r"is unusable because no wheels",
            r"binary distribution is incompatible with the current platform",
            r"hint: Wheels are (?:available|required) for",
            r"ResolvePackageNotFound|PackagesNotFoundError",
        ),
        (
            Cause(
                "wheel-does-not-fit",
                "The index that was asked has no such package for this Python and this processor: under that name, "
                "in that version, or at all; or it was not reached.",
                "Look at the package's files for this Python version and processor, and at the index that is asked; "
                "loosen its version.",
            ),
        ),
        look=VERIFY,
        unless=r"Max retries exceeded|NewConnectionError|ConnectTimeout|ReadTimeout|Retrying \(Retry\(",
    ),
    Rule(
        "packages-contradict",
        "ERROR: ResolutionImpossible",
        (
            r"ResolutionImpossible",
            r"but you(?:'ll)? have \S+(?: \S+)? which is incompatible",
            r"Encountered problems while solving|nothing provides \S+",
            r"but none of the providers can be installed",
            r"Cannot install \S+ [^\n]{0,200}because these package versions have conflicting dependencies",
            r"No solution found when resolving",
            r"requirements are unsatisfiable",
            r"pip's dependency resolver does not currently take into account",
            r"LibMambaUnsatisfiableError|UnsatisfiableError",
            r"\bdepends on \S+ and [^\n]{0,80}we can conclude that",
            r"Could not solve for environment specs",
            r"conflicts? with any installable (?:versions|builds)",
            r"following (?:packages|specifications)[^\n]{0,40}(?:are|were found to be) incompatible",
            r"(?:is|are) not installable because",
            r"^[ │|]*[└├]─ .*which (?:does not exist|cannot be installed)\b",
            r"Found conflicts! Looking for incompatible packages",
            r"The conflict is caused by:\s+(?:The user request(?:ed)?|\S+ \S+ depends on)",
            r"^(?:\S+ )?Package \S+ conflicts for:",
        ),
        (
            Cause(
                "packages-contradict",
                "What is to be installed does not fit together, or not what the base brings: the lines around name the "
                "packages.",
                "Loosen the versions in pyproject.toml that those lines name.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "datasets-old",
        "ValueError: Invalid pattern: '**' can only be an entire path component",
        (
            r"Invalid pattern: '\*\*' can only be an entire path component",
            r"Loading a dataset cached in a LocalFileSystem is not supported",
        ),
        (
            Cause(
                "datasets-old",
                "This release of datasets is older than the fsspec beside it, and cannot read its own cache.",
                './launch add "datasets>=2.15"',
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "taken-away",
        "AttributeError: `Trainer.root_gpu` was deprecated in v1.6 and is no longer accessible as of v1.8.",
        (
            r"is\s+no\s+longer\s+accessible\s+as\s+of\s+(v?\d+(?:\.\d+)*)",
            r"(?:was|has been|were|have been) removed (?:in|since|from) (?:version |release )?(v?\d+(?:\.\d+)+)",
        ),
        (
            Cause(
                "taken-away",
                "What is called was taken away in a newer release of its package ({0}) than the program was written for.",
                "What that line names instead; or ./launch add that package in an older release.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "version-check",
        "huggingface-hub>=0.23.2,<1.0 is required for a normal functioning of this module, but found 1.1.2.",
        (
            r"(\S+) is required for a normal functioning of this module, but found",
            r"(?:MMCV|mmcv|mmdet|mmengine)==\S+ is used but incompatible",
            r"VersionConflict: \((\S+)",
            r"(\S+) is required for a normal functioning of this module",
            r"Using `[^`]+` requires `?([\w-]+)[^\n]{0,20}[`:]",
            r"(?:requires|needs) (?:the latest version of )?`?(?:(?:pip|uv) install (?:-U )?)?([\w-]+)`?>=[\d.]+"
            r"[^\n]{0,80}(?:but|found|installed|you have)",
            r"^\w*(?:Error|Exception): ([\w.-]+) ?(?:>=|==|~=) ?[\d.]+ (?:is|are) required",
            r"requires the latest version of `?([\w-]+)",
            r"install the latest version of `?(\w+)`?",
        ),
        (
            Cause(
                "version-check",
                "A package finds another ({0}) missing or in a version that it does not take.",
                "./launch add that one in the version that is named.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "cannot-uninstall",
        "error: uninstall-no-record-file: Cannot uninstall PyYAML 6.0.1",
        (
            r"uninstall-no-record-file",
            r"Cannot uninstall '?\"?([\w.-]+)'?\"?",
            r"It is a distutils installed project",
            r"uninstall-distutils-installed-package",
        ),
        (
            Cause(
                "cannot-uninstall",
                "pip is to replace a package that the system or the base installed another way ({0}).",
                "Leave it as it is: take its version out of what is asked for.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torch-names",
        "ModuleNotFoundError: No module named 'torchvision.transforms.functional_tensor'",
        (
            r"No module named '(torch(?:vision|audio)?\.(?!version'|_C')[\w.]+)'",
            r"cannot import name '\w+' from '(torch\._\w+|torch(?:vision|audio|text)\.[\w.]+)'",
        ),
        (
            Cause(
                "torch-names",
                "A package asks for {0}, which this release of torch or torchvision does not have (any more, or not yet).",
                "./launch add that package's release for this torch.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torch-attribute",
        "AttributeError: module 'torch' has no attribute 'compiler'",
        (r"(?<!initialized )module 'torch(?:vision|audio)?(?:\.[\w.]+)?' has no attribute '(\w+)'",),
        (
            Cause(
                "torch-attribute",
                "This release of torch, torchvision or torchaudio has no such part ({0}): it is older, or newer, "
                "than what asks for it, or files of two releases are mixed.",
                "./launch build; else that package's release for this torch; a notebook is restarted after an installation.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "package-other-release",
        "ImportError: cannot import name 'cached_download' from 'huggingface_hub'",
        (
            r"cannot import name '?\w+'? from '?((?:transformers|huggingface_hub|diffusers|accelerate|peft|"
            r"datasets|trl|tokenizers|timm|numpy|scipy|sklearn|pandas|pydantic|jinja2|flask|werkzeug|"
            r"typing_extensions|urllib3|requests|PIL|lightning|pytorch_lightning|torchmetrics|vllm|xformers|"
            r"bitsandbytes|flash_attn|triton|mmcv|mmdet|mmengine|detectron2|fsspec|packaging|importlib_metadata|"
            r"click|gradio|starlette|fastapi|langchain\w*|openai|deepspeed|apex|tensorflow|keras|jax|cv2|"
            r"albumentations)\b[\w.]*)'?",
            r"cannot import name '?\w+'? from '?([\w.]+)'? \(/\S*(?:site|dist)-packages/",
            r"module '?((?:transformers|huggingface_hub|diffusers|accelerate|peft|datasets|trl|tokenizers|timm|"
            r"scipy|pandas|pydantic|PIL(?:\.\w+)?|pytorch_lightning|torchmetrics|vllm|xformers|bitsandbytes|"
            r"triton|cv2|deepspeed|jax|tensorflow|tensorflow\.\w+|typing_extensions)(?:\.[\w.]+)?)'? has no attribute",
        ),
        (
            Cause(
                "package-other-release",
                "{0} is of another release than what asks for it expects.",
                "./launch add both in releases that name each other (what asks mostly stands in the last frame above); "
                "./launch pin keeps what works.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "other-python",
        "ModuleNotFoundError: No module named 'torch'",
        (
            r"No module named '?torch'?(?![\w.])",
            r"torchrun: (?:command )?not found",
        ),
        (
            Cause(
                "other-python",
                "This Python has no torch: it is another one than the image's, such as a .venv's, or that of a build "
                "which is kept apart.",
                "Take the .venv away, and choose the image's Python in VS Code; for a build: uv pip install "
                "--no-build-isolation",
            ),
        ),
        look=VENV,
    ),
    Rule(
        "jupyter-kernel",
        "jupyter_client.kernelspec.NoSuchKernel: No such kernel named python3",
        (
            r"NoSuchKernel|No such kernel named",
            r"No module named '?ipykernel",
            r"requires the ipykernel package",
            r"ipykernel (?:is )?not (?:installed|found)",
            r"dependencies not installed[^\n]{0,40}kernel|Raw session failed to start",
        ),
        (
            Cause(
                "jupyter-kernel",
                "The notebook asks for a Python that is not here, or that has no ipykernel.",
                "Choose the image's Python as the kernel; ./launch add ipykernel",
            ),
        ),
        look="./launch verify --only jupyter",
    ),
    Rule(
        "jupyter-old-page",
        "404 GET /api/kernels/ad8301fd/channels: Kernel does not exist: ad8301fd",
        (r"Kernel does not exist: [0-9a-f-]{8,}",),
        (
            Cause(
                "jupyter-old-page",
                "The page in the browser belongs to a Jupyter that has ended, and asks the new one for its kernel.",
                "Close that page, and open the address that the new one prints.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "jupyter-missing",
        "Jupyter command `jupyter-lab` not found.",
        (
            r"Jupyter command `?([\w-]+)`? not found",
            r"jupyter: '([\w-]+)' is not a Jupyter command",
        ),
        (
            Cause(
                "jupyter-missing",
                "Jupyter's part {0} is not installed in this Python.",
                "./launch add jupyterlab notebook",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "jupyter-xsrf",
        "403 POST /api/sessions: '_xsrf' argument missing from POST",
        (r"'_xsrf' argument missing from POST|XSRF cookie does not match",),
        (
            Cause(
                "jupyter-xsrf",
                "The page or program that asks Jupyter sends no cookie of it, or that of another Jupyter under the "
                "same address.",
                "Reload the page, or open it in a private window; another port for one of the two.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "jupyter-root",
        "Running as root is not recommended. Use --allow-root to bypass.",
        (r"Running as root is not recommended\. Use --allow-root",),
        (Cause("jupyter-root", "Jupyter does not start as root.", "Start it with ./launch, which is your own user."),),
        look=VERIFY,
    ),
    Rule(
        "jupyter-widgets",
        "IProgress not found. Please update jupyter and ipywidgets.",
        (r"IProgress not found\. Please update jupyter and ipywidgets",),
        (
            Cause(
                "jupyter-widgets",
                "Progress bars in a notebook need ipywidgets; all else works.",
                "./launch add ipywidgets",
            ),
        ),
        look=VERIFY,
    ),
    # about: The notebook's Python ended, or did not start.
    Rule(
        "kernel-died",
        "The kernel appears to have died. It will restart automatically.",
        (
            r"kernel (?:appears to have|has) died",
            r"DeadKernelError|Kernel died before replying|Kernel died unexpectedly",
            r"The Kernel crashed while executing code",
            r"KernelRestarter: restarting kernel",
            r"Failed to start the Kernel",
        ),
        (
            Cause(
                "kernel-died-1",
                "The machine's memory ran out.",
                "Run the same as a script, which says how it ended.",
                tell="sudo dmesg | grep -i 'out of memory'; free -h",
            ),
            Cause(
                "kernel-died-2",
                "A compiled library crashed.",
                "Run the same as a script, which says how it ended.",
                tell="the same as a script, with python -X faulthandler, names it",
            ),
            Cause(
                "kernel-died-3",
                "This Python lacks ipykernel or a package of it, or a file of the project hides one.",
                "Run the same as a script, which says how it ended.",
                tell="python -m ipykernel --version says so",
            ),
        ),
        look="sudo dmesg | grep -i 'out of memory'",
        level=BROAD,
    ),
    Rule(
        "base-would-change",
        "torch is 2.9.0 here and was 2.10.0a0 in the base",
        (r"([\w.-]+) is \S+ here and was \S+ in the base",),
        (
            Cause(
                "base-would-change",
                "A package asks for another {0} than the one that the base brings.",
                "Take it out of pyproject.toml or allow the base's version, then ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "protected",
        "error: externally-managed-environment",
        (r"externally-managed-environment", r"This environment is externally managed"),
        (
            Cause(
                "protected",
                "pip was called outside this project's image, or with settings of its own: the image allows installing.",
                "./launch add PACKAGE",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "conda",
        "CondaError: Run 'conda init' before 'conda activate'",
        (
            r"Run 'conda init' before 'conda activate'",
            r"has not been properly configured to use 'conda activate'",
            r"EnvironmentLocationNotFound|EnvironmentNameNotFound|Could not find conda environment",
            r"CondaToSNonInteractiveError|Terms of Service have not been accepted",
        ),
        (
            Cause(
                "conda",
                "conda is not set up here, or has no such environment; this project's image does without it.",
                "Use the image's own Python; packages by ./launch add",
            ),
        ),
        look=VENV,
    ),
    Rule(
        "no-venv",
        "The virtual environment was not created successfully because ensurepip is not available.",
        (
            r"ensurepip is not available",
            r"No module named '?venv'?",
        ),
        (
            Cause(
                "no-venv",
                "This Python cannot make environments, and in the image none is needed.",
                "Use the image's Python as it is; packages by ./launch add",
            ),
        ),
        look=VENV,
    ),
    Rule(
        "uv-lock-newer",
        "error: Failed to parse `uv.lock`",
        (
            r"Failed to parse `?uv\.lock",
            r"lock ?file (?:version|was (?:created|generated) (?:by|with))[^\n]{0,60}(?:newer|unsupported|"
            r"not supported|different)",
        ),
        (
            Cause(
                "uv-lock-newer",
                "The lock file (uv.lock) is not what this uv can read: written by another release of uv, edited by hand, "
                "or with the "
                "marks of an update in it.",
                "uv self update; where it stays so: rm uv.lock, then uv lock",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "uv-lock",
        "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.",
        (r"The lockfile at `uv\.lock` needs to be updated", r"Failed to parse lockfile|lockfile[^\n]{0,40}out of date"),
        (Cause("uv-lock", "pyproject.toml was changed, and the lock file not.", "uv lock, and commit both."),),
        look=BUILD,
    ),
    Rule(
        "uv-python",
        "error: No interpreter found for Python 3.13 in managed installations or search path",
        (r"No interpreter found for (Python [\d.=<>~^]+)",),
        (
            Cause(
                "uv-python",
                "The project asks for {0}, which is not in the container; the base's torch belongs to the base's Python.",
                "Set requires-python in pyproject.toml to the base's Python.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "uv-no-environment",
        "error: No virtual environment found; run `uv venv` to create an environment, or pass `--system`",
        (r"No virtual environment found; run `uv venv`",),
        (
            Cause(
                "uv-no-environment",
                "uv installs only into an environment unless told to use the Python that is there.",
                "./launch add PACKAGE; in a Dockerfile: uv pip install --system",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "hash-differs",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        (
            r"THESE PACKAGES DO NOT MATCH THE HASHES",
            r"Hash mismatch for `?(\S+)`?",
            r"Hash for (\S+) [^\n]{0,120}not found in known hashes",
        ),
        (
            Cause(
                "hash-differs",
                "What was downloaded is not the file that was expected: it broke off, or the index has another one.",
                "Once more without the cache: ./launch build --no-cache",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "cpu-too-old",
        "Illegal instruction (core dumped)",
        (
            r"Illegal instruction(?: *\(core dumped\)| *$|\s+\S*python)|signal: Illegal instruction",
            r"\(SIGILL\)|exitcode ?: ?-4\b",
            r"built for CPUs supporting at least the AVX",
        ),
        (
            Cause(
                "cpu-too-old",
                "A compiled file uses instructions that this processor does not have.",
                "Take the package's ordinary build; on a virtual machine give it the host's CPU type.",
            ),
        ),
        look=VERIFY,
    ),
    # about: The program could not open a window.
    Rule(
        "no-display",
        'qt.qpa.plugin: Could not load the Qt platform plugin "xcb"',
        (
            r"(?:cannot|can't|could not|couldn't|unable to|failed to) (?:connect to|open) (?:the )?"
            r"(?:X server|X? ?display)",
            r"no display name and no \$DISPLAY",
            r"qt\.qpa\.(?:xcb|plugin)",
            r"Could not load the Qt platform plugin",
            r"Rebuild the library with Windows, GTK",
            r"Cannot load backend '\w+' which requires the '\w+' interactive framework",
            r"X11: Failed to open display|GLFWError|Failed to initialize GLFW|NoSuchDisplayException",
            r"No protocol specified",
        ),
        (
            Cause(
                "no-display-1",
                "The container has no display.",
                "matplotlib with MPLBACKEND=Agg, opencv-python-headless, or files under outputs/.",
                tell="echo $DISPLAY is empty",
            ),
            Cause(
                "no-display-2",
                "There is one, and it refuses or is not mounted.",
                "matplotlib with MPLBACKEND=Agg, opencv-python-headless, or files under outputs/.",
                tell="$DISPLAY is set: xhost +local: on the machine, and /tmp/.X11-unix",
            ),
            Cause(
                "no-display-3",
                "The libraries for windows are missing or two packages' (opencv's and PyQt's) are mixed.",
                "matplotlib with MPLBACKEND=Agg, opencv-python-headless, or files under outputs/.",
                tell="QT_DEBUG_PLUGINS=1 names a file",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "python-library",
        "error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
        (r"(libpython3\.\d+m?\.so[.\d]*)[^\n]{0,10}: cannot open shared object file",),
        (
            Cause(
                "python-library",
                "The Python that is started does not find its own library {0}: it lies in a folder that this user may "
                "not read (such as root's), was moved, or is another Python's.",
                "The image's own Python; else a Python installed where all may read it (UV_PYTHON_INSTALL_DIR=/opt/python).",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "system-library",
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        (
            r"(lib(?:GL|EGL|GLU|sndfile|OpenGL|X11|Xi)\.so\.\d|lib(?:gthread|glib)-2\.0\.so\.0|"
            r"lib(?:SM|ICE|Xext|Xrender)\.so\.\d|lib(?:ibverbs|rdmacm|numa|mpi|openblas|gomp|tcmalloc|jpeg|png16|"
            r"tiff|"
            r"avcodec|avutil|ffi|ssl|crypto|xcb[\w-]*)\.so[\w.]*)[^\n]{0,10}: "
            r"cannot open shared object file",
            r"OSError: (sndfile) library not found",
        ),
        (
            Cause(
                "system-library",
                "A program or package needs the library {0}, which the system does not find: mostly it is not in the image.",
                "Name its Debian package in apt.txt (libgl1, libglib2.0-0t64, libsndfile1, ...), then ./launch build",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "ffmpeg",
        "RuntimeError: Could not load libtorchcodec. Likely causes: FFmpeg is not properly installed",
        (
            r"Could not load libtorchcodec",
            r"ffmpeg: (?:command )?not found|No such file or directory: 'ff(?:mpeg|probe)'",
            r"Couldn't find appropriate backend to handle uri",
            r"No audio backend is available",
        ),
        (
            Cause(
                "ffmpeg",
                "Sound and video are read by ffmpeg, libsndfile or torchcodec, which the image has not, or not in a "
                "version that fits torch and each other.",
                "ffmpeg and libsndfile1 in apt.txt, then ./launch build",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "no-flash-attention",
        "FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn seems to be not installed.",
        (
            r"flash_attn seems to be not installed",
            r"FlashAttention\d? has been toggled on, but it cannot be used(?=[^\n]{0,60}(?:package|flash_attn))",
            r"No module named 'flash_attn'?",
            r"[Ff]lash[- _][Aa]ttention (?:\d )?is not installed|flash-attn[^\n]{0,20}(?:not installed|not found)",
        ),
        (
            Cause(
                "no-flash-attention",
                "The program wants the package flash-attn, which is not here, or is too old.",
                'attn_implementation="sdpa", which is PyTorch\'s own and mostly as fast; else its wheel for this torch.',
            ),
        ),
        look=VERIFY,
    ),
    # about: {0} is not whole at the moment when Python asks it for that.
    Rule(
        "shadowed",
        "partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular import)",
        (
            r"partially initialized module '([\w.]+)'[^\n]{0,80}most likely due to a circular import",
            r"cannot import name '[^']+' from '([\w.]+)' \(unknown location\)",
        ),
        (
            Cause(
                "shadowed-1",
                "A file or folder of that name in the project hides the package.",
                "Look in the traceback in which file it lies.",
                tell="the traceback, or python -c 'import NAME; print(NAME.__file__)', names the project: rename it",
            ),
            Cause(
                "shadowed-2",
                "Its installation broke off, or two releases are mixed.",
                "Look in the traceback in which file it lies.",
                tell="the file lies in site-packages: ./launch build, or pip install --force-reinstall",
            ),
            Cause(
                "shadowed-3",
                "Two modules import each other.",
                "Look in the traceback in which file it lies.",
                tell="both are the program's own",
            ),
        ),
        look=VENV,
        level=BROAD,
    ),
    Rule(
        "locale",
        "UnicodeEncodeError: 'ascii' codec can't encode character",
        (
            r"'ascii' codec can't (?:en|de)code",
            r"configured to use ASCII as encoding",
            r"unsupported locale setting|cannot change locale",
        ),
        (
            Cause(
                "locale",
                "The container has no language setting, so that only plain letters can be written.",
                "LANG=C.UTF-8 in containerEnv of devcontainer.json.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-such-user",
        "KeyError: 'getpwuid(): uid not found: 1000'",
        (
            r"getpwuid\(\): uid not found",
            r"I have no name!",
            r"cannot find name for user ID",
            r"No user exists for uid|You don't exist, go away|unknown uid",
        ),
        (
            Cause(
                "no-such-user",
                "The container runs as a user that it does not know, so torch.compile and others find no home and no name.",
                "Start with ./launch or VS Code, which give the image your user.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "triton-module",
        "ModuleNotFoundError: No module named 'triton'",
        (r"No module named '?triton'?(?![\w.])",),
        (
            Cause(
                "triton-module",
                "Triton is not in this Python, with which torch.compile and some packages make kernels: this torch is "
                "not the base's, or it runs on Windows.",
                "./launch build; on Windows: the project's container.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: The compiled part of a package does not load.
    Rule(
        "kernels-not-loaded",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        (
            r"Could not load any \w+ library",
            r"(?:Failed|Unable) to (?:load|import) (?:the )?(?:custom |CUDA |C\+\+ |native )+(?:ops|kernels?|"
            r"extensions?)",
            r"(?:ops|kernels?|extensions?) (?:could not|cannot|can't) be (?:loaded|imported)",
            r"Could not run '(?!aten|prims?|quantized|xla|c10d|sparse|mkldnn)\w+::\w+' with arguments from the '\w+'",
        ),
        (
            Cause(
                "kernels-not-loaded-1",
                "It was built for another torch, CUDA, Python or card.",
                "Its release for this torch and CUDA.",
                tell="`./launch verify` names those that are here; its release for them",
            ),
            Cause(
                "kernels-not-loaded-2",
                "It was installed without being compiled.",
                "Its release for this torch and CUDA.",
                tell="its folder in site-packages has no .so",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "deepspeed-op",
        "Unable to JIT load the fused_adam op due to it not being compatible due to hardware/software issue.",
        (
            r"Unable to JIT load the (\S+) op",
            r"(\w+) cuda is missing or is incompatible with installed torch",
            r"Unable to pre-compile (\w+)",
        ),
        (
            Cause(
                "deepspeed-op",
                "DeepSpeed compiles its part {0} on this machine, and finds no compiler, library or GPU for it.",
                "ds_report says what is missing; the base with a compiler: copier update --trust --data base=cuda",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "windows-library",
        "ImportError: DLL load failed while importing _C: The specified module could not be found.",
        (
            r"DLL load failed while importing (\S+?):",
            r"OSError: \[WinError (?:126|127|193|1114)\]",
        ),
        (
            Cause(
                "windows-library",
                "On Windows itself a library that this package needs is missing or does not fit.",
                "Use the project's container, in WSL 2: ./launch shell",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: Python finds no {0}, and finds something under the first part of that name.
    Rule(
        "part-missing",
        "ModuleNotFoundError: No module named 'transformers.deepspeed'",
        (r"No module named '(\w+\.[\w.]+)'",),
        (
            Cause(
                "part-missing-1",
                "The package is of another release than what asks for it.",
                "python -c 'import NAME; print(NAME.__file__)' with the first part of the name",
                tell="the file lies in site-packages: releases of both that name each other",
            ),
            Cause(
                "part-missing-2",
                "It is a folder of the program itself: started from elsewhere, or another of that name hides it.",
                "python -c 'import NAME; print(NAME.__file__)' with the first part of the name",
                tell="the file lies elsewhere than the program: PYTHONPATH",
            ),
            Cause(
                "part-missing-3",
                "That part is compiled or comes as a package of its own.",
                "python -c 'import NAME; print(NAME.__file__)' with the first part of the name",
                tell="its page names an extra",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "extra-needed",
        "ImportError: LlamaTokenizer requires the SentencePiece library but it was not found in your environment.",
        (
            r"requires the (\S+) library but it was not found",
            r"requires the following packages that were not found in your environment: ([\w-]+)",
            r"(?:logging|backend) requires (\w+)",
            r"[Pp]lease (?:install|run) [`'\"]?(?:pip install )?([\w-]{3,})[`'\"]",
            r"requires (Accelerate|bitsandbytes|accelerate)\b",
        ),
        (
            Cause(
                "extra-needed",
                "A part of a package needs another one ({0}), which is not installed in this Python, or cannot be imported.",
                "./launch add with that one.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "undefined-symbol",
        "ImportError: _ext.so: undefined symbol: _Z8nms_cuda",
        (r"undefined symbol:? (\w+)",),
        (
            Cause(
                "undefined-symbol",
                "A compiled file lacks {0}: it was built without a part of itself (often the CUDA part), or for other "
                "libraries.",
                "Rebuild the package in this image, or take its release for this torch and this CUDA.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: C++ or CUDA code did not compile here ({0}); the first line with `error:` above says why.
    Rule(
        "extension-fails",
        "RuntimeError: Error building extension 'fused'",
        (
            r"Error building extension '(\w+)'",
            r"Error compiling objects for extension",
            r"error: command '[^']*(nvcc|gcc|g\+\+|ninja|cmake)' failed with exit (?:code|status)",
            r"error: command '[^']+' failed with exit (?:code|status)",
            r"collect2: error: ld returned 1 exit status",
            r"subprocess\.CalledProcessError: Command '\['(ninja|cmake|/usr/bin/gcc)'",
            r"ninja: build stopped: subcommand failed",
            r"(cmake)\b[^\n]{0,60}returned non-zero exit status",
        ),
        (
            Cause(
                "extension-fails-1",
                "The compiler, CUDA's or Python's headers are missing.",
                "Give that line to `./launch explain -`; a built wheel of the package does without compiling.",
                tell="that line says not found or No such file",
            ),
            Cause(
                "extension-fails-2",
                "The source is older or newer than this torch, CUDA or compiler.",
                "Give that line to `./launch explain -`; a built wheel of the package does without compiling.",
                tell="that line names an identifier or a version",
            ),
            Cause(
                "extension-fails-3",
                "Memory ran out.",
                "Give that line to `./launch explain -`; a built wheel of the package does without compiling.",
                tell="Killed stands above: MAX_JOBS=2",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: The package {0} has no built wheel for this Python, and building it here failed: the lines above say why.
    Rule(
        "wheel-not-built",
        "ERROR: Failed building wheel for flash-attn",
        (
            r"Failed building wheel for (\S+)",
            r"Could not build wheels for (\S+?),?\s",
            r"Failed to build `?([\w.-]+)",
            r"Failed to build installable wheels for some pyproject\.toml based projects \(([^)]*)\)",
            r"metadata-generation-failed",
            r"failed with error code 1 in /\S*pip-",
            r"error: legacy-install-failure|error: metadata-generation-failed",
            r"Command errored out with exit status \d+:",
            r"error: command '?\S*(?:nvcc|gcc|g\+\+|cmake|ninja|cc1plus)'? failed",
            r"Failed to build the wheel|Unable to build wheel",
            r"Encountered error while (?:trying to install package|generating package metadata)",
            r"subprocess-exited-with-error",
            r"The build backend returned an error",
            r"Build backend failed|Failed to prepare distributions|Failed to fetch wheel: ([\w.-]+)|"
            r"Failed to download and build",
            r"Call to `\S+build_wheel` failed",
            r"python setup\.py \w+ did not run successfully",
            r"Command \"python setup\.py \w+\" failed",
            r"Getting requirements to build wheel did not run successfully",
            r"Building wheel for (\S+) \([^)]*\) \.\.\. error",
            r"Preparing metadata \([^)]*\) did not run successfully",
        ),
        (
            Cause(
                "wheel-not-built-1",
                "A compiler or a header is missing.",
                "A release that has a wheel for this Python; else give the lines above to `./launch explain -`.",
                tell="the lines above say not found or No such file",
            ),
            Cause(
                "wheel-not-built-2",
                "The package is too old for this Python, or asks for another torch or CUDA than is here.",
                "A release that has a wheel for this Python; else give the lines above to `./launch explain -`.",
                tell="the lines above name a part of Python that is gone, or say requires: a release that fits",
            ),
            Cause(
                "wheel-not-built-3",
                "It wants torch or another package while it is built.",
                "A release that has a wheel for this Python; else give the lines above to `./launch explain -`.",
                tell="No module named stands above: --no-build-isolation",
            ),
            Cause(
                "wheel-not-built-4",
                "It wants a GPU, which a build does not have.",
                "A release that has a wheel for this Python; else give the lines above to `./launch explain -`.",
                tell="the lines above speak of devices, architectures or kernels: TORCH_CUDA_ARCH_LIST, or the package's "
                "own variable",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "no-module",
        "ModuleNotFoundError: No module named 'einops'",
        (r"(?:^|[^\w])No module named '?([\w-]+)(?![\w.-])",),
        (
            Cause(
                "no-module",
                "The package {0} is not in this Python; where it is a folder of the program itself, it was started from "
                "elsewhere.",
                "./launch add with the package that brings it; where it is there already, another Python was started.",
            ),
        ),
        look=VENV,
        level=GENERAL,
    ),
    # about: What is called is not there in the form that the call expects.
    Rule(
        "other-version",
        "ImportError: cannot import name 'evaluate' from 'tools'",
        (
            r"cannot import name '?[^'\s]+'?(?: from '?([\w.]+)'?)?",
            r"(\w+)\(\) got an unexpected keyword argument",
            r"got an unexpected keyword argument",
            r"module '([\w.]+)' has no attribute",
            r"(?:site|dist)-packages/[\s\S]{0,600}?(\w+)\(\) (?:takes \d+ positional arguments? but|"
            r"missing \d+ required positional argument)",
        ),
        (
            Cause(
                "other-version-1",
                "Two packages do not fit together.",
                "pip show with the package, against what its caller asks for; ./launch pin keeps what works.",
                tell="the last frame lies in site-packages: releases of both that name each other",
            ),
            Cause(
                "other-version-2",
                "The program's own call is for another release, or wrong.",
                "pip show with the package, against what its caller asks for; ./launch pin keeps what works.",
                tell="the last frame lies in your own file; its documentation for the version that is here",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "library-missing",
        "libfoo.so.3: cannot open shared object file: No such file or directory",
        (r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",),
        (
            Cause(
                "library-missing",
                "The library {0} is not in the image, or not where it is looked for.",
                "Its Debian package in apt.txt, or the Python package that brings it; then ./launch build",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "header-missing",
        "fatal error: libpq-fe.h: No such file or directory",
        (
            r"fatal error: '?([\w./+-]+\.h(?:pp)?)'?(?: file not found|: No such file)",
            r"ld: cannot find -l([\w.+-]+)",
            r"(?:static library|shared library|Dependency|Run-time dependency) \W?([\w.+-]+)\W? (?:not found|"
            r"found: NO)",
        ),
        (
            Cause(
                "header-missing",
                "Something is compiled here, and the file {0} for it is missing.",
                "The Debian package that brings it, mostly named ...-dev, in apt.txt; then ./launch build",
            ),
        ),
        look=BUILD,
        level=GENERAL,
    ),
    Rule(
        "no-command",
        "bash: htop: command not found",
        (r"(?:sh|bash)(?:: line \d+)?: (?:\d+: )?([\w.-]+): (?:command )?not found", r"^([\w.-]+): command not found"),
        (Cause("no-command", "The image has no command {0}.", "Its Debian package in apt.txt, then ./launch build"),),
        look=BUILD,
        level=GENERAL,
    ),
    Rule(
        "uv-copies",
        "warning: Failed to hardlink files; falling back to full copy.",
        (r"Failed to (?:hardlink|clone|reflink) files; falling back to full copy",),
        (
            Cause(
                "uv-copies",
                "A warning and no error: uv's cache lies on another drive than where it installs.",
                "UV_LINK_MODE=copy silences it.",
            ),
        ),
        look=BUILD,
        level=NOTE,
    ),
    Rule(
        "pip-cache",
        "WARNING: The directory '/home/dev/.cache/pip' or its parent directory is not owned or is not writable",
        (r"or its parent directory is not owned or is not writable",),
        (
            Cause(
                "pip-cache",
                "A warning and no error: pip does without its cache, whose folder belongs to somebody else.",
                'sudo chown -R "$USER" on that folder of the machine.',
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
    Rule(
        "torchvision-images",
        "UserWarning: Failed to load image Python extension",
        (r"Failed to load image Python extension",),
        (
            Cause(
                "torchvision-images",
                "torchvision's own reader of images does not load: libjpeg or libpng is missing, or it was made for another "
                "torch.",
                "Take its version out of pyproject.toml, then ./launch build; other readers (Pillow) are not touched.",
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
)
