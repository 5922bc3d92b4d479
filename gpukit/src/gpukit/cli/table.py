"""The commands. Adding one is an entry here, and the call in commands.py."""

from __future__ import annotations


class Command:
    """One entry of `--help`; arguments.py has its arguments, by name."""

    def __init__(
        self,
        text: str,
        arguments: list[str] | tuple[()] = (),
        common: bool = False,
        hidden: bool = False,
        own_parser: bool = False,
        run_options: bool = True,
        epilog: str = "",
    ) -> None:
        self.text = text
        self.arguments = arguments
        self.epilog = epilog
        self.common = common  # --help describes it, and only names the others
        self.hidden = hidden  # --help does not name it: others call it
        self.own_parser = own_parser  # it parses its own options
        self.run_options = run_options  # --cpu, --gpus, ... apply to it


COMMANDS = {
    "try": Command(
        "train the example for a minute, with the best that this machine has, and say what that is", common=True
    ),
    "verify": Command(
        "check the container and its GPU; outside a project, check PyTorch on this GPU", common=True, own_parser=True
    ),
    "run": Command(
        "run a command in a new container, and return its exit status",
        ["-d", "--name", "-e", "-p", "--nproc", "--json", "CMD"],
        common=True,
        epilog="""\
examples:
  ./launch run -- python -m yourpackage.train       the `--` is optional
  ./launch run --nproc gpu -- python -m yourpackage.train
  ./launch run -d --name baseline -- python -m yourpackage.train
  ./launch logs -f baseline
  ./launch run -e OPENAI_API_KEY -p 8000 -- python serve.py""",
    ),
    "notebook": Command("start JupyterLab in the background and print its address", common=True),
    "shell": Command(
        "open a shell in the running container, VS Code's or ours, or start one",
        ["CMD"],
        common=True,
        epilog="example: ./launch shell -- nvidia-smi",
    ),
    "logs": Command(
        "show the output of a background run, the notebook, or a service",
        ["-f", "--json", "NAME"],
        common=True,
        epilog="example: ./launch logs -f mlflow",
    ),
    "stop": Command("stop all containers of this project; programs have a minute to save", common=True),
    "add": Command(
        "install packages that are compatible with the base image, and list them in the project",
        ["PKG", "--yes"],
        common=True,
        epilog="""\
examples:
  ./launch add einops 'datasets>=4'
  ./launch add flash-attn      a wheel with CUDA code that fits all targets: shows whose it is, and asks""",
    ),
    "adopt": Command(
        "give an existing repository the container and its tools; none of its files change",
        ["--hardware", "--template", "--to", "--with", "--extra", "--answers", "--yes", "--undo"],
        run_options=False,
        epilog="""\
In the root of a git repository, outside a project: `uvx gpukit adopt`. It runs Copier with --trust, and writes launch,
.gpukit/, and two folders in .devcontainer/. docs/adopt.md has an example.

examples:
  gpukit adopt --hardware rtx-40
  gpukit adopt --with dev --extra 'torch>=2.8'
  gpukit adopt --undo""",
    ),
    "update": Command(
        "bring the template's newest release into the project, and report what that changes",
        ["--check", "--undo", "--to", "--answers", "--accept-driver", "--pull-request"],
        common=True,
        run_options=False,
        epilog="""\
examples:
  ./launch update --check                  report what would change
  ./launch update                          update; commit everything first
  ./launch update --undo                   revert it
  ./launch update --to 0.3.0
  ./launch update --to current --answers workflow=notebook tracking='[mlflow]'

exit code: 1 if files are in conflict (with --check: would be), or if nothing could be updated""",
    ),
    "doctor": Command("check this machine, and what its GPU needs", common=True, own_parser=True),
    "build": Command(
        "build the image (other commands build it when needed)",
        ["--build-arg", "--no-cache"],
        epilog="example: ./launch build --build-arg BASE_IMAGE=MIRROR/IMAGE",
    ),
    "up": Command("start the long-running container and the services in compose.yaml"),
    "submit": Command(
        "add a training job to the queue of this machine",
        [
            *("--gpus", "--priority", "--after", "--max-hours", "--latest", "-e"),
            *("--on", "--nodes", "--queue", "--json", "CMD"),
        ],
        run_options=False,
        epilog="""\
examples:
  ./launch submit -- python -m yourpackage.train --lr 1e-3
  ./launch submit --gpus 2 -- torchrun --standalone --nproc-per-node=gpu -m yourpackage.train
  ./launch submit --after 3 --max-hours 8 -e HF_TOKEN -- python -m yourpackage.train
  ./launch submit --on slurm -- python -m yourpackage.train
  ./launch submit --on kubernetes --nodes 2 --gpus 8 -- python -m yourpackage.train""",
    ),
    "jobs": Command(
        "list the queue's jobs, process the queue, compare jobs, or show, wait for, cancel, retry, or move some",
        ["ACTION", "ID", "--watch", "-f", "-d", "--json", "--metric", "--csv", "--timeout", "--budget", "--keep-free"],
        epilog="""\
examples:
  ./launch jobs run -d         process the queue in the background; `./launch stop` stops it
  ./launch --native jobs run   the same without Docker, in this terminal
  ./launch jobs --watch
  ./launch jobs logs -f 3
  ./launch jobs retry 3        run the command and the code of a job that has ended again, as a new job
  ./launch jobs wait 3 4 && ./launch jobs compare 3 4
  ./launch jobs cancel 3 4
  ./launch jobs run --budget 12h --keep-free 20GB

exit code of wait: 0 finished, 3 failed or out of time, 4 canceled, 5 held, 124 the time is over""",
    ),
    "rehearse": Command(
        "run the training script, kill it, resume it, and compare every number; in a scratch folder",
        ["--steps", "CMD"],
        epilog="""\
examples:
  ./launch rehearse                                          this project's train.py
  ./launch rehearse -- python -m yourpackage.train --lr 1    with options, or another script
  ./launch rehearse -- torchrun --nproc-per-node 2 -m yourpackage.train

exit code: 0 it resumes exactly, 1 it does not, or cannot be rehearsed""",
    ),
    "plan": Command(
        "check, before anything is downloaded, that image, packages, and driver fit a GPU that is not here",
        ["--for", "--driver", "--batch-size", "--prove", "--refresh", "--json"],
        run_options=False,
        epilog="""\
examples:
  ./launch plan                     for all targets of the project
  ./launch plan --for h200          for a GPU that is not one of them
  ./launch plan --for h100 --driver 570
  ./launch plan --json              the findings, and the version of every package

exit code: 0 nothing is wrong, 1 a check fails, 2 something could not be asked or computed""",
    ),
    "explain": Command(
        "explain an error text (from a file, a pipe, or pasted), or an id that doctor or verify printed",
        ["WHAT", "--machine", "--in-container", "--worked-before", "--json", "--report"],
        run_options=False,
        epilog="""\
examples:
  ./launch explain training.log             a file
  ./launch run -- python train.py 2>&1 | ./launch explain
  ./launch explain                          paste the text, then press Ctrl-D
  ./launch explain --machine machine.json error.txt
  ./launch explain driver-updated           the entry of an id

exit code: 0 the cause is certain, 1 one to three causes are likely, 2 the input cannot be read,
3 the text is unknown, 4 the text reports no error""",
    ),
    "setup": Command(
        "show the commands that install what this machine lacks; --apply runs them, --undo reverts them",
        ["--apply", "--undo", "--only", "--hardware", "--mirrors", "--yes"],
        epilog="""\
steps, in order, each only if this machine lacks it:
  dpkg      repair an interrupted installation
  driver    the NVIDIA driver
  docker    Docker Engine
  engine    start Docker
  toolkit   NVIDIA's Container Toolkit
  runtime   configure Docker to use the toolkit
  cdi       the CDI specification, which lists the GPUs
  group     add you to the group docker
  earlyoom  end a program before memory that CPU and GPU share is full (not tested on a GB10)
  uv        install uv

examples:
  ./launch setup                     show the commands; nothing is changed
  ./launch setup --only driver       only this step
  ./launch setup --hardware rtx-40   for this GPU, before its driver can name it
  ./launch setup --apply             run the steps one by one
  ./launch setup --undo              show what --apply did, and revert it""",
    ),
    "fetch": Command(
        "with --host: bring outputs, or PATH, from that machine",
        ["--checkpoints", "PATH"],
        run_options=False,
        epilog="""\
examples:
  ./launch --host me@box fetch                    what is new in outputs/, without checkpoints
  ./launch --host me@box fetch outputs/baseline --checkpoints""",
    ),
    "pin": Command(
        "write the exact package versions of the image to requirements.txt, for later builds",
        ["--digest", "--remove"],
        epilog="""\
examples:
  ./launch pin --digest        later builds install the same versions on the same base image
  ./launch pin --remove        follow new releases again""",
    ),
    "clean": Command(
        "list stopped containers and images (or environments), and old checkpoints; remove them after confirmation",
        ["--images", "--checkpoints", "--keep", "--yes"],
        epilog="""\
examples:
  ./launch --dry-run clean     only list
  ./launch clean --images      only containers and images
  ./launch clean --keep 3      keep three checkpoints of each run""",
    ),
    "preflight": Command(
        "check that the engine grants the GPUs (VS Code runs this before it starts the container)", hidden=True
    ),
    "follow": Command(
        "follow a run in the background, and return its exit status (--host runs this)",
        ["--attended", "NAME"],
        hidden=True,
    ),
    "validate": Command(
        "check the generated files: each against its schema, and against each other",
        run_options=False,
        epilog="""\
exit code: 0 nothing is wrong, 1 a file is, 2 something could not be checked""",
    ),
    "vendor": Command(
        "write this gpukit as a wheel to the project's vendor/", ["--from", "--check"], hidden=True, run_options=False
    ),
}
