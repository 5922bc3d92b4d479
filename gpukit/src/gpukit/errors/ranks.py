"""Processes that train together: NCCL, gloo, torchrun, MPI."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import DRIVER_TOO_OLD, GPU_FULL, SHM_FULL, TORCH_TOO_OLD
from gpukit.errors.evidence import CONTAINER, capability_from, text_has, text_must_have
from gpukit.errors.rule import BROAD, GENERAL, HOST, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

COLLECTIVE = "`./launch verify --only collective`"
NCCL_DEBUG, DETAIL = "`NCCL_DEBUG=INFO`", "`TORCH_DISTRIBUTED_DEBUG=DETAIL`"

# Causes that several rules have.
TOO_MANY_RANKS = Cause(
    "more-ranks-than-gpus",
    "More processes were started on the machine than it has GPUs.",
    "Start one process per GPU: `torchrun --standalone --nproc-per-node=gpu train.py`.",
    tell="`nvidia-smi -L` lists fewer GPUs than there are processes",
)
NO_SET_DEVICE = Cause(
    "rank-without-device",
    "The processes do not select a GPU of their own, so all of them use GPU 0.",
    'Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the program uses the GPU.',
    tell="there are enough GPUs, and `nvidia-smi` shows several processes on GPU 0",
)
RANK_FAILED = Cause(
    "rank-failed",
    "Another process of the training failed or was ended. The error here only follows from that.",
    "Look for the first error in the output of the other ranks: `torchrun --log-dir logs --tee 3 ...` "
    "writes one log for each.",
    tell="another rank has an earlier error, or `sudo dmesg | grep -i 'out of memory'` names it",
    given=text_has(
        r"ncclRemoteError|remote process exited|Connection (?:closed|reset)|Broken pipe|got 0 bytes|SIGKILL|exitcode"
    ),
)
OUT_OF_STEP = Cause(
    "ranks-out-of-step",
    "The ranks are not at the same point: one is much slower or makes other calls. Often only rank 0 "
    "evaluates, saves, or prepares data.",
    "Run it with `TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`, which records "
    "where each rank waits. If a step is just slow, pass `timeout=timedelta(hours=2)` to "
    "`init_process_group`.",
    tell="no rank has an earlier error, and it worked for a while",
)
GPU_PATH = Cause(
    "gpu-path",
    "The GPUs cannot exchange data directly (P2P). Common reasons are virtual machines, an active "
    "IOMMU, and consumer cards.",
    "Set `NCCL_P2P_DISABLE=1`. To use P2P again, turn ACS and the IOMMU off in the firmware or on the "
    "kernel's command line (`iommu=pt`).",
    tell="the first collective hangs or fails, and it works with `NCCL_P2P_DISABLE=1`",
    given=text_has(r"SeqNum=1\b|\bP2P\b|peer access"),
)
WRONG_INTERFACE = Cause(
    "nccl-interface",
    "NCCL or gloo uses a network interface that does not lead to the other machine, or that does not exist.",
    "Set `NCCL_SOCKET_IFNAME` and `GLOO_SOCKET_IFNAME` to the interface that `ip route get "
    "OTHER_ADDRESS` prints; on a single machine, to `lo`.",
    tell="`ip -brief address` does not show the interface that the text names, or it is docker0",
    given=text_has(r"SOCKET_IFNAME|\b172\.1[78]\.|no socket interface|No interface found"),
)
NAME_UNKNOWN = Cause(
    "host-name-unknown",
    "A host name that the ranks use does not resolve to an address that works here.",
    "Use IP addresses, or add the names: `docker run --add-host NAME:ADDRESS ...`, or a line in "
    "/etc/hosts. On a single machine: `torchrun --standalone ...`.",
    tell="`getent hosts NAME` prints nothing or a wrong address",
    given=text_has(r"gai error|cannot be retrieved|resolve|makeDeviceForHostname|Unable to find address"),
)
FIREWALL = Cause(
    "ranks-unreachable",
    "A firewall, or the container's own network, blocks the connection between the machines.",
    "Allow all ports between the machines, and start the containers with `--network=host` (in `runArgs`).",
    tell="`nc -vz OTHER_ADDRESS PORT` fails while the program waits",
)
OTHER_NCCL = Cause(
    "nccl-versions",
    "The processes load different versions of NCCL.",
    "Use the same image on every machine, and run `unset LD_LIBRARY_PATH LD_PRELOAD`. "
    "`NCCL_DEBUG=VERSION` prints the version of each process.",
    tell="`NCCL_DEBUG=VERSION` prints different versions",
)
RANKS_DIFFER = Cause(
    "ranks-differ",
    "The ranks make different calls, or hold parameters of different shapes.",
    "Look for an `if rank == 0` around a collective, for data of unequal length, and for a model that "
    "depends on the rank. `TORCH_DISTRIBUTED_DEBUG=DETAIL` names the call.",
    tell="`TORCH_DISTRIBUTED_DEBUG=DETAIL` names different calls",
)

RULES = (
    Rule(
        "two-ranks-one-gpu",
        "NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
        (r"Duplicate GPU detected ?: rank", r"Multiple Ranks are using the same GPU"),
        (TOO_MANY_RANKS, NO_SET_DEVICE),
        more="`nvidia-smi -L`",
    ),
    Rule(
        "not-torchrun",
        "environment variable RANK expected, but not set",
        (
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set",
            r"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
        ),
        (
            Cause(
                "not-torchrun",
                "The program runs on several GPUs together, and was started without `torchrun`.",
                "Start it with `torchrun --standalone --nproc-per-node=gpu train.py`.",
                tell="it was started with `python`",
            ),
            Cause(
                "rank-names",
                "The program was started by `srun` or `mpirun`, which set other variables.",
                "Set them in the job script: `export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID "
                "WORLD_SIZE=$SLURM_NTASKS`, with `MASTER_ADDR` and `MASTER_PORT`; or let `srun` start `torchrun`.",
                tell="`env | grep -e SLURM_PROCID -e OMPI_COMM` prints something",
                given=text_has(r"\bsrun\b|SLURM|\bmpirun\b|OMPI_"),
            ),
        ),
        more=VERIFY,
        program=True,
        requires=r"environ|expected, but not set|torch|distributed|accelerate|deepspeed",
    ),
    Rule(
        "local-rank-argument",
        "error: unrecognized arguments: --local-rank=0",
        (r"unrecognized arguments: --local[-_]rank",),
        (
            Cause(
                "local-rank-argument",
                "`torch.distributed.launch` passes `--local-rank` to the program, which does not know that option.",
                "Start it with `torchrun`, and read `LOCAL_RANK` from the environment.",
            ),
        ),
        more=VERIFY,
        certain=True,
        program=True,
    ),
    Rule(
        "no-process-group",
        "RuntimeError: Default process group has not been initialized, please make sure to call init_process_group.",
        (
            r"Default process group has not been initialized",
            r"process group (?:is|was|has) not (?:been )?initialized",
            r"init_process_group (?:has not been|was not) called",
        ),
        (
            Cause(
                "no-process-group",
                "The program calls a function of torch.distributed before the process group exists.",
                "Call `torch.distributed.init_process_group()` first, and start the program with `torchrun`.",
                tell="it fails at the start",
            ),
            Cause(
                "process-group-destroyed",
                "The process group was destroyed before this call.",
                "Move `destroy_process_group()` to the end of the program.",
                tell="it fails at the end of the training",
            ),
        ),
        more=VERIFY,
        program=True,
    ),
    Rule(
        "ranks-interface",
        "NCCL WARN Bootstrap : no socket interface found",
        (
            r"no socket interface found",
            r"NCCL WARN[^\n]{0,60}No interface found",
            r"Unable to find (?:interface|address) for",
            r"makeDeviceForHostname\(\): unsupported gloo device",
            r"unable to resolve hostname[^\n]{0,20}gloo|gloo[^\n]{0,80}(?:resolve|address)",
        ),
        (WRONG_INTERFACE, NAME_UNKNOWN),
        more=COLLECTIVE,
    ),
    Rule(
        "nccl-rdma",
        "NET/IB : Got completion from peer 10.0.0.2 with status=12 opcode=0 len=0 vendor err 129",
        (
            r"NET/IB ?: Got completion (?:from peer \S+ )?with (?:error|status)",
            r"ibv_modify_qp failed",
            r"NET/IB[^\n]{0,80}(?:failed|error|timeout)",
            r"Call to ibv_\w+ failed",
        ),
        (
            Cause(
                "rdma-network",
                "The fast network between the machines (InfiniBand, RoCE) does not work for NCCL: wrong port, "
                "GID, or fabric settings.",
                "Set `NCCL_IB_DISABLE=1` to use the ordinary network. If that works, set `NCCL_IB_HCA` and "
                "`NCCL_IB_GID_INDEX` to what `show_gids` lists.",
                tell="it works with `NCCL_IB_DISABLE=1`",
            ),
            RANK_FAILED,
            Cause(
                "rdma-memory",
                "The container may not lock memory or lacks the devices of the network card.",
                "Start it with `--ulimit memlock=-1 --device=/dev/infiniband --cap-add=IPC_LOCK`.",
                tell="`ulimit -l` does not print `unlimited`, or `ls /dev/infiniband` fails",
                given=text_has(r"ibv_(?:reg_mr|create)\w*[^\n]{0,40}(?:failed|Cannot allocate)"),
            ),
        ),
        more=NCCL_DEBUG,
    ),
    Rule(
        "ranks-differ",
        "Detected mismatch between collectives on ranks",
        (
            r"Detected mismatch between collectives on ranks",
            r"DDP expects same model across all ranks",
            r"appears not to match sizes of the same param in process",
            r"last enqueued NCCL work[^\n]{0,200}last completed[^\n]{0,200}(?:mismatch|desync)",
        ),
        (RANKS_DIFFER,),
        more=DETAIL,
        program=True,
    ),
    Rule(
        "ddp-unused",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        (
            r"Expected to have finished reduction in the prior iteration",
            r"has parameters that were not used in producing the loss",
            r"parameters? (?:that )?(?:was|were|did) not (?:used|receive)[^\n]{0,40}(?:grad|loss)",
        ),
        (
            Cause(
                "ddp-unused",
                "Some parameters took no part in the loss, and DDP waits for their gradients.",
                "Pass `find_unused_parameters=True` to DistributedDataParallel (in transformers: "
                "`ddp_find_unused_parameters=True`), or remove those parameters.",
            ),
        ),
        more=DETAIL,
        program=True,
    ),
    Rule(
        "ddp-twice",
        "RuntimeError: Expected to mark a variable ready only once.",
        (r"Expected to mark a variable ready only once",),
        (
            Cause(
                "ddp-checkpointing",
                "Gradient checkpointing marks a parameter twice in one step, which DDP does not expect.",
                "Pass `use_reentrant=False` to `checkpoint` (in transformers: "
                '`gradient_checkpointing_kwargs={"use_reentrant": False}`).',
                tell="the model uses gradient checkpointing",
            ),
            Cause(
                "ddp-shared-parameter",
                "A parameter is used in several forward passes, or shared between modules.",
                "Pass `static_graph=True` to DistributedDataParallel, or do all in one forward pass.",
                tell="the model does not use gradient checkpointing",
            ),
        ),
        more=VERIFY,
        program=True,
    ),
    Rule(
        "cpu-tensor-nccl",
        "RuntimeError: No backend type associated with device type cpu",
        (r"No backend type associated with device type cpu", r"Tensors must be CUDA and dense"),
        (
            Cause(
                "cpu-tensor-nccl",
                "A tensor on the CPU was given to NCCL, which only works with tensors on the GPU.",
                'Move the tensor to the GPU, or use both backends: `init_process_group("cpu:gloo,cuda:nccl")`.',
            ),
        ),
        more=VERIFY,
        certain=True,
        program=True,
    ),
    Rule(
        "no-libuv",
        "RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
        (r"use_libuv was requested but PyTorch was buil[dt] without libuv",),
        (
            Cause(
                "no-libuv",
                "This build of torch has no libuv, as on Windows, and the program asks for it.",
                "Set `USE_LIBUV=0` in the environment.",
            ),
        ),
        more=VERIFY,
        certain=True,
    ),
    Rule(
        "rendezvous-left",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        (
            r"Failed to recv, got 0 bytes",
            r"Did the remote server shutdown or crash",
            r"store->get\('[^']*'\) got error: (?:Connection|Socket|Broken)",
            r"TCPStore[^\n]{0,120}(?:Broken pipe|Connection reset|recvValue failed|sendBytes failed)",
            r"RendezvousClosedError|RendezvousConnectionError[^\n]{0,60}closed",
            r"RendezvousConnectionError[\s\S]{0,900}(?:Connection reset by peer|Broken pipe)",
        ),
        (
            RANK_FAILED,
            Cause(
                "rendezvous-closed",
                "The other nodes have already finished or given up, so this one can no longer join.",
                "Start all nodes again within a minute of each other, with a new `--rdzv-id`.",
                tell="this node started later than the others",
                given=text_has(r"RendezvousClosedError"),
            ),
            Cause(
                "store-other-version",
                "Another program listens on that port, or the nodes have different versions of torch.",
                "Choose another `--master-port`, and use the same image on every node.",
                tell="it fails at once, at the start, on every try",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "rendezvous",
        "The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29500).",
        (
            r"connection to the C10d store has failed",
            r"RendezvousConnectionError|RendezvousTimeoutError",
            r"client socket has (?:failed to connect|timed out)",
            r"Timed out[^\n]{0,60}waiting for clients",
            r"TCP client failed to connect",
            r"Timed out initializing process group in store based barrier",
            r"wait timeout after \d+ms, keys: /default_pg|Timeout waiting for key: ?(?:default_pg|\S*nccl)",
            r"connect\(\) timed out\. Original timeout",
            r"\(gai error: -?\d+",
            r"network addresses of \([^)]*\) cannot be retrieved",
        ),
        (
            Cause(
                "master-unreachable",
                "The process does not reach rank 0: the address or port is wrong, or a firewall is between them.",
                "Give every node the same `--master-addr` and `--master-port`, and check with `nc -vz ADDRESS "
                "PORT`. On a single machine: `torchrun --standalone ...`.",
                tell="`nc -vz ADDRESS PORT` fails while rank 0 waits",
            ),
            Cause(
                "ranks-missing",
                "Not all processes have started, or one ended before it joined.",
                "Check that `--nnodes` and `--nproc-per-node` match what runs, and look for an earlier error of "
                "another rank.",
                tell="fewer processes run than `--nnodes` times `--nproc-per-node`",
                given=text_has(r"waiting for clients|store based barrier|default_pg|waiting for key"),
            ),
            NAME_UNKNOWN,
        ),
        more=VERIFY,
    ),
    Rule(
        "nccl-usage",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        (
            r"ncclInvalidUsage|ncclInvalidArgument|NCCL[^\n]{0,120}invalid (?:usage|argument)",
            r"mismatch in rank count|already checked in",
        ),
        (TOO_MANY_RANKS, NO_SET_DEVICE, RANKS_DIFFER),
        more=NCCL_DEBUG,
        level=BROAD,
    ),
    Rule(
        "nccl-versions",
        "NCCL WARN Mismatched NCCL version detected : rank 0 version 22304 rank 1 version 21903",
        (
            r"Mismatched NCCL version detected",
            r"NCCL version mismatch with remote peer",
            r"NCCL library is not backwards compatible",
        ),
        (OTHER_NCCL,),
        more="`NCCL_DEBUG=VERSION`",
    ),
    Rule(
        "imex",
        "MNNVL is available but not working on this system. Check the IMEX channel configuration",
        (r"IMEX channel", r"nvidia-imex[^\n]{0,60}(?:fail|error)", r"/dev/nvidia-caps-imex-channels"),
        (
            Cause(
                "imex-down",
                "The machines' GPUs are connected by NVLink, and the service IMEX, which lets them share memory, "
                "is not running.",
                "Run `sudo systemctl enable --now nvidia-imex` on every node. `NCCL_MNNVL_ENABLE=0` works without it.",
                tell="`nvidia-imex-ctl -N` does not show that all nodes are ready",
            ),
            Cause(
                "imex-channel",
                "The container has no IMEX channel.",
                "On every node, put `options nvidia NVreg_CreateImexChannel0=1` into "
                "/etc/modprobe.d/nvidia-imex.conf and restart. Start the container with `-e "
                "NVIDIA_IMEX_CHANNELS=0`.",
                tell="`ls /dev/nvidia-caps-imex-channels` in the container prints nothing",
                given=CONTAINER,
            ),
        ),
        more=NCCL_DEBUG,
        requires=r"fail|error|not (?:working|found|available)|no such|denied|unable|cannot",
    ),
    Rule(
        "p2p-consumer",
        "NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
        (r"doesn't support faster communication broadband via P2P or IB",),
        (
            Cause(
                "p2p-consumer",
                "These cards cannot access each other directly, and accelerate asks for that to be stated.",
                "Set `NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1`, or start with `accelerate launch`, which sets both.",
            ),
        ),
        more=VERIFY,
        certain=True,
    ),
    Rule(
        "nccl-aborted",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE) ran for 1800000 ms",
        (
            r"collective operation timeout",
            r"Some NCCL operations have failed or timed out",
            r"Timeout at NCCL work|timeout\) detected by watchdog",
            r"ncclRemoteError",
            r"NCCL[^\n]{0,160}remote process (?:exited|has)",
            r"Connection (?:closed|reset) by (?:remote )?peer[^\n]{0,80}nccl",
            r"NCCL WARN[^\n]{0,120}Connection (?:closed|reset) by (?:remote )?peer",
            r"NCCL communicator (?:was|has been) aborted|ncclCommAbort",
            r"Timed out waiting \d+ms for (?:send|recv) operation",
            r"Watchdog[^\n]{0,40}(?:heartbeat|got stuck)",
            r"has most likely crashed",
        ),
        (RANK_FAILED, OUT_OF_STEP, GPU_PATH),
        more=NCCL_DEBUG,
        requires=r"nccl|\brank|torch|distributed|watchdog",
    ),
    Rule(
        "gloo-waited",
        "gloo/transport/tcp/pair.cc:587] TIMEOUT self_rank = 0 pair_rank = 1",
        (
            r"gloo::TimeoutException",
            r"gloo/transport/tcp/\w+\.cc:\d+\] (?:Connect timeout|TIMEOUT|Timed out|Read timeout|Write timeout|"
            r"Application timeout|Connection closed|Connection reset|Read error|Broken pipe|writev|Socket closed)",
            r"Gloo connectFullMesh failed",
        ),
        (RANK_FAILED, WRONG_INTERFACE, FIREWALL),
        more=VERIFY,
    ),
    Rule(
        "nccl-network",
        "NCCL WARN socketStartConnect: Connect to 172.17.0.3<41000> failed : No route to host",
        (
            r"(?:socketStartConnect|Call to connect)[^\n]{0,80}failed",
            r"NCCL WARN[^\n]{0,120}(?:No route to host|Connection refused|Connection timed out|"
            r"Network is unreachable)",
        ),
        (WRONG_INTERFACE, FIREWALL, RANK_FAILED),
        more=NCCL_DEBUG,
    ),
    Rule(
        "nccl-system",
        "NCCL error: unhandled system error, ncclSystemError: System call failed",
        (r"ncclSystemError", r"NCCL[^\n]{0,160}unhandled system error", r"unhandled system error[^\n]{0,60}NCCL"),
        (replace(SHM_FULL, given=CONTAINER), WRONG_INTERFACE, RANK_FAILED, GPU_PATH),
        more=NCCL_DEBUG,
        level=BROAD,
    ),
    Rule(
        "nccl-cuda",
        "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        (r"ncclUnhandledCudaError", r"NCCL[^\n]{0,160}unhandled cuda error", r"NCCL WARN Cuda failure"),
        (
            replace(TORCH_TOO_OLD, given=text_must_have(r"NCCL version 2\.[0-8]\.") & capability_from("8.0")),
            GPU_FULL,
            GPU_PATH,
            DRIVER_TOO_OLD,
        ),
        more=NCCL_DEBUG,
        level=BROAD,
    ),
    Rule(
        "nccl-internal",
        "ncclInternalError: Internal check failed.",
        (r"ncclInternalError", r"NCCL[^\n]{0,160}internal error"),
        (
            OTHER_NCCL,
            Cause(
                "nccl-topology",
                "NCCL cannot read the machine's topology or network card, as in some virtual machines.",
                "Set `NCCL_IB_DISABLE=1` or `NCCL_P2P_DISABLE=1`, and update torch, which brings a newer NCCL.",
                tell="`NCCL_DEBUG=INFO` shows a line with `topo` or `NET` before the error",
            ),
            NO_SET_DEVICE,
        ),
        more=NCCL_DEBUG,
        level=BROAD,
    ),
    Rule(
        "mpi-root",
        "mpirun has detected an attempt to run as root.",
        (r"mpirun has detected an attempt to run as root", r"prterun has detected an attempt to run as root"),
        (
            Cause(
                "mpi-root",
                "Open MPI refuses to run as root.",
                "Start it as your own user with `./launch`, or set `OMPI_ALLOW_RUN_AS_ROOT=1 "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1`.",
                standalone="Start it as your own user, or set `OMPI_ALLOW_RUN_AS_ROOT=1 "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1`.",
            ),
        ),
        more=HOST,
        certain=True,
    ),
    Rule(
        "mpi-program",
        "mpirun was unable to launch the specified application as it could not access or execute an executable",
        (r"unable to launch the specified application as it could not (?:access|find)",),
        (
            Cause(
                "mpi-program",
                "`mpirun` does not find the program, or may not execute it.",
                "Start scripts with their interpreter, such as `mpirun -n 2 python train.py`, and other programs "
                "by their full path.",
                tell="`ls -l` on every node finds the file, or not",
            ),
        ),
        more=VERIFY,
        program=True,
    ),
    Rule(
        "mpi-slots",
        "There are not enough slots available in the system to satisfy the 8 slots",
        (r"There are not enough slots available in the system",),
        (
            Cause(
                "mpi-slots",
                "Open MPI is asked for more processes than it has slots. Without a host file, it counts processor "
                "cores.",
                "Start as many processes as there are GPUs, add `slots=8` to the host file, or pass `--oversubscribe`.",
            ),
        ),
        more=VERIFY,
        certain=True,
    ),
    Rule(
        "mpi-copy",
        "Read -1, expected 8192, errno = 1",
        (r"Read -1, expected \d+, errno = 1",),
        (
            Cause(
                "mpi-copy",
                "This is only a warning: the container does not allow Open MPI's direct copying between "
                "processes, and it copies in another way.",
                "Set `OMPI_MCA_btl_vader_single_copy_mechanism=none` to silence it.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "launcher-missing",
        "RuntimeError: launcher 'pdsh' not installed.",
        (r"launcher '(\w+)' not installed",),
        (
            Cause(
                "deepspeed-launcher",
                "DeepSpeed starts other machines through {0}, which the image does not have.",
                "Add it to apt.txt and run `./launch build`; or choose another way with `--launcher openmpi`.",
                tell="the training uses several machines",
                standalone="Install it with apt-get, or choose another way with `--launcher openmpi`.",
            ),
            Cause(
                "deepspeed-hostfile",
                "DeepSpeed found a host file, although only this machine is used.",
                "Start it with `torchrun --standalone --nproc-per-node=gpu train.py`, or remove /job/hostfile.",
                tell="`ls /job/hostfile` finds it, or the command has `--hostfile`",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "nccl-failed",
        "RuntimeError: NCCL communicator failed",
        (r"\bnccl\w*\b[^\n]{0,80}(?:error|failed|failure|timed out|timeout)",),
        (RANK_FAILED, GPU_PATH, WRONG_INTERFACE),
        more=NCCL_DEBUG,
        level=GENERAL,
    ),
    Rule(
        "nccl-chatter",
        'NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instability or hang!',
        (
            r"NET/Plugin ?: (?:Could not find|No plugin found|Failed to find)",
            r"Missing \"iommu=pt\" from kernel command line",
            r"Failed to open libibverbs\.so",
        ),
        (
            Cause(
                "nccl-chatter",
                "This is only a note: NCCL works without that part.",
                "You do not have to do anything.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
    Rule(
        "ipv6-warning",
        "The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
        (r"Address family not supported by protocol",),
        (
            Cause(
                "ipv6-warning",
                "This is only a warning: the container has no IPv6, and torch uses IPv4.",
                "You do not have to do anything.",
            ),
        ),
        more=VERIFY,
        level=NOTE,
    ),
)
