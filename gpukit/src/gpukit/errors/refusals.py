"""What an engine's error means, in one sentence with the remedy. Old and new wordings stand side by side."""

from __future__ import annotations

import re
from collections.abc import Collection

from gpukit.project.messages import RefusalError

TOOLKIT = (
    "install NVIDIA's Container Toolkit, then run "
    "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
)
CDI = "run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and restart Docker"
BUILDING = ("engine", "disk", "image", "build")  # the kinds that a build can meet; its steps may print anything
DOWN = "docker-not-running"
WITHOUT_GPU = " Without a GPU: `./launch --cpu ...`."

# Its id and kind, what the engine says, and what that means. The first that matches counts; {0} is its first group.
RULES = [
    (
        "docker-denied",
        "engine",
        r"permission denied while trying to connect|docker\.sock: connect: permission denied|"
        r"permission denied.{0,80}docker daemon socket",
        "Docker does not let this user in: run `sudo usermod -aG docker $USER` and log in again.",
    ),
    (
        "docker-not-running",
        "engine",
        r"Cannot connect to the Docker daemon|failed to connect to the docker API|Is the docker daemon running|"
        r"error during connect|docker\.sock: connect:|docker_engine: The system cannot find",
        "Docker does not respond: start it with `sudo systemctl start docker`, or open Docker Desktop.",
    ),
    (
        "docker-client-too-old",
        "engine",
        r"client version \S+ is too old\. Minimum supported API version",
        "The Docker client is too old for this engine: update it.",
    ),
    (
        "docker-plugin",
        "engine",
        r"is not a docker command|unknown shorthand flag: 'f' in -f",
        "Docker Compose v2 is missing: install the package docker-compose-plugin.",
    ),
    (
        "docker-plugin",
        "engine",
        r"--mount option requires BuildKit|buildx component is missing|BuildKit is enabled but the buildx",
        "Docker's builder is missing: install the package docker-buildx-plugin.",
    ),
    (
        "no-gpu-driver",
        "gpu",
        r"could not select device driver",
        f"Docker cannot give containers GPUs: {TOOLKIT}.",
    ),
    (
        "no-gpu-vendor",
        "gpu",
        r"failed to discover GPU vendor from CDI|no known GPU vendor found",
        f"Docker finds no GPU: install NVIDIA's Container Toolkit, then {CDI}.",
    ),
    (
        "no-such-gpu-here",
        "gpu",
        r"unresolvable CDI devices? nvidia\.com/gpu=(?!all\b)([\w:.-]+)",
        "There is no GPU {0} on this machine: `nvidia-smi -L` lists those that are there, GPUS chooses one; "
        f"if it exists, {CDI}.",
    ),
    (
        "cdi-stale",
        "gpu",
        r"unresolvable CDI device|CDI device injection failed|failed to stat CDI host device|"
        r"failed to fulfil mount request: .{0,120}(?:nvidia|cuda)",
        f"Docker's list of GPUs is missing or old: {CDI}.",
    ),
    (
        "nvidia-runtime-unknown",
        "gpu",
        r"unknown or invalid runtime name: nvidia|unknown runtime specified nvidia",
        f"Docker does not find NVIDIA's container runtime: {TOOLKIT}.",
    ),
    (
        "nvidia-runtime-missing",
        "gpu",
        r"nvidia-container-(?:runtime|cli|toolkit)(?:-hook)?\W.{0,40}(?:not found|no such file)",
        f"Docker does not find NVIDIA's container runtime: {TOOLKIT}.",
    ),
    (
        "driver-updated",
        "gpu",
        r"driver/library version mismatch|nvml error: .*version mismatch",
        "The NVIDIA driver was updated but the old one is still loaded: restart this machine.",
    ),
    (
        "driver-too-old",
        "gpu",
        r"unsatisfied condition: (?:cuda *>= *([\d.]+)|\w+)",
        "The NVIDIA driver is too old for this image (it asks for CUDA {0}): install a newer driver; "
        "`./launch doctor` says from which version on.",
    ),
    (
        "no-such-gpu-here",
        "gpu",
        r"(?:unknown device(?: id)?|invalid device(?: id| index)?|no such device|device not found)[:= \"]+([\w:.-]+)|"
        r"device error: ([\w.-]+(?::\d+)?)",
        "There is no GPU {0} on this machine: `nvidia-smi -L` lists those that are there, GPUS chooses one.",
    ),
    ("wsl-driver", "gpu", r"no adapters were found", "WSL sees no NVIDIA GPU: update the NVIDIA driver of Windows."),
    (
        "rootless-cgroups",
        "gpu",
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted",
        "This engine may not open the GPU's devices to a container, because it is rootless or itself in a container: "
        "use root's engine, or give it its GPUs by CDI.",
    ),
    (
        "driver-unseen",
        "gpu",
        r"load library failed: libnvidia-ml\.so",
        "Docker does not see the NVIDIA driver's libraries: `nvidia-smi` must work here first, "
        "and Docker must not be Docker Desktop or a snap.",
    ),
    (
        "driver-files-in-image",
        "gpu",
        r"mount error: file creation failed: [^\n]{0,300}?(lib[\w-]+\.so[\w.]*): file exists",
        "The image contains a file of the driver, {0}: remove it with `rm` in the Dockerfile.",
    ),
    (
        "driver-silent",
        "gpu",
        r"driver not loaded|libnvidia-ml\.so|nvidia-container-cli: initialization error|"
        r"Failed to initialize NVML|nvml error|driver rpc error|nvidia-container-cli: ",
        "The NVIDIA driver does not respond on this machine: `nvidia-smi` must work first.",
    ),
    (
        "gpus-form",
        "gpu",
        r'invalid argument .* for "--gpus" flag',
        "GPUS must be `all`, indexes such as `0` or `0,1`, or the UUID of a GPU.",
    ),
    (
        "disk-full",
        "disk",
        r"no space left on device|disk quota exceeded",
        "The disk is full: `./launch clean` and `docker system df` show what can be removed.",
    ),
    (
        "registry-rate",
        "image",
        r"toomanyrequests|pull rate limit",
        "The registry limits anonymous pulls: log in with `docker login`.",
    ),
    (
        "other-processor",
        "image",
        r"no match for platform in manifest|exec format error|no matching manifest for",
        "The base image is not for this machine's processor: choose another with `copier update --data hardware=...`.",
    ),
    (
        "registry-login",
        "image",
        r"(?:resolve source metadata for |pull access denied for |load metadata for |manifest for )(\S+?)[:,]? .*?"
        r"(?:unauthorized|authentication required|access denied|denied:|authorization failed|403 Forbidden)",
        "You have no access to {0}: check its name, then `docker login` to that registry.",
    ),
    (
        "image-missing",
        "image",
        r"(?:resolve source metadata for |load metadata for |manifest for )(\S+?)[:,]? .*?"
        r"(?:not found|manifest unknown|does not exist)",
        "The image {0} does not exist: set another with BASE_IMAGE=... or in the Dockerfile's ARG BASE_IMAGE.",
    ),
    (
        "image-unreachable",
        "image",
        r"(?:resolve source metadata for |load metadata for |failed to pull and unpack image \"?)(\S+?)[:,\"]? |"
        r"Error response from daemon: Get \"?(https?://[^/\"]+)",
        "{0} cannot be fetched: check network and proxy, or name a mirror with BASE_IMAGE=...",
    ),
    (
        "mount-source-missing",
        "mount",
        r"bind source path does not exist: (.*)",
        "{0} does not exist, and devcontainer.json mounts it: create that folder, or remove the mount.",
    ),
    (
        "mount-fails",
        "mount",
        r"mounting \"(.*?)\" to rootfs.*not a directory|Are you trying to mount a directory onto a file",
        "A mount in devcontainer.json maps a file to a folder, or a folder to a file ({0}): move the file away, "
        "or remove the mount.",
    ),
    (
        "network-missing",
        "network",
        r"network (\S+) not found",
        "Docker's network {0}, which runArgs asks for, is missing: create it with `docker network create {0}`.",
    ),
    (
        "port-in-use",
        "port",
        r"(?:port is already allocated|address already in use|ports are not available)",
        "That port is in use on this machine.",
    ),
    (
        "name-taken",
        "name",
        r"container name \"?/?([^\" ]+)\"? is already in use",
        "A container named {0} exists already: `./launch stop` stops it.",
    ),
    (
        "limits-refused",
        "limit",
        r"error setting rlimit|rlimits?.{0,60}operation not permitted",
        "This engine may not set the limits in devcontainer.json: remove the --ulimit lines from runArgs.",
    ),
    (
        "no-such-command",
        "command",
        r'exec:? "?([^\s"]+)"?(?: failed)?: (?:executable file not|stat .*no such|no such file|permission denied)',
        "The container has no command `{0}`: check its name, and that it is executable.",
    ),
    (
        "index-unreachable",
        "image",
        r"Failed to fetch:? `?(https?://[^/\s`]+)",
        "The build cannot reach {0}: check network and proxy, or name a mirror, for PyTorch with UV_INDEX=pytorch=URL.",
    ),
    (
        "base-would-change",
        "build",
        r"([\w.-]+) is \S+ here and was \S+ in the base",
        "The build would change {0}, which comes with the base image: the guard's message above says what to do.",
    ),
    (
        "packages-contradict",
        "build",
        r"No solution found when resolving dependencies",
        "The requirements in pyproject.toml conflict with each other or with the base image: uv's message above "
        "names them.",
    ),
    (
        "build-failed",
        "build",
        r"ERROR: (?:failed to build: )?failed to solve: (?!process)(.*)",
        "The image cannot be built: {0}.",
    ),
    (
        "build-step-failed",
        "build",
        r"failed to solve: process",
        "The image cannot be built: a step of the Dockerfile failed; its output above says why.",
    ),
]


