"""Processes that train together: NCCL, gloo, torchrun, MPI."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, GENERAL, HOST, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

TORCHRUN = "torchrun --nproc-per-node with the number of GPUs"

RULES = (
    Rule(
        "two-ranks-one-gpu",
        "NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
        (r"Duplicate GPU detected ?: rank", r"Multiple Ranks are using the same GPU"),
        (
            Cause(
                "two-ranks-one-gpu",
                "Two processes use the same GPU: more were started than there are GPUs, or each of them takes GPU 0.",
                TORCHRUN + ", and torch.cuda.set_device(local rank).",
            ),
        ),
        look=VERIFY,
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
                "The program wants to be one of several, and was started alone.",
                "torchrun --standalone --nproc-per-node=1 before it, with more where there are more GPUs.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "local-rank-argument",
        "error: unrecognized arguments: --local-rank=0",
        (r"unrecognized arguments: --local[-_]rank",),
        (
            Cause(
                "local-rank-argument",
                "torch.distributed.launch gives each process --local-rank, which this program does not take.",
                "torchrun instead, which sets LOCAL_RANK in the environment.",
            ),
        ),
        look=VERIFY,
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
                "The program itself: it uses the others before it has met them.",
                "torch.distributed.init_process_group() first, and a start with torchrun.",
            ),
        ),
        look=VERIFY,
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
        (
            Cause(
                "ranks-interface",
                "The processes find no network card to talk over: the name in NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME is "
                "not here, or the container's own name leads nowhere.",
                "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME with the card that `ip addr` shows; lo on a single machine.",
            ),
        ),
        look="./launch verify --only collective",
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
                "nccl-rdma",
                "The fast network between the machines (InfiniBand, RoCE) does not carry NCCL: another fabric, GID "
                "or firewall on one side, or the process there has ended.",
                "NCCL_IB_DISABLE=1 goes over the ordinary network; where that works, look at NCCL_IB_HCA and "
                "NCCL_IB_GID_INDEX.",
            ),
        ),
        look=VERIFY,
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
        (
            Cause(
                "ranks-differ",
                "The program itself: the processes do not do the same, so that they call other collectives or hold other "
                "parameters.",
                "Look for an `if` that only some ranks take, and for data of unequal length.",
            ),
        ),
        look="TORCH_DISTRIBUTED_DEBUG=DETAIL",
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
                "The program itself: some parameters took no part in the loss, and DDP waits for their gradients.",
                "find_unused_parameters=True in DDP, or take those parameters out.",
            ),
        ),
        look="TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    Rule(
        "ddp-twice",
        "RuntimeError: Expected to mark a variable ready only once.",
        (r"Expected to mark a variable ready only once",),
        (
            Cause(
                "ddp-twice",
                "The program itself: a parameter is used twice in a step, as with checkpointing, which DDP does not expect.",
                "use_reentrant=False in checkpointing, or static_graph=True in DDP.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "cpu-tensor-nccl",
        "RuntimeError: No backend type associated with device type cpu",
        (r"No backend type associated with device type cpu", r"Tensors must be CUDA and dense"),
        (
            Cause(
                "cpu-tensor-nccl",
                "The program itself: a tensor on the CPU is handed to NCCL, which serves the GPU only.",
                'init_process_group("cpu:gloo,cuda:nccl"), or move the tensor to the GPU.',
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-libuv",
        "RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
        (r"use_libuv was requested but PyTorch was buil[dt] without libuv",),
        (
            Cause(
                "no-libuv",
                "This torch, as on Windows, was built without a part (libuv) that torchrun asks for.",
                "USE_LIBUV=0; or the project's container.",
            ),
        ),
        look=VERIFY,
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
            Cause(
                "rendezvous-left",
                "The place where the processes meet (rank 0) has ended or does not take this one, so that they lost "
                "each other.",
                "Look for the first error of rank 0, further up; where it has none: the same torch, address and "
                "rdzv-id for all.",
            ),
        ),
        look=VERIFY,
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
                "rendezvous",
                "The processes of one training do not find each other: another address or port, one that never "
                "started or has ended, or a firewall between the machines.",
                "The same --master-addr and --master-port for all, reachable from each; on one machine: torchrun --standalone",
            ),
        ),
        look=VERIFY,
    ),
    # about: NCCL was called in a way that it does not allow.
    Rule(
        "nccl-usage",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        (
            r"ncclInvalidUsage|ncclInvalidArgument|NCCL[^\n]{0,120}invalid (?:usage|argument)",
            r"mismatch in rank count|already checked in",
        ),
        (
            Cause(
                "nccl-usage-1",
                "More processes than GPUs, or the same GPU for two of them.",
                "NCCL_DEBUG=WARN names it.",
                tell="nvidia-smi -L against --nproc-per-node; torch.cuda.set_device(local rank)",
            ),
            Cause(
                "nccl-usage-2",
                "The processes differ in what they call, or pass a tensor that it does not take.",
                "NCCL_DEBUG=WARN names it.",
                tell="NCCL_DEBUG=WARN names it",
            ),
        ),
        look=VERIFY,
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
        (
            Cause(
                "nccl-versions",
                "The processes have NCCLs of different versions.",
                "The same image on each machine; without LD_PRELOAD and LD_LIBRARY_PATH for another NCCL.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "imex",
        "MNNVL is available but not working on this system. Check the IMEX channel configuration",
        (r"IMEX channel", r"nvidia-imex[^\n]{0,60}(?:fail|error)", r"/dev/nvidia-caps-imex-channels"),
        (
            Cause(
                "imex",
                "The GPUs of several machines are joined by NVLink, and IMEX, which lets them share memory, is not set up.",
                "sudo systemctl enable --now nvidia-imex, and its channel in the container; NCCL_MNNVL_ENABLE=0 goes without.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "p2p-consumer",
        "NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
        (r"doesn't support faster communication broadband via P2P or IB",),
        (
            Cause(
                "p2p-consumer",
                "These cards cannot reach each other directly (P2P), and accelerate asks to say so.",
                "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1, or a start by accelerate launch, which sets both.",
            ),
        ),
        look=VERIFY,
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
        (
            Cause(
                "nccl-aborted",
                "NCCL waited in vain for another process: it died, hangs, is slower than the time limit, is not "
                "reached, or calls other collectives.",
                "Look for the first error of the other ranks; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 tells who waited where.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "gloo-waited",
        "gloo/transport/tcp/pair.cc:587] TIMEOUT self_rank = 0 pair_rank = 1",
        (
            r"gloo::TimeoutException",
            r"gloo/transport/tcp/\w+\.cc:\d+\] (?:Connect timeout|TIMEOUT|Timed out|Read timeout|Write timeout|"
            r"Application timeout|Connection closed|Connection reset)",
            r"Gloo connectFullMesh failed",
        ),
        (
            Cause(
                "gloo-waited",
                "gloo waited in vain for another process: it ended, hangs, or the network between the two is closed.",
                "Look for the first error of the other ranks; GLOO_SOCKET_IFNAME with the network card that leads there.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "nccl-network",
        "NCCL WARN socketStartConnect: Connect to 172.17.0.3<41000> failed : No route to host",
        (
            r"(?:socketStartConnect|Call to connect)[^\n]{0,80}failed",
            r"NCCL WARN[^\n]{0,120}(?:No route to host|Connection refused|Connection timed out|"
            r"Network is unreachable)",
        ),
        (
            Cause(
                "nccl-network",
                "NCCL does not reach the other machine: it chose a network card that does not lead there, or a firewall is "
                "between.",
                "NCCL_SOCKET_IFNAME with the card that does, and --network=host in runArgs.",
            ),
        ),
        look=VERIFY,
    ),
    # about: NCCL was refused something by the system.
    Rule(
        "nccl-system",
        "NCCL error: unhandled system error, ncclSystemError: System call failed",
        (r"ncclSystemError", r"NCCL[^\n]{0,160}unhandled system error", r"unhandled system error[^\n]{0,60}NCCL"),
        (
            Cause(
                "nccl-system-1",
                "Shared memory among processes of one machine, which Docker bounds to 64 MB.",
                "NCCL_DEBUG=INFO names the call.",
                tell="df -h /dev/shm; start with ./launch",
            ),
            Cause(
                "nccl-system-2",
                "The network among machines or its interface.",
                "NCCL_DEBUG=INFO names the call.",
                tell="NCCL_DEBUG=INFO names a socket or an interface: NCCL_SOCKET_IFNAME",
            ),
            Cause(
                "nccl-system-3",
                "Direct access among GPUs.",
                "NCCL_DEBUG=INFO names the call.",
                tell="it works with NCCL_P2P_DISABLE=1",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: A call of CUDA failed inside NCCL, whose message does not say which.
    Rule(
        "nccl-cuda",
        "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        (r"ncclUnhandledCudaError", r"NCCL[^\n]{0,160}unhandled cuda error", r"NCCL WARN Cuda failure"),
        (
            Cause(
                "nccl-cuda-1",
                "The GPU's memory is full, or two processes use the same GPU.",
                "NCCL_DEBUG=INFO names it; give that text to `./launch explain -`.",
                tell="nvidia-smi while it starts",
            ),
            Cause(
                "nccl-cuda-2",
                "This NCCL or torch has no kernels for the card, or the driver is too old.",
                "NCCL_DEBUG=INFO names it; give that text to `./launch explain -`.",
                tell="`./launch verify` fails with one GPU too",
            ),
            Cause(
                "nccl-cuda-3",
                "Direct access among the GPUs does not work.",
                "NCCL_DEBUG=INFO names it; give that text to `./launch explain -`.",
                tell="it works with NCCL_P2P_DISABLE=1",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: NCCL found something that it does not expect and does not name here.
    Rule(
        "nccl-internal",
        "ncclInternalError: Internal check failed.",
        (r"ncclInternalError", r"NCCL[^\n]{0,160}internal error"),
        (
            Cause(
                "nccl-internal-1",
                "The processes have different NCCLs, or the same GPU.",
                "NCCL_DEBUG=INFO names it; give that text to `./launch explain -`.",
                tell="NCCL_DEBUG=VERSION on each",
            ),
            Cause(
                "nccl-internal-2",
                "A network card or topology that it cannot read, as in a virtual machine.",
                "NCCL_DEBUG=INFO names it; give that text to `./launch explain -`.",
                tell="NCCL_DEBUG=INFO names it; NCCL_IB_DISABLE=1 or NCCL_P2P_DISABLE=1 helps",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "mpi-root",
        "mpirun has detected an attempt to run as root.",
        (r"mpirun has detected an attempt to run as root", r"prterun has detected an attempt to run as root"),
        (
            Cause(
                "mpi-root",
                "Open MPI does not run as root unless told to.",
                "Start as your own user with ./launch; else OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "mpi-program",
        "mpirun was unable to launch the specified application as it could not access or execute an executable",
        (r"unable to launch the specified application as it could not (?:access|find)",),
        (
            Cause(
                "mpi-program",
                "mpirun does not find the program that it is to start, or may not execute it.",
                "mpirun ... python train.py rather than the script alone; else chmod +x and its whole path.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mpi-slots",
        "There are not enough slots available in the system to satisfy the 8 slots",
        (r"There are not enough slots available in the system",),
        (
            Cause(
                "mpi-slots",
                "Open MPI is asked for more processes than it counts processors.",
                "As many processes as GPUs, or --oversubscribe.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mpi-copy",
        "Read -1, expected 8192, errno = 1",
        (r"Read -1, expected \d+, errno = 1",),
        (
            Cause(
                "mpi-copy",
                "Open MPI's copying between processes is not allowed in a container; it goes on another way.",
                "OMPI_MCA_btl_vader_single_copy_mechanism=none silences it.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "launcher-missing",
        "RuntimeError: launcher 'pdsh' not installed.",
        (r"launcher '(\w+)' not installed",),
        (
            Cause(
                "launcher-missing",
                "DeepSpeed wants to start other machines by {0}, which the image has not.",
                "pdsh in apt.txt, then ./launch build; on one machine: torchrun instead.",
            ),
        ),
        look=VERIFY,
    ),
    # about: NCCL, over which the GPUs talk to each other, failed; this line does not say at what.
    Rule(
        "nccl-failed",
        "RuntimeError: NCCL communicator failed",
        (r"\bnccl\w*\b[^\n]{0,80}(?:error|failed|failure|timed out|timeout)",),
        (
            Cause(
                "nccl-failed-1",
                "Another process ended or hangs.",
                "NCCL_DEBUG=WARN names it; give that text to `./launch explain -`.",
                tell="the first error of the other ranks",
            ),
            Cause(
                "nccl-failed-2",
                "The way between the GPUs or machines does not work.",
                "NCCL_DEBUG=WARN names it; give that text to `./launch explain -`.",
                tell="it works with NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1 or another NCCL_SOCKET_IFNAME",
            ),
        ),
        look=VERIFY,
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
                "nccl-chatter", "A remark by which nothing ends: it does without that part.", "Nothing is to be done."
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
    Rule(
        "ipv6-warning",
        "The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
        (r"Address family not supported by protocol",),
        (
            Cause(
                "ipv6-warning",
                "A warning and no error: the container has no IPv6, and torch goes on with IPv4.",
                "Nothing is to be done.",
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
)
