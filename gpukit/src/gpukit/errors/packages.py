"""Python packages: what is incompatible, what is missing, and what does not compile."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import CPU_BUILD, HOST_MEMORY, LIBRARIES_MIXED
from gpukit.errors.engine import PROXY
from gpukit.errors.evidence import (
    ARM64,
    CONTAINER,
    CPU_TORCH,
    JETSON,
    NO_CARD,
    WINDOWS,
    capability_below,
    only,
    python_from,
    text_has,
    text_must_have,
    torch_below,
    unless_text_has,
)
from gpukit.errors.rule import BROAD, BUILD, GENERAL, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

VENV = "`./launch doctor --only venv`"
JUPYTER = "`./launch verify --only jupyter`"
WITH_COMPILER = "In a project, choose the base that has one: `./launch update --answers base=cuda release=current`."
REBUILD = "`pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps PACKAGE`"
ISOLATED = r"(?:Getting requirements to build wheel|pip-build-env|build isolation|egg_info|build_wheel|setup\.py)"
NOTEBOOK = text_has(r"ipykernel|<ipython-input|\bCell In ?\[|/content/|\bColab\b|\.ipynb")
CONDA = text_has(
    r"\bconda\b|(?:ana|mini)conda\d?/|miniforge|mambaforge|/envs/|LibMamba|nothing provides|UnsatisfiableError"
)


def apt(names: str) -> str:
    return f"Install it: `sudo apt-get install {names}`. In a project, add {names} to apt.txt and rebuild the image."


# Causes of several rules

# On a command line: pip and uv also name the option, in backticks, where they suggest it.
NOT_ISOLATED = r"^[^\n`]*\b(?:pip3?|uv|install|sync|wheel)\b[^\n`]*--no-build-isolation|no-build-isolation-package *="
NEEDS_TORCH = Cause(
    "build-isolation",
    "The package imports torch (or another package) while it is built, and pip builds it in an isolated environment "
    "that does not have it.",
    "Install torch first, then build the package without isolation: `pip install --no-build-isolation PACKAGE` (in a "
    'project of uv: `no-build-isolation-package = ["PACKAGE"]` under `[tool.uv]`). If it offers a prebuilt wheel for '
    "this torch, install that instead.",
    tell="it fails while pip or uv installs a package, and `--no-build-isolation` was not used",
    given=unless_text_has(NOT_ISOLATED),
)
NO_COMPILER = Cause(
    "no-compiler",
    "No C or C++ compiler is installed, or the C library's header files are missing.",
    apt("build-essential"),
    tell="`c++ --version` fails in the environment that runs the program",
    given=~WINDOWS,
)
WINDOWS_COMPILER = Cause(
    "windows-compiler",
    "The package must be compiled, and no C++ compiler is installed in Windows.",
    "Install a release that has a wheel for Windows and this Python. Otherwise install the Build Tools for Visual "
    "Studio with `Desktop development with C++`, or use WSL 2.",
    tell="it runs in Windows, not in WSL",
    given=WINDOWS,
)
NO_NVCC = Cause(
    "no-nvcc",
    "The package compiles CUDA code, and the CUDA compiler `nvcc` is not installed. PyTorch's wheels and CUDA's "
    "runtime images do not include it.",
    "Install a prebuilt wheel of the package for this torch and CUDA if there is one. Otherwise install the CUDA "
    "Toolkit "
    f"of the version that `python -c 'import torch; print(torch.version.cuda)'` prints. {WITH_COMPILER}",
    tell="`ls /usr/local/cuda*/bin/nvcc` finds nothing",
    standalone="Install a prebuilt wheel of the package for this torch and CUDA if there is one. Otherwise "
    "install the CUDA Toolkit of the version that `python -c 'import torch; "
    "print(torch.version.cuda)'` prints.",
)
TOO_OLD_FOR_PYTHON = Cause(
    "python-too-new",
    "The package is older than this Python and uses a part of the standard library that was removed.",
    "Install a newer release of the package: `pip install -U PACKAGE`. If there is none, use an older Python: `uv "
    "venv --python 3.11`.",
    tell="the missing name is Python's own, such as distutils, imp, or pkgutil.ImpImporter",
)
TOO_OLD_FOR_TORCH = Cause(
    "source-too-old",
    "The package's source code does not compile with this PyTorch: it was written for an older release.",
    "Install a newer release of the package. If there is none, install the torch release that its documentation names.",
    tell="the first line with `error:` names something of torch, at, or c10",
)
BUILD_MEMORY = Cause(
    "compiler-out-of-memory",
    "The compiler was killed because the machine's memory ran out.",
    "Compile with fewer processes: set `MAX_JOBS=2`, then install again.",
    tell="`Killed` appears in the output above",
    given=text_has(r"\bKilled\b|signal 9\b|virtual memory exhausted|cannot allocate memory"),
)
OTHER_TORCH = Cause(
    "built-for-other-torch",
    "A compiled package was built for another torch: another release, or a build for another CUDA version or C++ ABI.",
    "Install the package's wheel for this torch, CUDA, Python, and ABI (wheels of flash-attn name all four: `python -c "
    "'import torch; print(torch.__version__, torch.version.cuda, torch.compiled_with_cxx11_abi())'`), or build it "
    f"again: {REBUILD}. Or install the torch that it was built for.",
    tell="its documentation names another torch than `python -c 'import torch; print(torch.__version__)'` prints",
    given=unless_text_has(r"torch_extensions/"),
)
STALE_EXTENSION = Cause(
    "stale-extension",
    "torch's cache holds an extension that was compiled for another torch, CUDA, or Python, or not completely.",
    "Delete the cache: `rm -r ~/.cache/torch_extensions`. The next start compiles the extension again.",
    tell="the path in the message has torch_extensions in it",
    given=text_must_have(r"torch_extensions/"),
)
NOT_COMPILED = Cause(
    "not-compiled",
    "The package was installed without its compiled part.",
    f"Build it again where the CUDA compiler is installed, and read the output: {REBUILD}.",
    tell="its folder in site-packages has no .so file",
)
SHADOWED = Cause(
    "shadowed",
    "A file or folder in the working directory or on PYTHONPATH has the same name as the package and hides it.",
    "Rename it. `python -c 'import NAME; print(NAME.__path__, NAME.__file__)'` shows where it is.",
    tell="the traceback names a path outside site-packages, or the import works from another folder",
)
MIXED_INSTALL = Cause(
    "mixed-install",
    "The package's installation is incomplete, or contains files of two releases.",
    "Install it again: `pip uninstall -y PACKAGE` until pip finds none, then `pip install --no-cache-dir PACKAGE`.",
    tell="the traceback stays in site-packages, or `pip list` and `conda list` both have the package",
)
NOT_RESTARTED = Cause(
    "notebook-not-restarted",
    "The package was installed or upgraded while the notebook had another release loaded.",
    "Restart the kernel (in Colab: Runtime, Restart session), then run the imports again.",
    tell="the package was installed in the same session",
    given=NOTEBOOK & text_has(r"pip3? install|Successfully installed|uv add|restart"),
)
OTHER_PYTHON = Cause(
    "other-python",
    "The program runs in another Python environment than the one in which the package is installed.",
    "Activate the environment that has the package, or select it as the notebook's kernel (`%pip install PACKAGE` "
    "installs for the kernel). `python -c 'import sys; print(sys.executable)'` shows which Python runs.",
    tell="`pip list` has the package, and `python -m pip list` does not",
)
UV_RUN = Cause(
    "uv-run-outside",
    "`uv run` used a Python without the package: it takes any that it finds if no environment is active, and installs "
    "nothing if pyproject.toml has `managed = false`.",
    "In a project, run `./launch run -- COMMAND`, or without Docker `./launch --native run -- COMMAND`. Elsewhere, add "
    "the package: `uv add PACKAGE`.",
    tell="`uv run python -c 'import sys; print(sys.prefix)'` prints another environment than the one with the package",
    standalone="Activate the environment that has the package and run the command again, or add the package: `uv add "
    "PACKAGE`.",
    given=text_must_have(r"^[^\n]{0,80}\buv run\b", r"Failed to spawn"),
)
NOT_INSTALLED = Cause(
    "not-installed",
    "A Python package is not installed in this environment ({0}).",
    "Install the package that provides the module: `pip install PACKAGE`. Its name can differ from the module's, such "
    "as opencv-python for cv2.",
    tell="`python -m pip list` does not have it",
)
REQUIREMENTS_CONFLICT = Cause(
    "packages-contradict",
    "The requested packages require versions of a common dependency that exclude each other.",
    "Relax or remove the version that the message names, or choose releases of both packages that accept the same "
    "version. To install one of them regardless: `pip install --no-deps PACKAGE==VERSION` (uv: `override-dependencies` "
    "under `[tool.uv]`).",
    tell="the message names a package with two version ranges",
)
INDEX = Cause(
    "wrong-index",
    "The package index in use does not have the package or this version of it.",
    "Check the name and version. With `--index-url`, only that index is searched: use `--extra-index-url` for a "
    "second one. With uv, give the index `explicit = true` and assign packages to it in `[tool.uv.sources]`.",
    tell="the message has `from versions: none`, or an --index-url was given",
    given=text_has(r"from versions: none\)", r"--index-url|--default-index|package registry|download\.pytorch\.org"),
)
OFFLINE = Cause(
    "offline",
    "The index could not be reached, so only the local cache was searched.",
    "Check the network and the proxy settings (`HTTPS_PROXY`), then try again without `--offline`.",
    tell="the text mentions the cache, offline mode, or failed connections",
    given=text_must_have(r"not found in the cache|--offline|network (?:was|is) disabled|UV_OFFLINE"),
)
OTHER_RELEASE = Cause(
    "other-release",
    "The installed release of {0} does not have what the code asks for: it is newer or older than the code expects.",
    "Upgrade the package that the last lines of the traceback belong to: `pip install -U PACKAGE`. If it is up to "
    "date or your own code, install the release of the imported package that its documentation names.",
    tell="the traceback's last frames lie in site-packages",
)
OLD_BITSANDBYTES = Cause(
    "bitsandbytes",
    "This release of bitsandbytes has no build for this CUDA version or does not find CUDA's libraries.",
    "Install the newest release: `pip install -U bitsandbytes`. If it still fails, `python -m bitsandbytes` prints "
    "which file it looked for.",
    tell="torch finds the GPU: `python -c 'import torch; print(torch.cuda.is_available())'` prints True",
    given=~CPU_TORCH,
)
DEBIAN_DISTUTILS = Cause(
    "debian-distutils",
    "Debian and Ubuntu ship distutils apart from Python before version 3.12, and it is not installed.",
    apt("python3-distutils"),
    tell="`python --version` prints 3.11 or older",
    given=~python_from("3.12"),
)

WRONG_TOOLKIT = Cause(
    "wrong-toolkit-found",
    "Several CUDA Toolkits are installed, and the build finds another one than the intended one, such as that of "
    "Ubuntu's package nvidia-cuda-toolkit (/usr/bin/nvcc).",
    "Name the right one: `export CUDA_HOME=/usr/local/cuda-12.8 PATH=/usr/local/cuda-12.8/bin:$PATH`, then build "
    "again.",
    tell="`ls -d /usr/local/cuda-*` lists the right version, and `which nvcc` prints another path",
)
ISOLATED_TORCH = Cause(
    "isolated-other-torch",
    "pip builds the package in an isolated environment, into which it downloaded another torch than the installed one.",
    "Build it with the installed torch: `pip install --no-build-isolation PACKAGE`.",
    tell="the version in the message is not what `python -c 'import torch; print(torch.version.cuda)'` prints",
    given=text_has(r"pip-build-env|/overlay/|builds-v0|Getting requirements to build") & unless_text_has(NOT_ISOLATED),
)
HEADER_ELSEWHERE = Cause(
    "header-not-searched",
    "The library's files are installed in a folder that the compiler does not search, such as a conda environment.",
    "Add the folders: `export CPATH=$CONDA_PREFIX/include LIBRARY_PATH=$CONDA_PREFIX/lib`, then build again.",
    tell="`find / -name 'FILE*' 2>/dev/null` finds the file",
)
SUBMODULES = Cause(
    "submodules",
    "Parts of the source code are missing. Most projects include them as git submodules, which a plain "
    "`git clone` or a downloaded archive does not contain.",
    "Run `git submodule update --init --recursive` in the repository, then build again.",
    tell="`git submodule status` lists lines that begin with `-`",
)
OLD_LIBRARY = Cause(
    "old-library",
    "The program was built for an older system: {0} is a version that this system no longer has.",
    "Install a newer release of the program, or use an image of the system that it was built for.",
    tell="the system has the library with a higher number",
)

RULES = (
    Rule(
        "uv-unreachable",
        "hint: An index (https://index.example/whl/cpu) returned a 502 error.",
        (
            r"(?:Failed to fetch(?:: `?| `)|error sending request for url \(|"
            r"An index \((?=\S+\) returned a (?:403|407|5\d\d)))(https?://[^/`)\s]+)",
            r"\bdns error",
        ),
        (
            Cause(
                "uv-unreachable",
                "uv cannot reach the package index ({0}).",
                "Check the network, and set `HTTPS_PROXY` where a proxy is needed. To use a mirror of PyTorch's "
                "index: `UV_INDEX=pytorch=URL`.",
            ),
            PROXY,
            Cause(
                "index-wrong",
                "The index or file at {0} does not exist.",
                "Check the address. For PyTorch, name another index with `UV_INDEX=pytorch=URL`.",
                tell="the text has 404",
                given=text_has(r"\b404\b"),
            ),
        ),
        more=BUILD,
        kind="uv",
    ),
    Rule(
        "build-needs",
        "pip install flash-attn --no-build-isolation ... No module named 'wheel'",
        (
            r"--?no-build-isolation[\s\S]{0,3000}No module named ['\"]?(wheel|packaging|psutil|setuptools|numpy|"
            r"ninja|cmake|hatchling|scikit_build_core|pybind11|Cython)\b",
            r"Cannot import '(setuptools)\.build_meta'",
        ),
        (
            Cause(
                "build-needs",
                "Without build isolation, a package is built with what is installed, and its build needs {0}, which "
                "is missing.",
                "Install the build tools, then run the installation again: `pip install wheel setuptools packaging "
                "ninja`.",
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "build-isolation",
        "Getting requirements to build wheel did not run successfully ... No module named 'torch'",
        (
            ISOLATED + r"[\s\S]{0,3000}No module named ['\"]?(torch|packaging|wheel|psutil|numpy)\b",
            r"No module named '?(torch|packaging|wheel|psutil)'?[\s\S]{0,1500}"
            r"(?:when getting requirements|subprocess-exited-with-error|metadata-generation-failed|"
            r"Failed to build|egg_info|build isolation)",
            r"doesn't declare it as a build dependency",
            r"(?:build backend returned an error|Failed to build `)[\s\S]{0,3000}No module named ['\"]?(torch|"
            r"packaging|wheel|psutil|numpy)\b",
        ),
        (
            NEEDS_TORCH,
            Cause(
                "build-without-torch",
                "The package is built without isolation, and {0} is not installed in this environment.",
                "Install it first, in a separate command: `pip install torch` (or `pip install wheel setuptools "
                "packaging`), then the package.",
                tell="`--no-build-isolation` was used",
                given=text_has(NOT_ISOLATED),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "no-python-headers",
        "fatal error: Python.h: No such file or directory",
        (r"Python\.h: No such file|'Python\.h' file not found",),
        (
            Cause(
                "no-python-headers",
                "Python's header files are not installed, and compiling an extension, Triton, or torch.compile needs "
                "them.",
                apt("python3-dev") + " For another Python version, its own package, such as python3.11-dev; uv's and "
                "conda's Pythons include the headers.",
            ),
        ),
        certain=True,
        more=VERIFY,
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
            r"No working C\+\+ compiler found",
            r"InvalidCxxCompiler",
            r"No CMAKE_C(?:XX)?_COMPILER could be found",
            r"linker [`']cc[`'] not found",
            r"command '[\w-]*gcc' failed: None",
            r"fatal error: '?(?:std(?:def|lib|io|int)|limits|math|string|bits/\w+)(?:\.h)?'?: No such file",
        ),
        (NO_COMPILER, WINDOWS_COMPILER),
        more=VERIFY,
    ),
    Rule(
        "cmake-no-torch",
        'CMake Error: By not providing "FindTorch.cmake" in CMAKE_MODULE_PATH',
        (
            r"FindTorch\.cmake",
            r"Could not find a package configuration file provided by \"Torch\"",
            r"^\W*TorchConfig\.cmake\s*$",
        ),
        (
            Cause(
                "cmake-no-torch",
                "CMake does not know where torch is.",
                "Pass the path to cmake: `-DCMAKE_PREFIX_PATH=$(python -c 'import torch; "
                "print(torch.utils.cmake_prefix_path)')`.",
                tell="the command in the remedy prints a path",
            ),
            Cause(
                "build-without-torch-cmake",
                "torch is not installed in the Python that the build uses.",
                "Install torch into that environment: `python -m pip install torch`.",
                tell="`python -c 'import torch'` fails",
                given=text_has(r"No module named '?torch\b"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "source-too-old",
        "fatal error: THC/THC.h: No such file or directory",
        (
            r"THC?/THC?\w*\.(?:h|hpp|cuh): No such file",
            r"'(?:AT_CHECK|THCState_\w+|THCCeilDiv)' was not declared|identifier \"(?:AT_CHECK|"
            r"THC\w+)\" is undefined",
            r"(?:at|torch|c10)::\w+[^\n]{0,80}has no member named '(?:type|data|scalar_type)'",
            r"You need C\+\+(?:1[47]|20)",
            r"C\+\+\d\d or later compatible compiler is required to use (?:PyTorch|ATen)",
            r"from \W*const at::DeprecatedTypeProperties",
            r"DeprecatedTypeProperties[^\n]{0,40}(?:to|has no)",
        ),
        (
            Cause(
                "cxx-standard",
                "torch's header files need a newer C++ standard than the package's build sets.",
                "Install a newer release of the package. Otherwise replace `-std=c++14` in its setup.py or "
                "CMakeLists.txt with the standard that the message names, such as `-std=c++17`, and build it again.",
                tell="the package's setup.py or CMakeLists.txt has `-std=c++14` or `CMAKE_CXX_STANDARD 14`",
                given=text_must_have(r"C\+\+(?:1[47]|2\d)"),
            ),
            Cause(
                "gcc-too-old",
                "The C++ compiler is too old for torch's header files.",
                "Install a newer one and name it: `sudo apt-get install g++-11`, then `export CC=gcc-11 CXX=g++-11` "
                "(in conda: `conda install -c conda-forge gxx_linux-64=11`).",
                tell="`c++ --version` prints less than 9",
                given=text_must_have(r"C\+\+(?:1[47]|2\d)"),
            ),
            TOO_OLD_FOR_TORCH,
        ),
        more=VERIFY,
    ),
    Rule(
        "submodules",
        "CMake Error: The source directory /src/third_party/pybind11 does not contain a CMakeLists.txt file.",
        (
            r"does not contain a CMakeLists\.txt file",
            r"(?:error|missing|not found|empty|please|did you|forgot|need to)[^\n]{0,120}git submodule update --init",
            r"(?:third_party|csrc)/\S+[^\n]{0,40}(?:is empty|does not exist)",
        ),
        (SUBMODULES,),
        more=BUILD,
    ),
    Rule(
        "not-a-package",
        "ERROR: File \"setup.py\" or \"setup.cfg\" not found. Neither 'setup.py' nor 'pyproject.toml' found.",
        (r"[Nn]either '?setup\.py'? nor '?pyproject\.toml'? found", r"does not appear to be a Python project"),
        (
            Cause(
                "not-a-package",
                "The folder cannot be installed: it has neither a pyproject.toml nor a setup.py.",
                "Run the command in the folder that has one, usually the repository's top level. A program without "
                "one is not installed: run it from its folder.",
            ),
        ),
        certain=True,
        more=BUILD,
        program=True,
    ),
    Rule(
        "flat-layout",
        "error: Multiple top-level packages discovered in a flat-layout: ['data', 'src'].",
        (r"Multiple top-level (?:packages|modules) discovered in a flat-layout",),
        (
            Cause(
                "flat-layout",
                "setuptools finds several folders or modules at the project's top level and does not guess which are "
                "the package.",
                'Name them in pyproject.toml, such as `packages = ["mypackage"]` under `[tool.setuptools]`, or move '
                "the package into src/.",
            ),
        ),
        certain=True,
        more=BUILD,
        program=True,
    ),
    Rule(
        "cuda-header",
        "fatal error: cusparse.h: No such file or directory",
        (
            r"fatal error: '?((?:cu\w+|crt/host_defines|nvtx3/\w+|device_launch_parameters|thrust/\w+|cub/\w+)\.(?:h|"
            r"cuh)(?:pp)?)'?(?:: No such file| file not found)",
        ),
        (
            Cause(
                "cuda-header",
                "CUDA's header file {0} is not installed, or not where the compiler looks: the CUDA Toolkit is "
                "missing or only partly installed.",
                "Install the whole CUDA Toolkit (`conda install -c nvidia cuda-toolkit` in a conda environment) and "
                "set "
                f"`CUDA_HOME` to its folder. {WITH_COMPILER}",
                tell="the package that fails is being compiled",
                standalone="Install the whole CUDA Toolkit (`conda install -c nvidia cuda-toolkit` in a conda "
                "environment) and set `CUDA_HOME` to its folder.",
            ),
            Cause(
                "cuda-header-triton",
                "Triton compiles a small file at run time and does not find CUDA's header file {0}, which its wheel "
                "includes: this Triton comes from another source or is incomplete.",
                "Install torch and triton again from one source; for conda, also `conda install -c nvidia "
                "cuda-cudart-dev`.",
                tell="the path has /tmp/tmp.../main.c in it",
                given=text_has(r"/tmp/tmp\w+/main\.c|triton/runtime/build"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "no-nvcc",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        (
            r"CUDA_HOME environment variable is not set",
            r"CUDA_HOME does not exist",
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
            r"uses CUDA but I cannot find the CUDA",
        ),
        (
            NO_NVCC,
            Cause(
                "nvcc-not-on-path",
                "The CUDA Toolkit is installed, and the build does not find it.",
                "Name its folder: `export CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH`, then build again.",
                tell="`ls /usr/local/cuda*/bin/nvcc` finds it",
            ),
            Cause(
                "cuda-package-without-gpu",
                "The package works only with an NVIDIA GPU, and this machine has none.",
                "Leave the package out, or use the program's option for CPUs.",
                tell="`nvidia-smi` finds no GPU",
                given=text_has(r"macosx|darwin|\barm64-apple"),
            ),
        ),
        more=VERIFY,
        excludes=r"nvcc was not found[\s\S]*\bSuccessfully installed ",
    ),
    Rule(
        "glibc-too-new",
        'error: exception specification is incompatible with that of previous function "cospi"',
        (r"exception specification is incompatible with that of previous function \"(?:cospi|sinpi|rsqrt)",),
        (
            Cause(
                "glibc-too-new",
                "The system's C library (glibc 2.41 or newer) declares functions that this CUDA Toolkit's headers "
                "declare differently. Another gcc does not help.",
                "Build with a newer CUDA Toolkit (13.2 or newer), or in a container of an older system such as Ubuntu "
                "24.04.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "gcc-too-new",
        "error: #error -- unsupported GNU version! gcc versions later than 13 are not supported!",
        (
            r"unsupported GNU version! gcc versions later than",
            r"parameter packs not expanded with",
            r"The current installed version of g\+\+ \([^)]*\) is greater than the maximum required version",
            r"identifier \"_Float(?:32|64|128)\w*\" is undefined",
            r"identifier \"__builtin_\w+\" is undefined",
        ),
        (
            Cause(
                "gcc-too-new",
                "The C++ compiler is newer than this CUDA Toolkit supports.",
                "Install an older gcc and name it: `sudo apt-get install g++-12`, then `export CC=gcc-12 CXX=g++-12 "
                "NVCC_PREPEND_FLAGS='-ccbin g++-12'` (in conda: `conda install -c conda-forge gxx_linux-64=12`). Or "
                "use a newer CUDA Toolkit.",
                tell="`gcc --version` is higher than the message allows",
            ),
            WRONG_TOOLKIT,
        ),
        more=VERIFY,
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
                "The build tool ninja, which compiles torch's extensions, is not installed.",
                "`pip install ninja`",
                tell="`python -m pip show ninja` finds nothing",
            ),
            Cause(
                "ninja-not-on-path",
                "ninja is installed, and the environment's bin folder is not on PATH, because Python was started by "
                "its path without activating the environment.",
                "Activate the environment (`source .venv/bin/activate`), then start the program or notebook again.",
                tell="`python -m pip show ninja` finds it",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "no-git",
        "ERROR: Cannot find command 'git' - do you have 'git' installed and in your PATH?",
        (
            r"Cannot find command 'git'",
            r"Git executable not found|No such file or directory: 'git'|Bad git executable",
            r"\bgit: (?:command )?not found",
        ),
        (
            Cause(
                "no-git",
                "git is not installed here, and a package is to be fetched from a git repository or asks git for its "
                "version.",
                apt("git"),
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "no-build-tool",
        "error: can't find Rust compiler",
        (
            r"can't find (Rust) compiler",
            r"could not find `?(cargo|rustc|cmake)`?",
            r"(Cargo), the Rust package manager, is not installed",
            r"(CMake) must be installed",
            r"No such file or directory: '(cmake|swig|make|cargo|rustc)'",
            r"error: command '(swig|cmake|make|rustc|cargo)' failed: No such file",
            r"(pg_config|mpicc|mysql_config)[^\n]{0,20} not found",
            r"Cannot (?:find|compile) (mpicc|MPI programs)",
            r"(cmake|swig|cargo|rustc|protoc): (?:command )?not found",
        ),
        (
            Cause(
                "no-wheel-here",
                "The requested release of the package has no wheel for this Python and processor, so pip compiles it, "
                "which needs {0}.",
                "Install the newest release, which is more likely to have a wheel: `pip install -U --prefer-binary "
                "PACKAGE`. Otherwise use an older Python.",
                tell="the package's download page lists no wheel for this Python version",
                given=text_has(r"\.tar\.gz|Building wheel|Rust|setup\.py|subprocess-exited"),
            ),
            Cause(
                "no-build-tool",
                "The package is always compiled here, and {0} is not installed.",
                "Install it with apt-get (Rust: cargo, mpicc: libopenmpi-dev, pg_config: libpq-dev, protoc: "
                "protobuf-compiler); in a project, add it to apt.txt.",
                tell="the package has no wheels at all",
            ),
        ),
        more=BUILD,
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
                "The CUDA Toolkit that compiles the package ({0}) has another version than the CUDA that torch was "
                "built with.",
                "Install the CUDA Toolkit of torch's version (`python -c 'import torch; print(torch.version.cuda)'`), "
                "set `CUDA_HOME` to it, and build again. Or install the torch for the Toolkit's version, with an "
                "`--index-url` such as https://download.pytorch.org/whl/cu128. A prebuilt wheel of the package needs "
                "no Toolkit.",
                tell="`nvcc --version` shows another version than torch's",
            ),
            WRONG_TOOLKIT,
            ISOLATED_TORCH,
        ),
        more=VERIFY,
    ),
    Rule(
        "nvcc-too-old-for-package",
        "RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.",
        (r"is only supported on CUDA ([\d.]+) and above", r"requires CUDA ([\d.]+) or (?:newer|higher|above|later)"),
        (
            Cause(
                "nvcc-too-old-for-package",
                "The package requires CUDA {0} or newer, and the CUDA Toolkit here is older (`nvcc --version`).",
                "Install a newer CUDA Toolkit and set `CUDA_HOME` to it, or install an older release of the package.",
                tell="no newer Toolkit is installed",
            ),
            WRONG_TOOLKIT,
        ),
        more=VERIFY,
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
                "The build detects the GPU's architecture to compile for, and no GPU is visible, as in every image "
                "build.",
                "Set the compute capability of your GPU before this step: `export TORCH_CUDA_ARCH_LIST=9.0` (in a "
                "Dockerfile: `ENV TORCH_CUDA_ARCH_LIST=9.0`). `nvidia-smi --query-gpu=name,compute_cap --format=csv` "
                "shows it.",
                tell="it fails in the build of an image, or on a machine without a GPU",
            ),
            replace(CPU_BUILD, given=CPU_TORCH),
        ),
        more=BUILD,
    ),
    Rule(
        "musl",
        "ImportError: Error loading shared library ld-linux-x86-64.so.2: No such file or directory",
        (
            r"Error loading shared library (\S+?): No such file",
            r"Error relocating [^\n:]+: (\w+): symbol not found",
            r"(musl)(?:linux)?[^\n]{0,60}(?:not supported|is not a supported)",
        ),
        (
            Cause(
                "musl",
                "This system is Alpine Linux, which uses musl, and the file was built for glibc. PyTorch has no "
                "builds for musl.",
                "Use an image based on Debian or Ubuntu, such as python:3.12-slim.",
                tell="the missing library is ld-linux or libc, or the package is a wheel for manylinux",
                given=text_has(r"ld-linux|libc\.so\.6|torch|manylinux|GLIBC"),
            ),
            Cause(
                "alpine-library",
                "A library is not installed in this Alpine Linux ({0}).",
                "Install the Alpine package that provides it, such as `apk add libstdc++ libgomp`.",
                tell="the missing library has an Alpine package",
                given=unless_text_has(r"ld-linux|libc\.so\.6"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "executable-stack",
        "ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid argument",
        (r"([\w.+-]+): cannot enable executable stack as shared object requires",),
        (
            Cause(
                "executable-stack",
                "The library {0} requests an executable stack, which this system does not allow (glibc 2.41 and "
                "newer, or SELinux).",
                "Install a newer release of the package. Until there is one: `patchelf --clear-execstack FILE`.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "static-tls",
        "libgomp.so.1: cannot allocate memory in static TLS block",
        (r"([\w./+-]+): cannot allocate memory in static TLS block", r"cannot allocate memory in static TLS block"),
        (
            Cause(
                "static-tls",
                "A library ({0}) was loaded after others had used up the space that it needs. This occurs mostly with "
                "libgomp on arm64.",
                "Load it first: `export LD_PRELOAD=FILE` with the file that the message names, or import its package "
                "before all others.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "torch-parts",
        "OSError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory",
        (r"(lib(?:torch|c10)\w*\.so)(?:\.\d+)?: cannot open shared object file",),
        (
            replace(
                OTHER_TORCH,
                tell="the library exists in no torch of this release, such as libtorch_cuda_cu (1.10 to 1.13) or "
                "libtorch_hip (ROCm)",
                given=text_has(r"libtorch_(?:cuda_cu|cuda_cpp|hip|xpu)|libc10_hip"),
            ),
            Cause(
                "torch-not-imported",
                "The package's compiled part was loaded before torch, which provides {0}.",
                "Import torch before the package.",
                tell="`python -c 'import torch, PACKAGE'` works",
                given=text_has(r"lib(?:c10|torch|torch_cpu|torch_python)\.so"),
            ),
            CPU_BUILD,
        ),
        more=VERIFY,
    ),
    Rule(
        "mkl-too-new",
        "libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent",
        (r"undefined symbol: iJIT_NotifyEvent",),
        (
            Cause(
                "mkl-too-new",
                "conda's torch is older than the installed MKL, which no longer has this symbol.",
                "`conda install 'mkl<2024.1'`",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "mixed-cuda-libraries",
        "undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
        (r"undefined symbol: (__nvJitLink\w*|cu(?:blas|sparse|solver|dnn|fft|rand)\w*|nccl\w+|cuda[A-Z]\w*)",),
        (
            LIBRARIES_MIXED,
            Cause(
                "mixed-cuda-packages",
                "The CUDA libraries that pip installed for torch (nvidia-...) are not of the versions that this torch "
                "requires.",
                "Install torch and its libraries again in a new environment, in one command.",
                tell="`pip check` lists nvidia packages",
                given=text_has(r"site-packages/nvidia/"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "mixed-torch",
        "torch/lib/libtorch_cpu.so: undefined symbol: _ZNK3c1010TensorImpl23shallow_copy_and_detachERKNS_15Variable",
        (
            r"libtorch(?:_cpu|_cuda|_python|_global_deps)?\.so(?:\.\d+)?: undefined symbol",
            r"/torch/(?:_C|lib/)[^\s:]*: undefined symbol",
            r"libtorch\w*\.so[^\n]{0,20}: version `",
        ),
        (
            Cause(
                "mixed-torch",
                "torch's own files do not match each other: the installation contains files of two releases, for "
                "example from pip and conda.",
                "Install torch in a new environment. In the same one: `pip uninstall -y torch` until pip finds none, "
                "then install it again.",
                tell="`pip list` and `conda list` both have torch, or it was upgraded in place",
            ),
            Cause(
                "other-libtorch",
                "LD_LIBRARY_PATH or LD_PRELOAD names a folder with another torch's libraries.",
                "`unset LD_LIBRARY_PATH LD_PRELOAD`, then try again.",
                tell="`echo $LD_LIBRARY_PATH` prints such a folder",
            ),
        ),
        more=VERIFY,
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
            OTHER_TORCH,
            STALE_EXTENSION,
            Cause(
                "torch-found-twice",
                "Two torch installations are found, such as one in ~/.local or from conda, and the package loads the "
                "one that it was not built for.",
                "Remove the other one: `pip uninstall torch` until pip finds none, then install torch again; "
                "`PYTHONNOUSERSITE=1` ignores ~/.local.",
                tell="`python -c 'import torch; print(torch.__file__)'` does not lie in this environment",
                given=unless_text_has(r"torch_extensions/"),
            ),
        ),
        more=VERIFY,
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
                "The linker does not find CUDA's library {0}: the CUDA Toolkit is missing or only partly installed, "
                "or its lib folder is not searched.",
                "Install the CUDA Toolkit (`conda install -c nvidia cuda-toolkit` in a conda environment) and add its "
                "folder: `export LIBRARY_PATH=$CUDA_HOME/lib64:$LIBRARY_PATH`. A prebuilt wheel needs neither.",
                tell="the library is not the driver's libcuda",
                given=unless_text_has(r"cannot find -lcuda\b|libcuda\.so\.1, needed"),
            ),
            Cause(
                "no-libcuda-at-build",
                "The build links with the driver's library libcuda, which is not there while an image is built.",
                "Link with the Toolkit's stub library: `export LIBRARY_PATH=$CUDA_HOME/lib64/stubs:$LIBRARY_PATH`.",
                tell="it fails in the build of an image",
                given=text_must_have(r"cannot find -lcuda\b|libcuda\.so\.1, needed"),
            ),
            Cause(
                "libcuda-not-listed",
                "Triton or torch.compile links with the driver's library libcuda at run time and does not find it.",
                "Update the linker's list: `sudo ldconfig`. In WSL: `export LIBRARY_PATH=/usr/lib/wsl/lib`.",
                tell="it fails while the program runs",
                given=text_must_have(r"/tmp/tmp\w+/main\.c|triton"),
            ),
        ),
        more=BUILD,
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
            OLD_BITSANDBYTES,
            CPU_BUILD,
            Cause(
                "bitsandbytes-from-source",
                "bitsandbytes has no build for this processor's GPU, such as a Jetson's.",
                "Build it on the device: `git clone https://github.com/bitsandbytes-foundation/bitsandbytes`, then in "
                "it `cmake -DCOMPUTE_BACKEND=cuda -S . && make && pip install .`.",
                tell="it is a Jetson, or another arm64 board",
                given=JETSON,
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "torchvision-other",
        "RuntimeError: operator torchvision::nms does not exist",
        (
            r"operator torchvision::\w+ does not exist",
            r"No such operator torchvision::",
            r"Couldn't load custom C\+\+ ops",
            r"Detected that PyTorch and torch(?:vision|audio) were compiled with different",
            r"torchvision::nms' (?:with arguments from the 'CUDA' backend|is only available)",
            r"module 'torchvision' has no attribute 'extension'",
        ),
        (
            Cause(
                "torchvision-other",
                "torchvision (or torchaudio) was built for another torch: another release, or another CUDA version.",
                "Remove torchvision's version from pyproject.toml, then run `./launch build`.",
                tell="`pip list` shows versions that were not released together",
                given=~JETSON,
                standalone="Install them together, from the same index: `pip install -U torch torchvision torchaudio`, "
                "with the `--index-url` that torch came from.",
            ),
            Cause(
                "torchvision-jetson",
                "torch is NVIDIA's build for Jetson, and torchvision came from the general package index.",
                "Install torchvision from the place that torch came from, or build it from source on the Jetson.",
                tell="it is a Jetson",
                given=JETSON,
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "torchvision-not-imported",
        "Unknown builtin op: torchvision::nms.",
        (r"Unknown builtin op: torchvision::",),
        (
            Cause(
                "torchvision-not-imported",
                "A TorchScript model uses torchvision's operators, and the program has not loaded them.",
                "Add `import torchvision` before the model is loaded; in C++, link with libtorchvision.",
                tell="the program does not import torchvision",
            ),
            Cause(
                "torchvision-other-script",
                "torchvision was built for another torch, so its operators are not registered.",
                "Install torch and torchvision together, from the same index.",
                tell="`import torchvision` prints a warning",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "tensorflow-without-cuda",
        "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed "
        "properly",
        (
            r"(?:Could not load dynamic library|Couldn't open CUDA library) '?(?!libcuda\.|libnvidia)(lib(?:cu|"
            r"nv)[\w.]+)",
            r"Cannot dlopen some GPU libraries",
            r"Unable to load lib(?:cudnn|cublas)\S+|Unable to load cuDNN DSO",
        ),
        (
            Cause(
                "tensorflow-without-cuda",
                "TensorFlow does not find the CUDA libraries that this release was built for ({0}), and runs on the "
                "CPU.",
                "Install TensorFlow with its libraries: `pip install -U 'tensorflow[and-cuda]'`. For an older "
                "release, use the CUDA and cuDNN versions that its documentation lists.",
                tell="the machine has an NVIDIA GPU, and TensorFlow should use it",
            ),
            Cause(
                "tensorflow-cpu-only",
                "TensorFlow was imported by another program or on a machine without a GPU. The warning has no effect.",
                "Ignore it, or hide it: `export TF_CPP_MIN_LOG_LEVEL=3`.",
                tell="the program computes with PyTorch, or there is no GPU",
                given=NO_CARD,
            ),
        ),
        more=VERIFY,
        excludes=r"Ignore above cudart dlerror if you do not have a GPU",
    ),
    Rule(
        "built-for-other-cuda",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        (
            r"(?<!dlerror: )(lib(?:cudart|cublas|cublasLt|cudnn\w*|cusparse\w*|cufft\w*|curand|cusolver\w*|cupti|"
            r"nvrtc|nvJitLink|"
            r"nccl|nvToolsExt|cufile|nvshmem\w*|npp\w+|nvjpeg\w*|nvinfer\w*|nvfatbin|cudss)\.so(?:\.\d+)*)[^\n]{0,10}: "
            r"cannot open shared object file",
            r"(lib(?:cudart|cublas\w*|cudnn\w*|nvrtc|cufft|curand)[\w.]*) is not found or cannot be loaded",
            r"Library (lib(?:cublas|cudnn)\S+) is not found",
            r"Could not load library (libcudnn\S+)",
        ),
        (
            Cause(
                "built-for-other-cuda",
                "The package was built for another CUDA or cuDNN version and needs {0}, which this environment does "
                "not have.",
                "Install the package's build for this CUDA version (`python -c 'import torch; "
                "print(torch.version.cuda, torch.backends.cudnn.version())'`), or a newer release of it. To keep it, "
                "as with "
                "an old TensorFlow, install the library in the version that it names, such as `conda install "
                "cudnn=7.6`, and add its folder to `LD_LIBRARY_PATH`.",
                tell="the number after .so is not the version that torch brings",
                given=~JETSON,
            ),
            Cause(
                "torch-libraries-missing",
                "torch itself does not find {0}: the nvidia packages that pip installs with it are missing, or lie in "
                "another folder than torch (lib and lib64).",
                "Create a new environment, and install torch in it: `python -m venv NEW && NEW/bin/pip install torch`. "
                "In the same one: `pip install --force-reinstall torch`, with the `--index-url` that it came from.",
                tell="the traceback ends in torch/__init__.py",
                given=text_must_have(r"from torch\._C import|torch/__init__\.py|_load_global_deps")
                | unless_text_has(r"tensorflow|jax|paddle|onnx|tensorrt|nvinfer|libcudart"),
            ),
            Cause(
                "cuda-library-not-found",
                "{0} is installed, and the loader does not search its folder.",
                "Add the folder: `export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH`. Libraries from pip lie in "
                "site-packages/nvidia/*/lib; importing torch before the package also loads them.",
                tell="`find / -name 'lib*.so*' 2>/dev/null | grep NAME` finds the file",
            ),
            Cause(
                "jetson-package-libraries",
                "On a Jetson, CUDA's libraries come with JetPack, and this package or image is for another JetPack or "
                "is used without NVIDIA's runtime.",
                "Use packages and images made for the installed JetPack, and start containers with `--runtime nvidia`.",
                tell="it is a Jetson",
                given=only(JETSON),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "other-libc",
        "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found",
        (r"version [`'](GLIBC_[\d.]+)' not found",),
        (
            Cause(
                "other-libc",
                "The file was built on a newer Linux than this one: it needs {0}. The C library cannot be upgraded on "
                "its own.",
                "Use a newer system or container image. On this one, install an older release of the package, or "
                "build it here.",
                given=unless_text_has(r"vscode|code-server|vscode-remote"),
                tell="a Python package or a program names it",
            ),
            Cause(
                "editor-server-libc",
                "VS Code's server is started on a system that is older than it supports.",
                "Connect to a newer system or image (glibc 2.28 or newer), such as Debian 10 or Ubuntu 20.04.",
                tell="VS Code was connecting",
                given=text_must_have(r"vscode|code-server|attach docker container"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "other-libstdcxx",
        "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found",
        (r"version [`']((?:GLIBCXX|CXXABI|GCC)_[\d.]+)' not found",),
        (
            Cause(
                "old-libstdcxx-first",
                "An older C++ library, mostly conda's, is found before the one that the file needs ({0}).",
                "Update conda's: `conda install -c conda-forge libstdcxx-ng`. Without conda: `unset LD_LIBRARY_PATH`.",
                tell="the path before `version` lies in an environment, not in /lib or /usr/lib",
                given=text_has(r"(?:conda|/envs/|/opt/|/home/|\.\.\.|…)\S*libstdc\+\+\S*: version"),
            ),
            Cause(
                "system-libstdcxx",
                "The file was built with a newer compiler than this system's C++ library supports: it needs {0}.",
                "Use a newer system or container image, or build the package here. In a conda environment: `export "
                "LD_LIBRARY_PATH=$CONDA_PREFIX/lib`.",
                tell="the path before `version` is /lib or /usr/lib",
                given=text_has(r"(?<![\w.])/(?:usr/)?lib(?:64)?/\S*libstdc\+\+\S*: version"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "openmp-twice",
        "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized.",
        (r"OMP: Error #15",),
        (
            Cause(
                "openmp-twice",
                "Two packages each load their own copy of the OpenMP library, mostly one from pip and one from conda.",
                "Install numpy and torch from one source, in a new environment. Until then: `export "
                "KMP_DUPLICATE_LIB_OK=TRUE`, which can slow programs down or make results wrong.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "mkl-threading",
        "Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp.so.1 library.",
        (r"MKL_THREADING_LAYER=INTEL is incompatible",),
        (
            Cause(
                "mkl-threading",
                "torch loaded GNU's OpenMP before numpy loaded MKL, which expects Intel's.",
                "`export MKL_THREADING_LAYER=GNU`, or import numpy before torch.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "mkl-broken",
        "INTEL MKL ERROR: libmkl_avx2.so.1: undefined symbol. Intel MKL FATAL ERROR: Cannot load libmkl_avx2.so.1",
        (r"Intel (?:oneAPI )?MKL (?:FATAL )?ERROR",),
        (
            Cause(
                "mkl-broken",
                "MKL does not find its own libraries: the installation is incomplete, or contains files of two "
                "releases.",
                "Install it again: `conda install --force-reinstall mkl numpy`, or with pip `pip install "
                "--force-reinstall mkl numpy`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "numpy-unavailable",
        "RuntimeError: Numpy is not available",
        (r"RuntimeError: Numpy is not available",),
        (
            Cause(
                "numpy-2-for-torch",
                "This torch was built for NumPy 1 (releases before 2.3), and NumPy 2 is installed.",
                "`pip install 'numpy<2'`, or install a newer torch.",
                tell="`python -c 'import numpy; print(numpy.__version__)'` prints 2.x",
                given=torch_below("2.3") | text_has(r"NumPy 1\.x cannot be run", r"_ARRAY_API not found"),
            ),
            Cause(
                "no-numpy",
                "NumPy is not installed in this environment, or is broken.",
                "`pip install --force-reinstall numpy`",
                tell="`python -c 'import numpy'` fails",
                given=text_has(r"No module named '?numpy"),
            ),
        ),
        more=VERIFY,
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
                "A compiled package was built for NumPy 1, and NumPy 2 is installed.",
                "Install a newer release of that package, which supports NumPy 2. If there is none: `pip install "
                "'numpy<2'`.",
                tell="`python -c 'import numpy; print(numpy.__version__)'` prints 2.x",
                given=text_has(
                    r"cannot be run in\s+NumPy 2", r"got 88 from PyObject", r"numpy is 0x2", r"_ARRAY_API not found"
                ),
            ),
            Cause(
                "numpy-too-old",
                "A compiled package was built with a newer NumPy than the installed one.",
                "`pip install -U numpy`; if several NumPys are installed (pip, conda, apt), remove the old one.",
                tell="the second number in the message is smaller than the first",
                given=text_has(r"against API version 0x\w+ but", r"Expected 8\d from C header, got (?:96|80)"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "numpy-names",
        "AttributeError: module 'numpy' has no attribute 'float'.",
        (
            r"(?<!initialized )module 'numpy(?:\.[\w.]+)?' has no attribute '(\w+)'",
            r"`np\.(\w+)` was (?:removed in the NumPy|a deprecated alias)",
            r"No module named 'numpy\.(_core|char|rec|strings)",
        ),
        (
            Cause(
                "numpy-names",
                "The program or a package uses a name that was removed from NumPy ({0}): it is older than this NumPy.",
                "Upgrade the package that the traceback's last lines belong to: `pip install -U PACKAGE`. In your own "
                "code, use Python's float, int, or bool. If neither is possible: `pip install 'numpy<1.24'`, or "
                "`'numpy<2'` for names that NumPy 2 removed.",
                tell="the name is float, int, bool, object, NaN, float_, in1d, or another old one",
                given=unless_text_has(r"numpy\._core|attribute '(?:_core|strings|exceptions|long|dtypes)'"),
            ),
            Cause(
                "numpy-too-old-for-name",
                "The installed NumPy is older than the program or the saved file expects, and does not have {0}.",
                "`pip install -U numpy`",
                tell="the name is new, such as numpy._core or numpy.exceptions",
                given=text_must_have(r"numpy\._core|attribute '(?:_core|strings|exceptions|long|dtypes)'"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "protobuf",
        "TypeError: Descriptors cannot be created directly.",
        (
            r"Descriptors cannot (?:not )?be created directly",
            r"cannot import name 'builder' from 'google\.protobuf",
            r"'MessageFactory' object has no attribute 'GetPrototype'",
            r"incompatible Protobuf Gencode/Runtime versions",
        ),
        (
            Cause(
                "protobuf",
                "A package contains code that was generated for an older protobuf than the installed one.",
                "Upgrade that package: `pip install -U PACKAGE`. If there is no newer release: `pip install "
                "'protobuf<3.21'` (for GetPrototype: `'protobuf<6'`).",
                tell="the traceback's last file ends with _pb2.py",
                given=unless_text_has(r"name 'builder'|Gencode/Runtime"),
            ),
            Cause(
                "protobuf-too-old",
                "A package contains code that was generated for a newer protobuf than the installed one.",
                "`pip install -U protobuf`",
                tell="the message asks for `builder` or compares Gencode and Runtime",
                given=text_must_have(r"name 'builder'|Gencode/Runtime"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "no-distutils",
        "ModuleNotFoundError: No module named 'distutils'",
        (r"No module named '(distutils)[\w.]*'",),
        (
            Cause(
                "no-distutils",
                "Python 3.12 removed distutils, which the package still uses.",
                "`pip install setuptools`, which provides it; or install a newer release of the package.",
                tell="`python --version` prints 3.12 or newer",
                given=python_from("3.12"),
            ),
            DEBIAN_DISTUTILS,
        ),
        more=VERIFY,
    ),
    Rule(
        "python-too-new",
        "AttributeError: module 'pkgutil' has no attribute 'ImpImporter'. Did you mean: 'zipimporter'?",
        (
            r"No module named '(imp|asynchat|asyncore|cgi|telnetlib|imghdr|pipes|numpy\.distutils)[\w.]*'",
            r"module 'pkgutil' has no attribute '(ImpImporter)'",
            r"cannot import name '(Mapping|MutableMapping|Iterable|Callable|Sequence)' from 'collections'",
            r"module 'inspect' has no attribute '(getargspec)'",
            r"module 'collections' has no attribute '(\w+)'",
            r"module 'inspect' has no attribute '(formatargspec)'",
            r"module 'ast' has no attribute '(Num|Str|NameConstant)'",
        ),
        (
            TOO_OLD_FOR_PYTHON,
            Cause(
                "old-build-tools",
                "The build uses a setuptools or pip that is older than this Python, because a package pins it.",
                "Update them, `python -m pip install -U pip setuptools wheel`, and install a newer release of the "
                "package that is being built.",
                tell="pkg_resources or pip-build-env appears in the traceback",
                given=text_must_have(r"ImpImporter"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "setuptools",
        "ModuleNotFoundError: No module named 'pkg_resources'",
        (r"No module named '(pkg_resources)'", r"cannot import name '(packaging)' from 'pkg_resources'"),
        (
            Cause(
                "setuptools",
                "pkg_resources is missing: new environments have no setuptools since Python 3.12, and setuptools 82 "
                "removed the module.",
                "`pip install 'setuptools<81'`",
                tell="it fails when the program is started",
                given=unless_text_has(ISOLATED, r"name 'packaging'"),
            ),
            Cause(
                "setuptools-in-build",
                "The package's build uses pkg_resources, which the setuptools in its isolated build environment no "
                "longer has.",
                "Build it without isolation: `pip install 'setuptools<81' wheel`, then `pip install "
                "--no-build-isolation PACKAGE`.",
                tell="it fails while the package is built",
                given=text_has(ISOLATED),
            ),
            Cause(
                "setuptools-70",
                "An older torch or package imports packaging from pkg_resources, which setuptools 70 removed.",
                "`pip install 'setuptools<70'`, or install a newer torch.",
                tell="the name that cannot be imported is packaging",
                given=text_must_have(r"name 'packaging'"),
            ),
        ),
        more=VERIFY,
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
                "The code is written for a newer Python than this one.",
                "Run it with a newer Python: `uv venv --python 3.12`, then install the packages there. Or install an "
                "older release of the package.",
                tell="`python --version` prints less than the package's documentation requires",
                given=~python_from("3.12"),
            ),
            Cause(
                "type-expression",
                "The expression itself is wrong: a class or a value is used in place of an object or a type.",
                "Check the line that the traceback ends with.",
                tell="`python --version` prints 3.11 or newer",
                given=python_from("3.11") & text_has(r"not subscriptable|for \|:"),
            ),
        ),
        more=VENV,
    ),
    Rule(
        "python-required",
        "ERROR: Package 'foo' requires a different Python: 3.9.18 not in '>=3.10'",
        (
            r"requires a different Python: ([\d.]+ not in '?[^'\n]+)",
            r"the current Python version \(([\d.]+)\) does not satisfy Python",
            r"requires Python ((?:'|>=|<|~=)[^\n]{0,40}?)[, ]*but (?:the )?(?:running|current|installed)",
        ),
        (
            Cause(
                "python-required",
                "This release of the package does not support this Python ({0}).",
                "Use a Python in the range that the message names, such as `uv venv --python 3.12`, or install a "
                "release of the package that supports this one.",
            ),
        ),
        certain=True,
        more=VERIFY,
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
                "The project's requires-python ({0}) includes Python versions that a dependency does not support. uv "
                "resolves for all of them.",
                'Narrow it in pyproject.toml to what the message names, such as `requires-python = ">=3.12"`.',
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "uv-index-order",
        "`torch` was found on https://download.pytorch.org/whl/cu128, but not at the requested version",
        (
            r"was found on \S+ but not at the requested version",
            r"was found on [^\n]{0,120}, but not at",
            r"not at the requested version[\s\S]{0,200}subsequent index",
            r"first[- ]index strategy|(?:use|try|with) [`'\"]?--index-strategy unsafe-best-match",
        ),
        (
            Cause(
                "uv-index-order",
                "uv searches only the first index that has a package of this name, and the requested version is not "
                "there.",
                "Give the special index `explicit = true` in pyproject.toml and assign only its packages to it in "
                "`[tool.uv.sources]`. On the command line: `--index-strategy unsafe-best-match`.",
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "not-in-index",
        "Because torchfoo was not found in the package registry and you require torchfoo",
        (
            r"Because (\S+) was not found in the (?:package registry|provided package locations|cache)",
            r"(\S+) (?:was|were) not found in the (?:package registry|provided package locations)",
        ),
        (
            replace(
                INDEX,
                tell="an --index-url was given, or the package is from another project's own index",
                given=unless_text_has(r"found in the cache"),
            ),
            Cause(
                "wrong-name",
                "No package has this name ({0}).",
                "Check the name: it often differs from the module's, such as scikit-learn for sklearn.",
                tell="the index's website does not find it",
            ),
            OFFLINE,
        ),
        more=BUILD,
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
                "The virtual environment was created by a Python that is no longer there, or on another machine.",
                "Delete it and create it again: `rm -r .venv && uv venv`. A project's container needs none.",
            ),
        ),
        more=VENV,
    ),
    Rule(
        "no-bdist-wheel",
        "error: invalid command 'bdist_wheel'",
        (r"invalid command 'bdist_wheel'",),
        (
            Cause(
                "no-bdist-wheel",
                "The package `wheel` is not installed, and old setuptools versions need it to build a wheel.",
                "`pip install -U setuptools wheel`, then install the package again.",
            ),
        ),
        more=BUILD,
        excludes=r"bdist_wheel[\s\S]*Successfully installed",
    ),
    Rule(
        "setuptools-too-new",
        "error in foo setup command: use_2to3 is invalid.",
        (
            r"use_2to3 is invalid",
            r"error in \S+ setup command: '?\w+'? must be",
            r"cannot import name '(?:_imp|msvccompiler|run_2to3)\w*' from '(?:setuptools|distutils)",
        ),
        (
            Cause(
                "setuptools-too-new",
                "The package's setup.py is older than the setuptools that builds it.",
                "Install a newer release of the package. If there is none: `pip install 'setuptools<58' wheel` (`<66` "
                "for `must be ...`), then `pip install --no-build-isolation PACKAGE`.",
            ),
        ),
        more=BUILD,
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
        (WINDOWS_COMPILER,),
        more=VERIFY,
    ),
    Rule(
        "openssl-python",
        "AttributeError: module 'lib' has no attribute 'X509_V_FLAG_CB_ISSUER_CHECK'",
        (r"module 'lib' has no attribute '(?:X509|GEN_EMAIL)|X509_V_FLAG_|GEN_EMAIL'",),
        (
            Cause(
                "openssl-python",
                "The installed pyOpenSSL is older than the cryptography package supports.",
                "`python -m pip install -U pyopenssl cryptography`. If pip itself fails with this error, remove the "
                "old one first: `sudo apt-get remove python3-openssl`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "local-version",
        "ERROR: Could not find a version that satisfies the requirement torch==2.1.0+cu118",
        (
            r"(?:satisfies the requirement|distribution found for|no version of) (\w+==[\d.]+\+(?:cu\d+|cpu|"
            r"rocm[\d.]+))",
        ),
        (
            Cause(
                "local-version",
                "{0} is a build that only PyTorch's own index has, and the package index was searched.",
                "Add the index to the command, such as `--index-url https://download.pytorch.org/whl/cu128`, with the "
                "ending of the version (cu118, cu128, cpu).",
                tell="the command has no --index-url or --extra-index-url",
                given=unless_text_has(r"download\.pytorch\.org|find-links|\s-f "),
            ),
            Cause(
                "local-version-not-built",
                "PyTorch's index has no {0} for this Python and processor: not every release is built for every CUDA "
                "version, and most CUDA builds are for x86-64.",
                "Choose a combination from https://pytorch.org/get-started/previous-versions/.",
                tell="the command names PyTorch's index",
                given=text_has(r"download\.pytorch\.org|find-links|\s-f ") | ARM64,
            ),
        ),
        more=VERIFY,
        excludes=r"Max retries exceeded|NewConnectionError|ConnectTimeout|ReadTimeout|Retrying \(Retry\(",
    ),
    Rule(
        "conda-not-found",
        "PackagesNotFoundError: The following packages are not available from current channels",
        (r"ResolvePackageNotFound|PackagesNotFoundError",),
        (
            Cause(
                "conda-channel",
                "The conda channels in use do not have the package, or not this version for this processor.",
                "Search for it on conda-forge: `conda install -c conda-forge PACKAGE`. What conda does not have, "
                "install "
                "with pip. PyTorch itself is no longer published to its own channel: use pip, or conda-forge.",
                tell="a single package is named",
            ),
            Cause(
                "conda-other-system",
                "The environment file lists exact builds from another system or processor.",
                "Export it without builds on the old machine, `conda env export --from-history`, or delete the part "
                "after the second `=` in the file.",
                tell="the named packages have build strings such as =h1234567_0",
                given=text_has(r"^\s*- \S+==?[\d.]+=\w+_\d+|environment\.ya?ml|env create"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "wheel-does-not-fit",
        "ERROR: Could not find a version that satisfies the requirement torch==2.1.0",
        (
            r"is not a supported wheel on this platform",
            r"Could not find a version that satisfies the requirement (\S+)",
            r"No matching distribution found(?: for (\S+))?",
            r"doesn't have a source distribution or wheel for the current platform",
            r"ha(?:s|ve) no wheels? with a matching (?:Python|platform|abi)",
            r"has no usable wheels|No compatible (?:wheel|tags)",
            r"because there is no version of (\S+)|there (?:is|are) no versions? of (\S+)",
            r"Unable to find installation candidates for (\S+)",
            r"No candidate is found for",
            r"wheel\(s\) were skipped as your project's environment",
            r"no wheels (?:are )?available (?:for \S+ )?with a matching",
            r"only has wheels for the following|only available for (?:the following )?(?:platform|Python|on )",
            r"is unusable because no wheels",
            r"binary distribution is incompatible with the current platform",
            r"hint: Wheels are (?:available|required) for",
        ),
        (
            Cause(
                "no-wheel-for-python",
                "The requested release has no wheel for this Python version ({0}): it is older or newer than those "
                "that the package supports.",
                "Use a Python that the release supports, such as `uv venv --python 3.12`, or leave the version out to "
                "get a newer release.",
                tell="`from versions:` lists other versions, or the message names a Python or ABI tag",
                given=text_has(
                    r"ABI tag|matching (?:Python|abi)|Python implementation tag|different python version|"
                    r"Requires-Python|from versions: \d"
                ),
            ),
            Cause(
                "no-wheel-for-platform",
                "The requested release has no wheel for this operating system or processor ({0}).",
                "Install a release or build that has one: the message or the package's download page lists them. If "
                "it lists "
                "one for this system, update pip first: `python -m pip install -U pip`. On a Jetson, use the wheels "
                "made for its JetPack; on Intel Macs, torch ends with 2.2.",
                tell="the message names a platform, such as aarch64, win_amd64, or macosx",
                given=text_has(
                    r"matching platform|current platform|supported wheel on this platform|following platforms?"
                )
                | ARM64
                | WINDOWS,
            ),
            INDEX,
        ),
        more=VERIFY,
        kind="uv",
        excludes=r"Max retries exceeded|NewConnectionError|ConnectTimeout|ReadTimeout|Retrying \(Retry\(",
    ),
    Rule(
        "pip-left-conflict",
        "torchvision 0.18.0 requires torch==2.3.0, but you have torch 2.2.1 which is incompatible.",
        (
            r"(\S+ \S+ (?:has requirement|requires) \S+), but you(?:'ll)? have \S+(?: \S+)? which is incompatible",
            r"pip's dependency resolver does not currently take into account",
        ),
        (
            Cause(
                "pip-left-conflict",
                "pip changed a package to a version that another installed package does not support ({0}).",
                "Install both in one command, so that pip chooses versions that match: `pip install -U PACKAGE "
                "OTHER`. `pip check` lists what is still incompatible.",
                tell="the named package is used by the program",
            ),
            Cause(
                "unused-conflict",
                "The conflict concerns a package that is preinstalled, as in Colab, and that this program does not "
                "use.",
                "Ignore it, or work in a new environment: `uv venv`.",
                tell="the program runs without the named package",
                given=text_has(r"\bColab\b|google-colab|/content/|kaggle"),
            ),
        ),
        more=VERIFY,
        excludes=r"which is incompatible[\s\S]*\bSuccessfully installed ",
    ),
    Rule(
        "packages-contradict",
        "ERROR: ResolutionImpossible",
        (
            r"ResolutionImpossible",
            r"Encountered problems while solving|nothing provides \S+",
            r"but none of the providers can be installed",
            r"Cannot install \S+ [^\n]{0,200}because these package versions have conflicting dependencies",
            r"No solution found when resolving",
            r"requirements are unsatisfiable",
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
            REQUIREMENTS_CONFLICT,
            Cause(
                "uv-other-platform",
                "uv resolves for every Python version and system that the project allows, and a package has no "
                "release for one of them.",
                'Allow only those that you use, in pyproject.toml: `requires-python = ">=3.12,<3.13"`, and under '
                "`[tool.uv]` `environments = [\"sys_platform == 'linux'\"]`.",
                tell="the message names a split or another system or Python than this one",
                given=text_must_have(
                    r"for split|other Python versions supported by your project|resolution failed for other"
                ),
            ),
            Cause(
                "no-release-for-python",
                "The releases that the requirements allow do not support this Python, so no combination is left.",
                "Use the Python that the project's documentation names, such as `uv venv --python 3.11` or `conda "
                "create -n NEW python=3.11`, or allow newer releases.",
                tell="the message names Python's version, or the pinned releases are older than this Python",
                given=text_has(
                    r"Requires-Python|depends on Python|matching Python|Python ABI|different python version"
                ),
            ),
            Cause(
                "conda-conflict",
                "The requested packages do not match each other or what the conda environment already contains.",
                "Create a new environment with all of them in one command, from one channel: `conda create -n NEW -c "
                "conda-forge --override-channels PACKAGES`.",
                tell="it is conda or mamba that resolves",
                given=only(CONDA),
            ),
            Cause(
                "conda-virtual-package",
                "The package requires something of the machine that conda does not find: a driver (__cuda), a newer "
                "glibc (__glibc), or another system.",
                "`conda info` lists the virtual packages. On a machine without a GPU: `export "
                "CONDA_OVERRIDE_CUDA=12.8`.",
                tell="the missing package begins with two underscores",
                given=text_must_have(r"nothing provides __|__(?:cuda|glibc|linux|unix)\b"),
            ),
        ),
        more=VERIFY,
        kind="uv",
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
                "The installed datasets release is older than fsspec and does not work with it.",
                "`pip install -U datasets`",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "version-check",
        "huggingface-hub>=0.23.2,<1.0 is required for a normal functioning of this module, but found 1.1.2.",
        (
            r"(\b[\w.<>=!~,-]{1,80}) is required for a normal functioning of this module",
            r"((?:MMCV|mmdet|mmengine)==\S+) is used but incompatible",
            r"VersionConflict: \(([\w.-]+)",
            r"Using `[^`]+` requires `?([\w-]+)[^\n]{0,20}[`:]",
            r"(?:requires|needs) (?:the latest version of )?`?(?:(?:pip|"
            r"uv) install (?:-U )?)?([\w-]+`?[<>=~!]=?[\d.]+)"
            r"[^\n]{0,80}(?:but|found|installed|you have)",
            r"^\w*(?:Error|Exception): ([\w.-]+ ?(?:>=|==|~=) ?[\d.]+) (?:is|are) required",
            r"requires the latest version of `?([\w-]+)",
            r"install the latest version of `?(\w+)`?",
        ),
        (
            Cause(
                "version-check",
                "A package requires another release of a package than the installed one ({0}), or the package is "
                "missing.",
                "Install what the message names, such as `pip install 'huggingface-hub>=0.34,<1.0'`. If another "
                "package then complains, upgrade both in one command.",
                tell="`python -m pip list` shows another version",
                given=~NOTEBOOK,
            ),
            NOT_RESTARTED,
            OTHER_PYTHON,
        ),
        more=VERIFY,
        excludes=r"which is incompatible",
    ),
    Rule(
        "cannot-uninstall",
        "error: uninstall-no-record-file: Cannot uninstall PyYAML 6.0.1",
        (
            r"Cannot uninstall ['\"]?([\w.-]+)",
            r"uninstall-no-record-file",
            r"It is a distutils installed project",
            r"uninstall-distutils-installed-package",
        ),
        (
            Cause(
                "cannot-uninstall",
                "pip cannot replace a package that the system or conda installed ({0}).",
                "Work in a virtual environment: `uv venv`. Otherwise install it alongside: `pip install "
                "--ignore-installed PACKAGE`.",
                tell="the package lies in /usr/lib/python3/dist-packages or came with conda",
            ),
            Cause(
                "protected-package",
                "The package belongs to the project's base image and is protected ({0}).",
                "Remove its version from the command or from pyproject.toml; the base's version stays.",
                tell="the command ran in a project's container",
                given=CONTAINER,
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "torch-release",
        "AttributeError: module 'torch' has no attribute 'compiler'",
        (
            r"(?<!initialized )module '(?:torch(?:vision|audio)?(?:\.[\w.]+)?)' has no attribute '(\w+)'",
            r"No module named '(torch(?:vision|audio)?\.(?!version'|_C')[\w.]+)'",
            r"cannot import name '(\w+)' from '(?:torch\._\w+|torch(?:vision|audio|text)\.[\w.]+)'",
        ),
        (
            Cause(
                "torch-older-than-code",
                "A package or the program needs a newer torch, torchvision, or torchaudio: this one does not have {0} "
                "yet.",
                "Upgrade them together, `pip install -U torch torchvision torchaudio`, or install a release of the "
                "package that supports this torch.",
                tell="the release notes of a newer torch list it",
                given=text_has(
                    r"attribute '(?:compiler|compile|xpu|float8_\w+|u?int[1-7]|uint(?:16|32|64)|accelerator|mps|npu|"
                    r"register_pytree_node|custom_op|RMSNorm|GradScaler|get_default_device|vmap|func|export)'|"
                    r"torch\.(?:nn\.attention|distributed\.(?:tensor|device_mesh|_tensor|fsdp)|export|func|accelerator)"
                ),
            ),
            Cause(
                "torch-newer-than-code",
                "A package or the program is older than this torch, torchvision, or torchaudio, which no longer has "
                "{0}.",
                "Upgrade the package that the traceback's last lines belong to. If there is no newer release, install "
                "the torch that its documentation names, in a new environment.",
                tell="older torch releases have it",
                given=text_has(
                    r"functional_tensor|torch\._six|container_abcs|torchtext|attribute '(?:rfft|irfft|gesv|symeig|qr|"
                    r"lstsq|"
                    r"solve|set_audio_backend|get_audio_backend|list_audio_backends|info|load|save|_utils_internal)'|"
                    r"torchaudio\.(?:backend|io|sox_effects|_backend)|_torch_docs|legacy"
                ),
            ),
            replace(
                MIXED_INSTALL,
                id="mixed-torch-files",
                why="torch's files are incomplete or of two releases, or a file of the project is named like torch.",
                tell="`python -c 'import torch; print(torch.__file__, torch.__version__)'` fails or names the project",
                given=text_has(
                    r"torch\.(?:_C|_utils|nn|utils|cuda|serialization)'|attribute '(?:Tensor|nn|_C|__version__)'"
                ),
            ),
        ),
        more=VERIFY,
        level=BROAD,
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
            r"albumentations)\b)[\w.]*'?",
            r"cannot import name '?\w+'? from '?(\w+)[\w.]*'? \(/\S*(?:site|dist)-packages/",
            r"module '?((?:transformers|huggingface_hub|diffusers|accelerate|peft|datasets|trl|tokenizers|timm|"
            r"scipy|pandas|pydantic|PIL(?:\.\w+)?|pytorch_lightning|torchmetrics|vllm|xformers|bitsandbytes|"
            r"triton|cv2|deepspeed|jax|tensorflow|tensorflow\.\w+|typing_extensions)(?:\.[\w.]+)?)'? has no attribute",
        ),
        (OTHER_RELEASE, NOT_RESTARTED, SHADOWED),
        more=VERIFY,
        level=BROAD,
    ),
    Rule(
        "other-python",
        "ModuleNotFoundError: No module named 'torch'",
        (r"No module named '?(torch)'?(?![\w.])", r"(torchrun): (?:command )?not found"),
        (
            UV_RUN,
            replace(OTHER_PYTHON, given=~NOTEBOOK),
            replace(NEEDS_TORCH, given=only(text_has(r"pip install|setup\.py|egg_info|build_wheel|pip-build-env"))),
            Cause(
                "torch-not-installed",
                "torch is not installed in this environment.",
                "Install it with the command from https://pytorch.org/get-started/locally/. A project's container has "
                "it.",
                tell="no environment on this machine has torch",
            ),
            Cause(
                "notebook-other-python",
                "The notebook's kernel is another Python than the one in which torch was installed.",
                "Select the environment with torch as the kernel. In the notebook, install with `%pip install torch`, "
                "which uses its own Python.",
                tell="it fails in a notebook and works in a terminal",
                given=only(NOTEBOOK),
            ),
            replace(NEEDS_TORCH, given=unless_text_has(NOT_ISOLATED, "torchrun")),
        ),
        more=VENV,
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
                "no-ipykernel",
                "The Python that the notebook selects has no ipykernel, which every notebook kernel needs.",
                "`python -m pip install ipykernel` with that Python, or select another kernel.",
                tell="the kernel is in the list and does not start",
                given=text_has(r"ipykernel"),
            ),
            Cause(
                "kernel-not-registered",
                "The notebook names a kernel that is not registered on this machine.",
                "Select another kernel in the notebook. To register an environment: `python -m ipykernel install "
                "--user --name NAME`; `jupyter kernelspec list` shows those that exist.",
                tell="`jupyter kernelspec list` does not list it",
                given=text_has(r"NoSuchKernel|No such kernel"),
            ),
        ),
        more=JUPYTER,
    ),
    Rule(
        "jupyter-old-page",
        "404 GET /api/kernels/ad8301fd/channels: Kernel does not exist: ad8301fd",
        (r"Kernel does not exist: [0-9a-f-]{8,}",),
        (
            Cause(
                "jupyter-old-page",
                "Only a warning: a page in a browser asks for a kernel that no longer exists, because Jupyter or the "
                "kernel was restarted.",
                "Close the page and open the address that the running Jupyter prints: `jupyter server list`.",
            ),
        ),
        more=JUPYTER,
        level=NOTE,
    ),
    Rule(
        "jupyter-missing",
        "Jupyter command `jupyter-lab` not found.",
        (r"Jupyter command `?([\w-]+)`? not found", r"jupyter: '([\w-]+)' is not a Jupyter command"),
        (
            Cause(
                "jupyter-missing",
                "{0} is not installed in this environment, or its command is not on PATH.",
                "`pip install jupyterlab notebook`; if it is installed, `python -m jupyterlab` starts it.",
            ),
        ),
        more=JUPYTER,
    ),
    Rule(
        "jupyter-xsrf",
        "403 POST /api/sessions: '_xsrf' argument missing from POST",
        (r"'_xsrf' argument missing from POST|XSRF cookie does not match",),
        (
            Cause(
                "jupyter-xsrf",
                "The browser sends Jupyter no cookie, or that of another Jupyter on the same host name.",
                "Reload the page, or open it in a private window. Programs must send Jupyter's token in the "
                "`Authorization` header.",
            ),
        ),
        more=JUPYTER,
    ),
    Rule(
        "jupyter-root",
        "Running as root is not recommended. Use --allow-root to bypass.",
        (r"Running as root is not recommended\. Use --allow-root",),
        (
            Cause(
                "jupyter-root",
                "Jupyter refuses to run as root.",
                "Start it as another user (`docker run --user $(id -u):$(id -g) ...`), or with `--allow-root`. In a "
                "project: `./launch notebook`.",
                standalone="Start it as another user (`docker run --user $(id -u):$(id -g) ...`), or with "
                "`--allow-root`.",
            ),
        ),
        certain=True,
        more=JUPYTER,
    ),
    Rule(
        "base-would-change",
        "torch is 2.9.0 here and was 2.10.0a0 in the base",
        (r"([\w.-]+) is \S+ here and was \S+ in the base",),
        (
            Cause(
                "base-would-change",
                "A package replaced {0}, which the project's base image provides.",
                "Remove the package from pyproject.toml, or allow the base's version.",
            ),
        ),
        more=VERIFY,
        kind="build",
    ),
    Rule(
        "protected",
        "error: externally-managed-environment",
        (r"externally-managed-environment", r"This environment is externally managed"),
        (
            Cause(
                "protected",
                "The system manages this Python's packages and does not let pip install into it.",
                "Create an environment and install there: `python3 -m venv .venv && . .venv/bin/activate`. In a "
                "project: `./launch add PACKAGE`.",
                standalone="Create an environment and install there: `python3 -m venv .venv && . .venv/bin/activate`.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "conda-init",
        "CondaError: Run 'conda init' before 'conda activate'",
        (r"Run 'conda init' before 'conda activate'", r"has not been properly configured to use 'conda activate'"),
        (
            Cause(
                "conda-init",
                "conda is not set up in this shell, as in every script and Dockerfile step.",
                'Load it first: `. "$(conda info --base)/etc/profile.d/conda.sh"`. In a Dockerfile: `conda run -n NAME '
                "COMMAND`.",
            ),
        ),
        certain=True,
        more=VENV,
    ),
    Rule(
        "conda-no-environment",
        "EnvironmentNameNotFound: Could not find conda environment: py311",
        (r"EnvironmentLocationNotFound|EnvironmentNameNotFound|Could not find conda environment",),
        (
            Cause(
                "conda-no-environment",
                "conda has no environment of this name or in this folder.",
                "`conda env list` shows those that exist; `conda create -n NAME python=3.12` creates one.",
            ),
        ),
        certain=True,
        more=VENV,
    ),
    Rule(
        "conda-terms",
        "CondaToSNonInteractiveError: Terms of Service have not been accepted for the following channels.",
        (r"CondaToSNonInteractiveError|Terms of Service have not been accepted",),
        (
            Cause(
                "conda-terms",
                "Anaconda's default channels require you to accept their terms, and conda runs without a terminal.",
                "Use only conda-forge: `conda create -n NAME -c conda-forge --override-channels python`. To accept "
                "them: `conda tos accept --override-channels --channel CHANNEL`.",
            ),
        ),
        certain=True,
        more=VENV,
    ),
    Rule(
        "no-venv",
        "The virtual environment was not created successfully because ensurepip is not available.",
        (r"ensurepip is not available", r"No module named '?venv'?(?![\w.])"),
        (
            Cause(
                "no-venv",
                "Debian and Ubuntu ship Python's venv module as a package of its own, which is not installed.",
                "`sudo apt-get install python3-venv` (for another version such as 3.11: python3.11-venv), or create "
                "it with `uv venv`.",
            ),
        ),
        more=VENV,
    ),
    Rule(
        "uv-lock-newer",
        "error: Failed to parse `uv.lock`",
        (
            r"Failed to parse `?uv\.lock",
            r"Failed to parse lockfile",
            r"lock ?file (?:version|was (?:created|generated) (?:by|with))[^\n]{0,60}(?:newer|unsupported|"
            r"not supported|different)",
        ),
        (
            Cause(
                "uv-lock-newer",
                "uv.lock was written by a newer uv than this one.",
                "`uv self update` (or `pip install -U uv`), then try again.",
                tell="the file has no changes of your own",
            ),
            Cause(
                "uv-lock-broken",
                "uv.lock was edited by hand or contains the marks of a merge conflict.",
                "Write it again: `git checkout -- uv.lock && uv lock`. If that fails: `rm uv.lock && uv lock`.",
                tell="`git diff uv.lock` shows changes, or the file contains <<<<<<<",
                given=text_has(r"<{5,}|>{5,}|={5,}|more than one matching package|duplicate key"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "uv-lock",
        "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.",
        (r"The lockfile at `uv\.lock` needs to be updated", r"\buv\b[^\n]{0,60}lockfile[^\n]{0,40}out of date"),
        (
            Cause(
                "uv-lock",
                "pyproject.toml was changed after uv.lock was written.",
                "Run `uv lock` and commit both files.",
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "uv-python",
        "error: No interpreter found for Python 3.13 in managed installations or search path",
        (r"No interpreter found for (Python [\d.=<>~^]*[\d])", r"No download found for request: (\S+)"),
        (
            Cause(
                "uv-python",
                "{0} is not installed, and uv did not download it.",
                "Install it: `uv python install 3.12` with the version that is asked for; without network access, "
                "from your distribution. Or set requires-python in pyproject.toml to an installed version.",
                tell="`uv python list` shows the version for download",
            ),
            Cause(
                "uv-older-than-python",
                "This uv is older than {0} and does not know it.",
                "Update uv: `uv self update` (or `pip install -U uv`), then try again.",
                tell="`uv python list --all-versions` does not show the version",
            ),
        ),
        more=VERIFY,
        kind="uv",
    ),
    # Both as uv 0.13.9 prints them in a project outside its environments (tried 2026-11-23).
    Rule(
        "uv-unmanaged",
        "error: The project is marked as unmanaged: /home/ada/demo",
        (r"The project is marked as unmanaged",),
        (
            Cause(
                "uv-unmanaged",
                "pyproject.toml has `managed = false` under `[tool.uv]`, so uv neither changes the project's "
                "dependencies nor creates an environment for it.",
                "To add a package, run `./launch add PACKAGE`; to run a command, `./launch run -- COMMAND`. Without "
                "Docker: `./launch --native add PACKAGE`, `./launch --native run -- COMMAND`.",
                standalone="Use the project's own commands to add packages and to run programs. If uv should manage "
                "the "
                "project, remove `managed = false`.",
            ),
        ),
        certain=True,
        more=VENV,
    ),
    Rule(
        "uv-cannot-spawn",
        "error: Failed to spawn: jupyter\n  cause: No such file or directory (os error 2)",
        (r"^error: Failed to spawn: `?([\w./-]+)`?\s+(?:Caused by|cause): No such file",),
        (
            UV_RUN,
            Cause(
                "no-such-program",
                "There is no program or file {0} in the environment or on PATH.",
                "Check the name; for a module, use `uv run python -m MODULE`.",
                tell="`command -v NAME` finds nothing in the environment either",
            ),
        ),
        more=VENV,
    ),
    Rule(
        "uv-no-environment",
        "error: No virtual environment found; run `uv venv` to create an environment, or pass `--system`",
        (r"No virtual environment found; run `uv venv`",),
        (
            Cause(
                "uv-no-environment",
                "uv installs only into a virtual environment, and there is none.",
                "`uv venv`, then run the command again; in a Dockerfile, `uv pip install --system ...`.",
            ),
        ),
        certain=True,
        more=BUILD,
    ),
    Rule(
        "uv-disk-full",
        "error: failed to write to file `~/.cache/uv/archive-v0/torch.so` (os error 28)",
        (r"\(os error (?:28|122)\)", r"No space left on device|Disk quota exceeded"),
        (
            Cause(
                "uv-disk-full",
                "The disk is full, or its quota is used up: PyTorch with CUDA needs about 10 GB while it is installed.",
                "Free space, for example with `uv cache clean`, or move the cache and the environment to another "
                "disk: `UV_CACHE_DIR`, and `GPUKIT_NATIVE` in a project.",
            ),
        ),
        more=BUILD,
        level=GENERAL,
        kind="uv",
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
                "broken-download",
                "The downloaded file is incomplete or was changed on the way ({0}).",
                "Download it again without the cache: `pip install --no-cache-dir ...`, or `uv cache clean PACKAGE`.",
                tell="the second attempt shows another hash, or the network is slow",
            ),
            Cause(
                "old-hashes",
                "The lock file lists other files than the index has: it was written from another index or before "
                "files were added.",
                "Write the lock file again with the tool that made it: `uv lock --upgrade-package PACKAGE`, `poetry "
                "lock`, or `pip-compile --generate-hashes`.",
                tell="every attempt shows the same hash",
                given=text_has(r"not found in known hashes|\+cu\d+|\+cpu"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "python-library",
        "error while loading shared libraries: libpython3.11.so.1.0: cannot open shared object file",
        (r"(libpython3\.\d+m?\.so[.\d]*)[^\n]{0,10}: cannot open shared object file",),
        (
            Cause(
                "python-library",
                "The program does not find Python's library {0}, because it lies in an environment's folder that the "
                "loader does not search.",
                "Add the folder: `export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH` in a conda environment, "
                "otherwise the lib folder that `python -c 'import sys; print(sys.base_prefix)'` prints.",
                tell="`find / -name 'libpython3*' 2>/dev/null` finds it",
            ),
            Cause(
                "python-library-unreadable",
                "Python was installed in a folder that this user cannot read, such as root's home.",
                "Install it where all users can read it: `UV_PYTHON_INSTALL_DIR=/opt/python uv python install 3.12`.",
                tell="it works as root",
                given=text_has(r"/root/"),
            ),
            Cause(
                "other-python-built",
                "The package was built for another Python version, whose library {0} is not installed.",
                "Install the package's wheel for this Python, or that Python's library, such as `sudo apt-get install "
                "libpython3.11`.",
                tell="`python --version` prints another version",
                given=text_has(r"ImportError: libpython"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "system-library",
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        (
            r"(lib(?:GL|EGL|GLU|sndfile|OpenGL|X11|Xi)\.so\.\d|lib(?:gthread|glib)-2\.0\.so\.0|"
            r"lib(?:SM|ICE|Xext|Xrender)\.so\.\d|lib(?:ibverbs|rdmacm|numa|mpi|openblas|gomp|tcmalloc|jpeg|png16|"
            r"tiff|avcodec|avutil|ffi|ssl|crypto|xcb[\w-]*)\.so[\w.]*)[^\n]{0,10}: cannot open shared object file",
            r"OSError: (sndfile) library not found",
        ),
        (
            Cause(
                "system-library",
                "The system library {0} is not installed. Slim images leave it out.",
                apt("libgl1 libglib2.0-0") + " Other libraries have their own packages, such as libsndfile1, libnuma1, "
                "libgomp1, libibverbs1, or libopenmpi3; `apt-file search FILE` finds them.",
                tell="`ldconfig -p` does not list it",
                given=unless_text_has(r"lib(?:ssl|crypto)\.so\.1\.|lib(?:ffi|jpeg|tiff)\.so\.[4-7]\b"),
            ),
            Cause(
                "opencv-headless",
                "OpenCV's standard build needs the libraries of a desktop, which a container does not have.",
                "`pip uninstall -y opencv-python && pip install opencv-python-headless`",
                tell="the traceback passes through cv2, and the program opens no windows",
                given=text_has(r"\bcv2\b|opencv"),
            ),
            replace(OLD_LIBRARY, given=text_must_have(r"lib(?:ssl|crypto)\.so\.1\.|lib(?:ffi|jpeg|tiff)\.so\.[4-7]\b")),
        ),
        more=BUILD,
    ),
    Rule(
        "torchcodec",
        "RuntimeError: Could not load libtorchcodec. Likely causes: FFmpeg is not properly installed",
        (r"Could not load libtorchcodec",),
        (
            Cause(
                "no-ffmpeg-libraries",
                "torchcodec does not find FFmpeg's libraries, or FFmpeg's version is not one that it supports (4 to "
                "8).",
                apt("ffmpeg") + " In a conda environment: `conda install -c conda-forge 'ffmpeg<8'`.",
                tell="`ffmpeg -version` fails, or the details name libavutil",
                given=~text_has(r"undefined symbol"),
            ),
            Cause(
                "torchcodec-cuda-libraries",
                "torchcodec's build for CUDA does not find CUDA's own libraries (libnpp, libnvrtc, libcudart).",
                "Install the torchcodec that fits torch's CUDA, from the same `--index-url` as torch, or in conda also "
                "`conda install -c nvidia libnpp cuda-nvrtc`.",
                tell="the details name libnpp, libnvrtc, or libcudart",
                given=text_must_have(r"lib(?:npp\w+|nvrtc|cudart)\.so"),
            ),
            Cause(
                "torchcodec-other-torch",
                "This torchcodec was built for another torch.",
                "Install the torchcodec for this torch, as listed in torchcodec's README: `pip install "
                "'torchcodec==VERSION'`.",
                tell="the details contain `undefined symbol`",
                given=text_has(r"undefined symbol"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "ffmpeg",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
        (
            r"(ffmpeg): (?:command )?not found|No such file or directory: '(ff(?:mpeg|probe))'",
            r"Couldn't find appropriate backend to handle uri",
            r"No audio backend is available",
        ),
        (
            Cause(
                "ffmpeg",
                "The program that reads audio and video is not installed ({0}).",
                apt("ffmpeg") + " For torchaudio, also `pip install soundfile`.",
                tell="`ffmpeg -version` fails",
            ),
            Cause(
                "no-soundfile",
                "torchaudio has no package with which it can read audio files.",
                "`pip install soundfile` (for torchaudio 2.9 or newer: `pip install torchcodec`), then restart the "
                "program.",
                tell="`ffmpeg -version` works, and `python -c 'import soundfile'` fails",
                given=text_must_have(r"backend"),
            ),
        ),
        more=BUILD,
    ),
    Rule(
        "no-flash-attention",
        "FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn seems to be not installed.",
        (
            r"flash_attn seems to be not installed",
            r"FlashAttention\d? has been toggled on, but it cannot be used(?=[^\n]{0,60}(?:package|flash_attn))",
            r"No module named 'flash_attn'?",
            r"(?:Error|Exception)[^\n]{0,120}[Ff]lash[- _][Aa]ttn?(?:ention)? (?:\d )?(?:is )?not (?:installed|found)",
        ),
        (
            Cause(
                "no-flash-attention",
                "The program asks for the package flash-attn, which this environment does not have.",
                'Use PyTorch\'s own implementation: `attn_implementation="sdpa"`. Otherwise install a prebuilt wheel '
                "of flash-attn for this torch, CUDA, and Python.",
                tell="`pip show flash-attn` finds nothing",
                given=~capability_below("8.0"),
            ),
            Cause(
                "card-without-flash-attention",
                "flash-attn supports GPUs from compute capability 8.0 on (Ampere), and this GPU is older.",
                'Use PyTorch\'s own implementation: `attn_implementation="sdpa"`.',
                tell="`nvidia-smi --query-gpu=compute_cap --format=csv` prints less than 8.0",
                given=capability_below("8.0"),
            ),
            OTHER_PYTHON,
        ),
        more=VERIFY,
        excludes=r"flash[-_ ]att(?:entio)?n\W{0,2} package not found, consider",
    ),
    Rule(
        "no-such-user",
        "KeyError: 'getpwuid(): uid not found: 1000'",
        (
            r"(getpwuid\(\): uid not found)",
            r"I have no name!",
            r"cannot find name for user ID",
            r"No user exists for uid|You don't exist, go away|unknown uid",
        ),
        (
            Cause(
                "no-such-user",
                "The container runs as a user id that has no entry in its /etc/passwd, so programs such as "
                "torch.compile find no user name.",
                "Name the user in the environment: `docker run -e USER=user -e HOME=/tmp ...`. A "
                "project's `./launch run -- ...` gives the image your user.",
                tell="the program is Python",
                given=unless_text_has(r"No user exists for uid|You don't exist"),
                standalone="Name the user in the environment: `docker run -e USER=user -e HOME=/tmp ...`.",
            ),
            Cause(
                "no-passwd-entry",
                "ssh and git look up the user id in /etc/passwd, and the container has no entry for it.",
                "Mount the host's file, `docker run -v /etc/passwd:/etc/passwd:ro ...`, or create the user in the "
                "Dockerfile.",
                tell="ssh or git prints the message",
                given=text_must_have(r"No user exists for uid|You don't exist"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "deepspeed-op",
        "Unable to JIT load the fused_adam op due to it not being compatible due to hardware/software issue.",
        (
            r"Unable to JIT load the (\S+) op",
            r"(\w+) cuda is missing or is incompatible with installed torch",
            r"Unable to pre-compile (\w+)",
            r"'DeepSpeedCPUAdam' object has no attribute '(ds_opt_adam)'",
        ),
        (
            Cause(
                "deepspeed-op",
                "DeepSpeed compiles its operator on this machine, and the CUDA compiler or a library is missing or "
                "has another version than torch's CUDA.",
                "`ds_report` shows which operators can be compiled. Install the CUDA Toolkit of torch's CUDA version "
                "and "
                f"set `CUDA_HOME` to it. {WITH_COMPILER}",
                tell="the first error above names nvcc, CUDA_HOME, or a library",
                standalone="`ds_report` shows which operators can be compiled. Install the CUDA Toolkit of torch's "
                "CUDA "
                "version and set `CUDA_HOME` to it.",
            ),
            STALE_EXTENSION,
        ),
        more=VERIFY,
        level=BROAD,
    ),
    Rule(
        "compiled-part-missing",
        "ImportError: cannot import name '_C' from 'groundingdino'",
        (
            r"cannot import name '_\w*[Cc]\w*' from (?:partially initialized module )?'(\w+)[\w.]*'",
            r"No module named '(\w+)(?:\.\w+)*\.(?:_C\w*|_ext|_cuda|cuda_ext|version)'",
            r"name '_C' is not defined",
            r"No module named '(\w+)_(?:cuda|cpp|ext|C|cuda_ext|_ext)'",
            r"torch_extensions/\S+?/(\w+)\.so: cannot open shared object",
            r"'NoneType' object has no attribute 'origin'",
        ),
        (NOT_COMPILED, SHADOWED, STALE_EXTENSION),
        more=VERIFY,
        level=BROAD,
    ),
    Rule(
        "op-backend",
        "NotImplementedError: Could not run 'torchcodec_ns::create_from_tensor' with arguments from the 'CPU' backend.",
        (r"Could not run '((?!aten|prims?|quantized|xla|c10d|sparse|mkldnn)\w+::\w+)' with arguments from the '\w+'",),
        (
            replace(
                NOT_COMPILED,
                id="op-not-built",
                why="The package that provides {0} has no implementation for this device: it was built without CUDA, "
                "or for another torch.",
                tell="the device in the message is the intended one",
            ),
            Cause(
                "op-wrong-device",
                "The operator {0} got tensors on a device that it does not support.",
                "Move the tensors first: `tensor.cuda()`, or `tensor.cpu()`.",
                tell="the device in the message is not the intended one",
            ),
        ),
        more=VERIFY,
        level=BROAD,
    ),
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
            HOST_MEMORY,
            Cause(
                "notebook-kernel-crashed",
                "A compiled library crashed.",
                "Run the same code as a script: `python -X faulthandler script.py` prints the line.",
                tell="the script crashes as well",
                given=text_has(r"Segmentation fault|SIGSEGV|core dumped|exit code 139|signal 11"),
            ),
            Cause(
                "kernel-does-not-start",
                "The kernel's Python lacks ipykernel, or a file of the project has the name of a standard module.",
                "`python -m pip install -U ipykernel` with the kernel's Python; then look for files such as "
                "random.py or logging.py in the notebook's folder.",
                tell="it fails before the first cell runs",
                given=text_has(r"Failed to start the Kernel|No module named|Kernel died before replying"),
            ),
        ),
        more="`sudo dmesg | grep -i 'out of memory'`",
        level=BROAD,
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
                "A compiled package uses instructions, such as AVX2, that this processor does not have.",
                "Find it with `python -X faulthandler -c 'import PACKAGE'`, then install a build for older processors "
                "or build it here.",
                tell="`lscpu` does not list avx2, and it is no virtual machine",
                given=~ARM64,
            ),
            Cause(
                "vm-cpu-type",
                "The virtual machine hides instructions that the processor has.",
                "Set the virtual machine's CPU type to `host`.",
                tell="it is a virtual machine with a CPU type such as kvm64 or qemu64",
                given=~ARM64,
            ),
            Cause(
                "arm-openblas",
                "NumPy's OpenBLAS does not detect the arm64 processor correctly, as on Jetsons.",
                "`export OPENBLAS_CORETYPE=ARMV8`, or install a newer NumPy.",
                tell="it is an arm64 machine, and `import numpy` fails",
                given=ARM64,
            ),
        ),
        more=VERIFY,
        level=BROAD,
    ),
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
                "no-display",
                "The program opens a window, and there is no display, as in a container or over ssh.",
                "Write files instead: `export MPLBACKEND=Agg` for matplotlib, opencv-python-headless for OpenCV, "
                "`export MUJOCO_GL=egl` or an option such as --headless for simulators.",
                tell="`echo $DISPLAY` prints nothing",
                given=unless_text_has(r"No protocol specified"),
            ),
            Cause(
                "display-refused",
                "A display is set, and it refuses the connection or is not mounted into the container.",
                "On the machine: `xhost +local:`, then start the container with `-e DISPLAY -v "
                "/tmp/.X11-unix:/tmp/.X11-unix`.",
                tell="`echo $DISPLAY` prints a value",
                given=text_has(
                    r"No protocol specified|Authorization required|cannot (?:open|connect to) (?:X )?display:? ?\"?:\d"
                ),
            ),
            Cause(
                "qt-mixed",
                "Qt's own libraries are missing, or OpenCV's copy of Qt replaces the one of PyQt.",
                "`pip uninstall -y opencv-python && pip install opencv-python-headless`, and `sudo apt-get install "
                "libxcb-cursor0 libxkbcommon-x11-0`.",
                tell="`QT_DEBUG_PLUGINS=1` names a file that cannot be loaded",
                given=text_has(r"cv2/qt/plugins|even though it was found|libxcb"),
            ),
        ),
        more=VERIFY,
        level=BROAD,
    ),
    Rule(
        "shadowed",
        "partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular import)",
        (
            r"partially initialized module '([\w.]+)'[^\n]{0,80}most likely due to a circular import",
            r"cannot import name '[^']+' from '([\w.]+)' \(unknown location\)",
        ),
        (
            SHADOWED,
            MIXED_INSTALL,
            Cause(
                "circular-import",
                "Two of the program's modules import each other.",
                "Move one of the imports into the function that uses it.",
                tell="both files in the traceback are the program's own",
            ),
        ),
        more=VENV,
        level=BROAD,
    ),
    Rule(
        "locale",
        "UnicodeEncodeError: 'ascii' codec can't encode character",
        (r"'ascii' codec can't (?:en|de)code", r"configured to use ASCII as encoding", r"unsupported locale setting"),
        (
            Cause(
                "locale",
                "No UTF-8 locale is set, so Python reads and writes ASCII only.",
                "`export LANG=C.UTF-8 PYTHONUTF8=1` (in a Dockerfile: `ENV LANG=C.UTF-8`); in code, "
                '`open(path, encoding="utf-8")`.',
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "triton-module",
        "ModuleNotFoundError: No module named 'triton'",
        (r"No module named '?triton'?(?![\w.])",),
        (
            Cause(
                "triton-module",
                "Triton, which torch.compile and many packages use, is not installed: torch's CUDA wheels for Linux "
                "bring it, and this torch is another build or Triton was removed.",
                "`pip install triton`, or reinstall torch's build for CUDA.",
                tell="it runs in Linux",
                given=~WINDOWS,
            ),
            Cause(
                "triton-on-windows",
                "Triton has no official builds for Windows.",
                "`pip install triton-windows` in a version for this torch, or use WSL 2.",
                tell="it runs in Windows",
                given=WINDOWS,
            ),
            CPU_BUILD,
        ),
        more=VERIFY,
        level=GENERAL,
        excludes=r"A matching Triton is not available|some optimizations will not be enabled",
    ),
    Rule(
        "kernels-not-loaded",
        "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        (
            r"Could not load any \w+ library",
            r"(?:Failed|Unable) to (?:load|import) (?:the )?(?:custom |CUDA |C\+\+ |native )+(?:ops|kernels?|"
            r"extensions?)",
            r"(?:ops|kernels?|extensions?) (?:could not|cannot|can't) be (?:loaded|imported)",
        ),
        (
            OTHER_TORCH,
            NOT_COMPILED,
            Cause(
                "kernels-lack-library",
                "A library that the compiled part needs is missing, or was built for another CUDA version.",
                "`ldd FILE.so | grep 'not found'` on the package's .so files names it. Install the package's build for "
                "torch's CUDA version, or the library, such as `sudo apt-get install libnuma1`.",
                tell="the lines above name a file that cannot be opened",
                given=text_has(r"cannot open shared object"),
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        requires=r"torch|cuda|GPU|triton|python|_kernel|\.so\b",
    ),
    Rule(
        "windows-library",
        "ImportError: DLL load failed while importing _C: The specified module could not be found.",
        (r"DLL load failed while importing (\S+?):", r"OSError: \[WinError (?:126|127|193|1114)\]"),
        (
            Cause(
                "no-vc-runtime",
                "A library that the package needs is not installed in Windows, mostly Microsoft's Visual C++ runtime.",
                "Install the latest Visual C++ Redistributable (x64) from Microsoft, then restart the program.",
                tell="torch itself cannot be imported",
                given=text_has(r"torch\\lib|fbgemm|c10\.dll|shm\.dll|vcruntime|msvcp"),
            ),
            replace(OTHER_TORCH, tell="torch can be imported, and the other package cannot", given=None),
            Cause(
                "windows-other-python",
                "The package was built for another Python version or for 32 bits.",
                "Install it again with the Python that runs the program: `python -m pip install --force-reinstall "
                "PACKAGE`.",
                tell="the message says `not a valid Win32 application`",
                given=text_has(r"not a valid Win32|WinError 193"),
            ),
        ),
        more=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "part-missing",
        "ModuleNotFoundError: No module named 'transformers.deepspeed'",
        (r"No module named '(\w+\.[\w.]+)'",),
        (
            replace(
                OTHER_RELEASE,
                id="module-of-other-release",
                why="The installed release of the package does not have {0}: it is newer or older than the code "
                "expects.",
                given=text_has(r"(?:site|dist)-packages/"),
            ),
            replace(
                SHADOWED,
                tell="the first part of the name is a folder of the program, or another package has the same name",
                given=unless_text_has(r"(?:site|dist)-packages/"),
            ),
            Cause(
                "part-apart",
                "{0} is a part that is installed separately.",
                "Install the package's extra or its additional package, as its documentation says, such as `pip "
                "install 'PACKAGE[all]'`.",
                tell="its documentation names an extra",
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        program=True,
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
            NOT_INSTALLED,
            NOT_RESTARTED,
            Cause(
                "installed-but-broken",
                "The package is installed but cannot be imported, so the package that needs it reports it as missing "
                "({0}).",
                "Import it by itself to see the error: `python -c 'import PACKAGE'`.",
                tell="`python -m pip list` has it",
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        requires=r"Error|Exception",
    ),
    Rule(
        "undefined-symbol",
        "ImportError: _ext.so: undefined symbol: _Z8nms_cuda",
        (r"undefined symbol:? (\w+)",),
        (
            replace(
                NOT_COMPILED,
                id="cuda-part-not-compiled",
                why="The package's compiled file lacks {0}: it was built without its CUDA part.",
                tell="the symbol's name contains cuda or gpu",
                given=text_has(r"undefined symbol:? \w*(?:cuda|gpu)"),
            ),
            Cause(
                "other-library-version",
                "The compiled file expects another version of a library than the one that is loaded: {0} is not in it.",
                f"Install a build for this environment, or build it again here: {REBUILD}. `ldd FILE.so` lists the "
                "libraries.",
                tell="the symbol belongs to another library",
            ),
            STALE_EXTENSION,
        ),
        more=VERIFY,
        level=GENERAL,
        requires=r"\.py\b|python|Import ?error|torch|site-packages|_ext\b|cuda|^undefined symbol",
    ),
    Rule(
        "library-missing",
        "libfoo.so.3: cannot open shared object file: No such file or directory",
        (r"(?<!dlerror: )(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",),
        (
            Cause(
                "library-missing",
                "The library {0} is not installed on this system.",
                "Install the package that provides it: `apt-file search FILE` names it (in conda: `conda install -c "
                "conda-forge PACKAGE`). In a project, add it to apt.txt and rebuild the image.",
                tell="`find / -name 'FILE*' 2>/dev/null` finds nothing",
            ),
            Cause(
                "library-not-found",
                "The library {0} is installed in a folder that the loader does not search.",
                "`export LD_LIBRARY_PATH=FOLDER:$LD_LIBRARY_PATH` (in conda: $CONDA_PREFIX/lib).",
                tell="`find / -name 'FILE*' 2>/dev/null` finds it",
                given=text_has(r"/envs/|conda|/opt/|/home/"),
            ),
            OLD_LIBRARY,
        ),
        more=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "header-missing",
        "fatal error: libpq-fe.h: No such file or directory",
        (
            r"fatal error: '?([\w./+-]+\.h(?:pp)?)'?(?: file not found|: No such file)",
            r"ld: cannot find -l([\w.+-]+)",
            r"(?:static library(?! kineto)|shared library|Dependency|Run-time dependency) \W?([\w.+-]+)\W? "
            r"(?:not found|found: NO)",
        ),
        (
            Cause(
                "header-missing",
                "A package is compiled here, and the development files of a library ({0}) are not installed.",
                "Install the library's development package, mostly named lib...-dev: `apt-file search FILE` names it "
                "(in conda: `conda install -c conda-forge PACKAGE`). A prebuilt wheel of the package needs none.",
                tell="`find / -name 'FILE*' 2>/dev/null` finds nothing",
            ),
            HEADER_ELSEWHERE,
            replace(
                SUBMODULES,
                given=text_must_have(
                    r"(?:third_?party|extern(?:al)?|submodules?|deps|libs?|cutlass|pybind11|csrc|glm)/\S*\.(?:h|c)"
                ),
            ),
        ),
        more=BUILD,
        level=GENERAL,
        program=True,
    ),
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
            replace(
                TOO_OLD_FOR_TORCH, given=text_has(r"(?:at|torch|c10)::|error: (?:no |identifier|namespace|'class)")
            ),
            Cause(
                "compile-missing-file",
                "C++ or CUDA code does not compile, because a compiler, header, or library is missing.",
                "Search the output above for the first line with `error:`; it names the file. A prebuilt wheel of the "
                "package needs no compiler.",
                tell="the first `error:` line says `No such file` or `cannot find`",
                given=text_has(r"No such file|cannot find -l|not found"),
            ),
            BUILD_MEMORY,
        ),
        more=VERIFY,
        level=GENERAL,
        requires=r"torch|cuda|nvcc|\bpip\b|python|\.py\b|setup|ninja|cmake|extension|CalledProcessError|error: command",
    ),
    Rule(
        "wheel-not-built",
        "ERROR: Failed building wheel for flash-attn",
        (
            r"Failed building wheel for (\S+)",
            r"Could not build wheels for (\S+?),?\s",
            r"Failed to build `?([\w.@=-]+)",
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
                "wheel-not-built",
                "No wheel of the package ({0}) fits this Python, processor, and torch, so it is built here, and its "
                "build fails.",
                "Install a release or file that has a wheel for this Python: `pip install --only-binary :all: "
                "PACKAGE` finds one if it exists. Otherwise the first `error:` line above names what the build lacks.",
                tell="the lines above name a missing compiler, header, or GPU",
            ),
            replace(
                TOO_OLD_FOR_PYTHON,
                given=text_has(r"distutils|ImpImporter|pkg_resources|use_2to3|SyntaxError|configparser"),
            ),
            replace(
                NEEDS_TORCH, given=text_has(r"No module named '?(?:torch|numpy|packaging|wheel)|[Rr]equires PyTorch")
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        kind="uv",
        excludes=r"(?:Failed building wheel|subprocess-exited-with-error|\.\.\. error)[\s\S]*\bSuccessfully installed ",
    ),
    Rule(
        "no-module",
        "ModuleNotFoundError: No module named 'einops'",
        (r"(?:^|[^\w])No module named '?(?!(?:triton|flash_attn)\b)([\w-]+)(?![\w.-])",),
        (
            UV_RUN,
            NOT_INSTALLED,
            OTHER_PYTHON,
            Cause(
                "module-of-the-program",
                "{0} is a module of the program itself, which was started from another folder.",
                "Start it from the program's main folder, or add that folder: `export PYTHONPATH=$PWD`.",
                tell="the program's source has a file or folder of this name",
            ),
        ),
        more=VENV,
        level=GENERAL,
        program=True,
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
                "The code uses something that a newer release ({0}) of the package removed.",
                "Use what the message names instead, or install an older release of that package.",
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        program=True,
        requires=r"Error|Exception",
    ),
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
            replace(
                OTHER_RELEASE,
                id="other-version",
                why="The code asks for something that the installed release of a package does not have ({0}): the "
                "release is newer or older than the code expects.",
                given=text_has(r"(?:site|dist)-packages/"),
            ),
            Cause(
                "own-call",
                "The program's own code asks for something that does not exist in the installed release, or misspells "
                "it.",
                "Check the call against the documentation of the installed release: `pip show PACKAGE` prints it.",
                tell="the traceback's last frame lies in the program's own file",
            ),
            SHADOWED,
        ),
        more=VERIFY,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "no-command",
        "bash: htop: command not found",
        (r"(?:sh|bash)(?:: line \d+)?: (?:\d+: )?([\w.-]+): (?:command )?not found", r"^([\w.-]+): command not found"),
        (
            Cause(
                "no-command",
                "The command {0} is not installed here.",
                "Install the package that provides it with `sudo apt-get install`; in a project, add it to apt.txt "
                "and rebuild the image.",
                tell="`find / -name NAME -type f 2>/dev/null` finds nothing",
            ),
            Cause(
                "command-not-on-path",
                "{0} is installed in a folder that is not on PATH, such as an environment that is not activated.",
                "Activate the environment, or add the folder: `export PATH=$HOME/.local/bin:$PATH`.",
                tell="`find / -name NAME -type f 2>/dev/null` finds it",
            ),
        ),
        more=BUILD,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "uv-copies",
        "warning: Failed to hardlink files; falling back to full copy.",
        (r"Failed to (?:hardlink|clone|reflink) files; falling back to full copy",),
        (
            Cause(
                "uv-copies",
                "Only a warning: uv's cache and the environment are on different disks, so files are copied.",
                "`export UV_LINK_MODE=copy` hides it.",
            ),
        ),
        more=BUILD,
        level=NOTE,
    ),
    Rule(
        "pip-cache",
        "WARNING: The directory '/home/dev/.cache/pip' or its parent directory is not owned or is not writable",
        (r"or its parent directory is not owned or is not writable",),
        (
            Cause(
                "pip-cache",
                "Only a warning: pip works without its cache, because the folder belongs to another user.",
                '`sudo chown -R "$USER" ~/.cache/pip` makes it usable.',
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "pip-warns-of-conflict",
        "foo 1.0 requires bar<2, but you have bar 2.1 which is incompatible.\nSuccessfully installed bar-2.1",
        (r"which is incompatible[\s\S]*\bSuccessfully installed ",),
        (
            Cause(
                "pip-warns-of-conflict",
                "The installation succeeded. pip warns that another installed package asks for a different version.",
                "If you use that package, install both in one command; `pip check` lists them.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "tensorflow-on-cpu",
        "Could not load dynamic library 'libcudart.so.11.0'\nIgnore above cudart dlerror if you do not have a GPU",
        (
            r"Could not load dynamic library[\s\S]{0,400}?Ignore above cudart dlerror|"
            r"Ignore above cudart dlerror if you",
        ),
        (
            Cause(
                "tensorflow-on-cpu",
                "Only a warning: TensorFlow found no CUDA libraries and runs on the CPU. PyTorch is not affected.",
                "If TensorFlow should use the GPU: `pip install -U 'tensorflow[and-cuda]'`.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "triton-optional",
        "A matching Triton is not available, some optimizations will not be enabled.",
        (r"A matching Triton is not available|some optimizations will not be enabled",),
        (
            Cause(
                "triton-optional",
                "Only a warning: xFormers works without Triton, without some of its optimizations.",
                "`pip install triton` in Linux, `pip install triton-windows` in Windows, if you want them.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "flash-attention-optional",
        "`flash-attention` package not found, consider installing for better performance",
        (r"flash[- _]att(?:entio)?n\W{0,2}(?: package| \d)?[^\n]{0,20}(?:not installed|not found)",),
        (
            Cause(
                "flash-attention-optional",
                "Only a warning: the program uses another implementation of attention, because flash-attn is not "
                "installed.",
                'Nothing is needed: PyTorch\'s own (`attn_implementation="sdpa"`) is about as fast.',
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "jupyter-widgets",
        "IProgress not found. Please update jupyter and ipywidgets.",
        (r"IProgress not found\. Please update jupyter and ipywidgets",),
        (
            Cause(
                "jupyter-widgets",
                "Only a warning: progress bars in notebooks need ipywidgets.",
                "`pip install -U ipywidgets`, then restart the kernel.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "locale-warning",
        "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)",
        (r"setlocale: \w+: cannot change locale|cannot change locale",),
        (
            Cause(
                "locale-warning",
                "Only a warning: the locale that the environment names is not installed here.",
                "`export LC_ALL=C.UTF-8` hides it.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "torchvision-images",
        "UserWarning: Failed to load image Python extension",
        (r"Failed to load image Python extension",),
        (
            Cause(
                "torchvision-images",
                "Only a warning: torchvision's own image reader does not load, because libjpeg or libpng is missing "
                "or torchvision was built for another torch. Reading images with Pillow works.",
                "If you use `torchvision.io`, install torch and torchvision together, from the same index.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
)