def classify(text: str, kinds: Collection[str] = ()) -> tuple[str, str, str] | None:
    """Id and kind of an engine's error and one sentence for it; None where it is not known, or not of these kinds."""
    for id, kind, pattern, sentence in RULES:
        found = None if kinds and kind not in kinds else re.search(pattern, text, re.IGNORECASE)
        if found:
            seen = next((group for group in found.groups() if group), "")
            sentence = sentence.replace("{0}", seen.strip().rstrip(".").replace("\n", " "))
            return id, kind, re.sub(r" \(\)| \(it asks for CUDA \)", "", sentence)
    return None


def identify(text: str) -> list[str]:
    """The id of an engine's error, if it is known."""
    known = classify(text)
    return [known[0]] if known else []


def explain(text: str, otherwise: str, cpu: bool = False, kinds: Collection[str] = ()) -> RefusalError:
    """The refusal for an engine's error; where nobody knows it, `otherwise` and the engine's own last line."""
    known = classify(text, kinds)
    if known:
        id, kind, sentence = known
        return RefusalError(sentence + (WITHOUT_GPU if kind == "gpu" and cpu else ""), kind=kind, id=id, output=text)
    lines = [line.strip() for line in text.splitlines() if not re.match(r"\s*$|.*--help|Usage:", line)]
    return RefusalError(f"{otherwise}: {lines[-1]}" if lines else f"{otherwise}.", output=text)
