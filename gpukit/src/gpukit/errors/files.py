"""Files: rights, owners, disks, what is broken or missing, checkpoints."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, GENERAL, GRANT, HOST, MOUNTS, VERIFY, Rule
from gpukit.findings.finding import Cause

DISK = "./launch doctor --only disk"
OWN = 'sudo chown -R "$USER" on its folder of the machine: `./launch doctor` names it.'

RULES = (
    Rule(
        "conflict-markers",
        "<<<<<<< before updating",
        (r"<<<<<<< before updating", r"you have unmerged files", r"needs merge$"),
        (
            Cause(
                "conflict-markers",
                "An update met changes of yours and left both in the files.",
                "Choose in each file between <<<<<<< and >>>>>>>, then git add it.",
            ),
        ),
        look="./launch doctor --only merge",
    ),
    Rule(
        "no-new-privileges",
        'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
        (
            r"no new privileges\\?\"? flag is set",
            r"sudo must be owned by uid 0 and have the setuid bit set",
        ),
        (
            Cause(
                "no-new-privileges",
                "The container may not become root (no-new-privileges, or its image lies on a drive without setuid).",
                "Do it in the Dockerfile, as root; or take --security-opt=no-new-privileges out of runArgs.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "git-owner",
        "fatal: detected dubious ownership in repository at '/workspace'",
        (r"detected dubious ownership in repository", r"unsafe repository[^\n]{0,200}owned by someone else"),
        (
            Cause(
                "git-owner",
                "The project's folder belongs to another user than the one in the container.",
                'sudo chown -R "$USER" . on the machine, in the project.',
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "git-objects",
        "error: insufficient permission for adding an object to repository database .git/objects",
        (
            r"insufficient permission for adding an object to repository database",
            r"cannot open '?\.git/\S+: Permission denied",
        ),
        (
            Cause(
                "git-objects",
                "Parts of .git belong to somebody else, often root after a container ran as root.",
                'sudo chown -R "$USER" .git on the machine, in the project.',
            ),
        ),
        look=MOUNTS,
    ),
    # about: A checkpoint could not be written.
    Rule(
        "temporary-folder-noexec",
        "ImportError: /tmp/torchinductor_me/x.so: failed to map segment from shared object",
        (r"failed to map segment from shared object",),
        (
            Cause(
                "temporary-folder-noexec",
                "A compiled file cannot be loaded, because its folder is mounted with `noexec`.",
                "Set `TMPDIR`, and for torch.compile `TORCHINDUCTOR_CACHE_DIR`, to a folder on another drive.",
                tell="`findmnt -T /tmp` lists noexec",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "save-failed",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4242 vs 4141",
        (
            r"inline_container\.cc:\d+\] \. unexpected pos",
            r"PytorchStreamWriter failed",
            r"File (?:\S+) cannot be opened",
        ),
        (
            Cause(
                "save-failed-1",
                "The disk is full.",
                "df -h and ls -ld on its folder",
                tell="df -h on its folder; ./launch clean shows what can go",
            ),
            Cause(
                "save-failed-2",
                "Its folder is missing, or may not be written to.",
                "df -h and ls -ld on its folder",
                tell="ls -ld; id",
            ),
        ),
        look=DISK,
        level=BROAD,
    ),
    Rule(
        "no-temporary-folder",
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']",
        (r"No usable temporary directory found",),
        (
            Cause(
                "no-temporary-folder",
                "No folder for temporary files can be written to: full, or closed to this user.",
                "Make room on the disk that holds /tmp, or name another folder in TMPDIR.",
            ),
        ),
        look=DISK,
    ),
    Rule(
        "disk-full",
        "OSError: [Errno 28] No space left on device",
        (
            r"No space left on device",
            r"ENOSPC\b",
            r"Disk quota exceeded|\[Errno 122\]",
            r"not enough (?:free )?(?:disk )?space|insufficient (?:disk )?space",
            r"You don't have enough free space in /var/cache/apt",
            r"There is not enough space on the disk",
        ),
        (
            Cause(
                "disk-full",
                "The disk is full, or this user's share of it.",
                "`./launch clean` and `docker system df` show what can go.",
            ),
        ),
        look=DISK,
    ),
    Rule(
        "device-denied",
        "PermissionError: [Errno 13] Permission denied: '/dev/nvidia0'",
        (
            r"Permission denied:? ['\"]?/dev/(?:nvidia|dri|kfd|video)",
            r"/dev/(?:nvidia\w*|dri/\w+|video\d+)['\"]?[:\s]{1,3}(?:\([^)]*\) )?Permission denied",
        ),
        (
            Cause(
                "device-denied",
                "This user may not open the device.",
                "The groups video and render for the user on the machine, then log in again.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "no-home",
        "PermissionError: [Errno 13] Permission denied: '/.cache'",
        (
            r"Permission denied:? ['\"]?/\.(?:cache|config|local|triton|jupyter|nv|cupy|keras|torch|conda|ipython)",
            r"mkdir -p failed for path /\.config",
            r"No such file or directory: '/\.\w+/",
            r"could not determine (?:the )?home directory",
            r"cannot create directory ['\"]?/home/[\w.-]+['\"]?: Permission denied",
            r"Permission denied:? ['\"]?/nonexistent",
            r"cache folder \(/nonexistent",
        ),
        (
            Cause(
                "no-home",
                "The container's user has no home folder, so that / is taken for it.",
                "Start with ./launch or VS Code, which give the image your user; else HOME=/tmp",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "image-folder",
        "PermissionError: [Errno 13] Permission denied: '/usr/local/lib/python3.12/dist-packages/einops'",
        (
            r"Permission denied:? ['\"](/(?:usr|opt|bin|lib|sbin)(?:/[^'\"\n]*)?)['\"]",
            r"(?:cannot create directory|cannot touch|cannot remove) ['\"](/(?:usr|opt|lib)/[^'\"]*)['\"]?: "
            r"Permission denied",
        ),
        (
            Cause(
                "image-folder",
                "{0} belongs to the system or the image (to root), and this user may not write there.",
                "./launch add PACKAGE for packages; other files belong into the Dockerfile, or into the project.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "home-of-root",
        "PermissionError: [Errno 13] Permission denied: '/root/.cache/huggingface'",
        (
            r"Permission denied:? ['\"]?/root(?:/[^'\"\n]*)?['\"]?",
            r"/root/[^\n:'\"]+['\"]?: [Pp]ermission denied",
            r"EACCES: permission denied, \w+ '/root/",
            r"cannot create directory ['\"]?/root(?:/[^'\"\n]*)?['\"]?: Permission denied",
        ),
        (
            Cause(
                "home-of-root",
                "The home folder here is that of root (/root), and this user is not root.",
                "Start with ./launch or VS Code, which give the image your user; else HOME and HF_HOME in a folder of yours.",
            ),
        ),
        look=VERIFY,
    ),
    # about: This user may not use {0} in that way.
    Rule(
        "cache-owner",
        "PermissionError: [Errno 13] Permission denied: '/home/dev/.cache/huggingface'",
        (
            r"Permission denied:? ['\"](?!/dev/|/var/run/|/run/|/etc/|/proc/|/sys/)([^'\"\n]+)['\"]",
            r"trying to write in your cache folder \(([^)\s]+)\)",
            r"(/\S+) is not a writable directory",
            r"(?:Could not|cannot) (?:create|write)[^\n]{0,60}(/\S*cache\S*)[^\n]{0,40}Permission denied",
            r"EACCES: permission denied, \w+ '([^']+)'",
            r"(?:mkdir|touch|cp|mv|rm|tee|ln|tar|install): [^\n]{0,60}['\"]?(/[^'\"\n:]+)['\"]?: Permission denied",
            r"open (/(?!proc/|sys/|dev/|run/|var/run/)[^\s:]+): permission denied",
            r"(?:cd|ls|cat|cannot (?:access|open|stat))[: ]+'?([\w./~-]+)'?: Permission denied",
            r"PermissionError: \[Errno 13\] Permission denied(?!:? ['\"])",
            r"(?:Failed|Unable) to (?:create|write|open)[^\n]{0,40}[`'\"](/[^\s`'\"]+)[\s\S]{0,80}Permission denied",
        ),
        (
            Cause(
                "cache-owner-1",
                "It belongs to somebody else, often root after a container ran as root.",
                "ls -ld on it and the folders above it, and id",
                tell='ls -ld names another owner: sudo chown -R "$USER" on its folder of the machine',
            ),
            Cause(
                "cache-owner-2",
                "It lies where this user may not write at all: a system's folder, a read-only or network drive.",
                "ls -ld on it and the folders above it, and id",
                tell="the folder above it is closed too: another folder",
            ),
            Cause(
                "cache-owner-3",
                "SELinux, or another program that holds it on Windows, refuses it.",
                "ls -ld on it and the folders above it, and id",
                tell="the owner is right: sudo ausearch -m avc -ts recent",
            ),
        ),
        look=MOUNTS,
        level=BROAD,
    ),
    Rule(
        "chown-denied",
        "chown: changing ownership of '/workspace': Operation not permitted",
        (
            r"chown: (?:changing ownership of|cannot access)? ?['\"]?([^'\"\n:]+)['\"]?: Operation not permitted",
            r"chown (/\S+): operation not permitted",
            r"Cannot change ownership to uid",
            r"chmod: changing permissions of ['\"]?([^'\"\n:]+)['\"]?: Operation not permitted",
            r"PermissionError: \[Errno 1\] Operation not permitted: '([^']+)'",
        ),
        (
            Cause(
                "chown-denied",
                "The owner or the rights of {0} cannot be changed from here: this user is not root (or root without "
                "that right), or it lies on a drive that knows no owners or is the network's.",
                "Do it as root, in the Dockerfile or on the machine; else put it on an ordinary disk.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "read-only",
        "OSError: [Errno 30] Read-only file system: '/data/out'",
        (r"Read-only file system:? ?['\"]?(/[^'\"\s]*)?", r"EROFS: read-only file system"),
        (
            Cause(
                "read-only",
                "What is to be written lies on a file system that is read-only here ({0}): mounted so, or made so by the "
                "system "
                "after a fault of the disk.",
                "Write to outputs/ or to a cache; a data folder is mounted read-only on purpose. On the machine: mount, and "
                "sudo dmesg | grep -i error",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "network-drive",
        "OSError: [Errno 116] Stale file handle",
        (
            r"Stale (?:NFS )?file handle",
            r"No locks available|\[Errno 37\]",
            r"(?<!sd-bus call: )Transport endpoint is not connected",
            r"Device or resource busy: '[^']*\.nfs",
            r"unable to lock file, errno = (?!11\b)\d+",
            r"\[Errno 121\] Remote I/O error",
        ),
        (
            Cause(
                "network-drive",
                "The network drive that holds the file was renewed, broke off, or does not serve locks.",
                "Mount it again on the machine; caches and checkpoints belong on a disk of its own (HF_HOME).",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "cross-device",
        "OSError: [Errno 18] Invalid cross-device link",
        (r"Invalid cross-device link",),
        (
            Cause(
                "cross-device",
                "A file is to be moved or linked from one disk to another: cache and temporary folder lie on different mounts.",
                "TMPDIR on the same disk as the cache.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "lock-held",
        "still waiting to acquire lock on /cache/.locks/model.lock",
        (
            r"[Ss]till waiting to acquire lock on (\S+)",
            r"The file lock '([^']+)' could not be acquired",
            r"filelock\.\S*Timeout",
            r"unable to lock file, errno = 11\b",
        ),
        (
            Cause(
                "lock-held",
                "Another process holds the lock ({0}), or it lies on a network drive that did not release it.",
                "End the other download or wait for it; where none runs, delete that .lock file.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "database-locked",
        "sqlite3.OperationalError: database is locked",
        (
            r"sqlite3\.OperationalError: (?:database is locked|disk I/O error|unable to open database file|"
            r"attempt to write a readonly database)",
        ),
        (
            Cause(
                "database-locked",
                "A small database (of MLflow, Optuna or Jupyter) cannot be opened for writing: another process holds "
                "it, its folder is missing or belongs to somebody else, or it lies on a network drive.",
                "On a local disk, and one process that writes; else a server: ./launch up",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "windows-holds-file",
        "failed to rename file: Access is denied. (os error 5)",
        (
            r"Access is denied\.?\)? ?\(os error 5\)",
            r"\[WinError (?:5|32|33)\]",
            r"cannot access the file because it is being used by another process",
        ),
        (
            Cause(
                "windows-holds-file",
                "Windows does not give the file away: another program, often its virus scanner, has it open, or the user may "
                "not write there.",
                "Once more; the project and its caches in WSL's own file system, where Windows does not scan.",
            ),
        ),
        look=HOST,
    ),
    # about: What was read or written does not answer as it should.
    Rule(
        "input-output",
        "OSError: [Errno 5] Input/output error",
        (
            r"\[Errno 5\] Input/output error",
            r"\b(?:cp|mv|rm|ls|cat|dd|tar|rsync|touch|mkdir|stat): [^\n]{0,200}: Input/output error$",
        ),
        (
            Cause(
                "input-output-1",
                "The disk, or the network drive, that holds the file fails.",
                "sudo dmesg | grep -i error",
                tell="dmesg names it: save what is on it",
            ),
            Cause(
                "input-output-2",
                "The terminal that the program writes to is gone, as after ssh ended.",
                "sudo dmesg | grep -i error",
                tell="the traceback's last frame prints or flushes: nohup, tmux, or ./launch run -d",
            ),
        ),
        look=HOST,
        level=BROAD,
    ),
    Rule(
        "disk-fails",
        "blk_update_request: I/O error, dev nvme0n1, sector 4242",
        (
            r"\[Errno 74\]|: Bad message\b|EBADMSG|Structure needs cleaning|EUCLEAN",
            r"(?<!nvidia-smi): Input/output error(?!$)|I/O error, dev ",
        ),
        (
            Cause(
                "disk-fails",
                "The disk, or the network drive, that holds the file does not answer as it should.",
                "sudo dmesg | grep -i error says which; save what is on it.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "lfs-missing",
        "git: 'lfs' is not a git command. See 'git --help'.",
        (
            r"git: 'lfs' is not a git command",
            r"git-lfs(?: filter-process| smudge[^\n:]*)?:? ?(?:\d+: git-lfs: )?(?:command )?not found",
            r"git-lfs'?[^\n]{0,40} was not found on your path",
        ),
        (
            Cause(
                "lfs-missing",
                "The repository keeps large files with Git LFS, which is not installed here.",
                "git-lfs in apt.txt, then ./launch build; then git lfs pull.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "lfs-failed",
        "fatal: model.bin: smudge filter lfs failed",
        (
            r"smudge filter lfs failed|Smudge error:",
            r"external filter 'git-lfs filter-process' failed",
            r"batch response: (?:Fatal|Client|Server|This repo|Auth|Rate|Repository|Post|Invalid)",
            r"LFS: (?:Client|Server) error|expected OID \w+, got \w+",
            r"over its data quota|Git LFS[^\n]{0,40}(?:bandwidth|quota)",
        ),
        (
            Cause(
                "lfs-failed",
                "Git LFS could not fetch a large file: the download broke off, the server refuses it, or its quota is used up.",
                "GIT_LFS_SKIP_SMUDGE=1 git clone, then git lfs pull, which resumes where it stopped; for models: hf download.",
            ),
        ),
        look="git lfs logs last",
    ),
    Rule(
        "lfs-pointer",
        "_pickle.UnpicklingError: invalid load key, 'v'.",
        (
            r"invalid load key, '[v<]'",
            r"Error while deserializing header: HeaderTooLarge|HeaderTooLarge",
            r"version https://git-lfs\.github\.com/spec",
            r"WeightsUnpickler error: Unsupported operand (?:60|118)\b",
        ),
        (
            Cause(
                "lfs-pointer",
                "The file is not what its name says: a pointer of Git LFS, or a web page, was saved in its place.",
                "git lfs pull in that folder, or download the file again.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "checkpoint-newer",
        "_pickle.UnpicklingError: A load persistent id instruction was encountered",
        (
            r"A load persistent id instruction was encountered",
            r"Attempted to read a PyTorch file with version",
            r"kMaxSupportedFileFormatVersion",
            r"unsupported pickle protocol",
            r"Only one file\(not dir\) is allowed in the zipfile",
            r"is a zip archive \(did you mean to use torch\.jit\.load",
        ),
        (
            Cause(
                "checkpoint-newer",
                "The checkpoint was saved by a newer torch or Python than this one, or is only the inside of one that was "
                "unpacked.",
                "A newer base: copier update --trust; a checkpoint is loaded as it was saved, not unpacked.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "python-cache-broken",
        "ValueError: bad marshal data (unknown type code)",
        (r"bad marshal data", r"bad magic number in '([\w.]+)'", r"marshal data too short"),
        (
            Cause(
                "python-cache-broken",
                "A compiled Python file (__pycache__) is broken, or was made by another Python.",
                "find . -name __pycache__ -exec rm -r {} +, and install that package again.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "checkpoint-device",
        "RuntimeError: don't know how to restore data location of torch.storage.UntypedStorage (tagged with mps:0)",
        (r"don't know how to restore data location of [^\n]{0,80}tagged with (\w+)",),
        (
            Cause(
                "checkpoint-device",
                "The checkpoint's tensors lie on a kind of device ({0}) that this torch does not know.",
                "torch.load(..., map_location='cpu'); else a newer torch, or the package for that device imported first.",
            ),
        ),
        look=VERIFY,
    ),
    # about: The file is not as this torch writes a checkpoint.
    Rule(
        "checkpoint-form",
        'RuntimeError: Expected hasRecord("version") to be true, but got false',
        (
            r"Expected hasRecord\(\"version\"\) to be true",
            r"storage has wrong (?:byte )?size: expected",
            r"unexpected pos \d+ vs|Invalid magic number|not a TorchScript archive",
        ),
        (
            Cause(
                "checkpoint-form-1",
                "It is not whole, or several processes wrote it at a time.",
                "Download or save the same file again, from one process only.",
                tell="its size differs from the original's; only rank 0 should save",
            ),
            Cause(
                "checkpoint-form-2",
                "Another release of torch, or another program, wrote it.",
                "Download or save the same file again, from one process only.",
                tell="it loads with that release: torch.load there, and save it again",
            ),
            Cause(
                "checkpoint-form-3",
                "It was unpacked and packed again.",
                "Download or save the same file again, from one process only.",
                tell="unzip -l shows no folder named as torch names it, with data.pkl and version",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "file-incomplete",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        (
            r"Error while deserializing header",
            r"failed finding central directory",
            r"PytorchStreamReader failed",
            r"Consistency check failed: file should be of size",
            r"unexpected EOF, expected \d+ more bytes",
            r"EOFError: Ran out of input",
            r"Unable to load weights from (?:pytorch|the) checkpoint file",
            r"pickle data was truncated",
            r"MetadataIncompleteBuffer|HeaderTooSmall",
            r"Invalid magic number; corrupt file",
            r"invalid hash value \(expected",
        ),
        (
            Cause(
                "file-incomplete",
                "A file with weights or data is not whole, or not what it is read as: a download or a save was interrupted.",
                "Delete that file, and download or save it again.",
            ),
        ),
        look=VERIFY,
        unless=r"spawn_main",
    ),
    Rule(
        "image-not-read",
        "cv2.error: OpenCV(4.10.0) error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
        (r"!_src\.empty\(\)|!ssize\.empty\(\)|!_img\.empty\(\)",),
        (
            Cause(
                "image-not-read",
                "OpenCV was given no image: the path is wrong, is not mounted into the container, or is no image.",
                "Print the path before cv2.imread, and look for it in the container.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "data-broken",
        "PIL.UnidentifiedImageError: cannot identify image file",
        (
            r"cannot identify image file|image file is truncated|UnidentifiedImageError",
            r"BadZipFile|File is not a zip file|End-of-central-directory signature not found",
            r"ArrowInvalid: (?:JSON parse|Parquet|CSV parse|Could not open Parquet)|Couldn't deserialize thrift",
            r"appears to be corrupted|CondaVerificationError",
            r"Corrupt JPEG data|libpng error|premature end of data",
            r"Not a gzipped file|BadGzipFile|CRC check failed",
            r"tarfile\.ReadError|gzip: stdin: (?:unexpected end of file|not in gzip format)",
            r"(?:Failed to|Could not|Cannot|Error) decod(?:e|ing) (?:the )?(?:audio|video|image|frame)",
        ),
        (
            Cause(
                "data-broken",
                "A file of the data is not whole, not what its name says, or of a kind that this reader does not know.",
                "Delete it, and fetch it again; a download that was refused often leaves a web page in its place.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "weights-only",
        "_pickle.UnpicklingError: Weights only load failed.",
        (
            r"Weights only load failed",
            r"WeightsUnpickler error",
            r"types accepted by default with weights_only",
            r"re-running `?torch\.load`? with `?weights_only",
            r"Unsupported global: GLOBAL \S+ was not an allowed global",
        ),
        (
            Cause(
                "weights-only",
                "The checkpoint holds more than weights, and torch since 2.6 loads only weights unless told otherwise.",
                "torch.load(..., weights_only=False), for a file that you trust.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torch-load-too-old",
        "Due to a serious vulnerability issue in `torch.load`, ... require users to upgrade torch to at least v2.6",
        (r"serious vulnerability issue in `torch\.load`",),
        (
            Cause(
                "torch-load-too-old",
                "transformers refuses to read old checkpoints (.bin) with a torch older than 2.6.",
                "A model with safetensors, or a newer base: copier update --trust",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "checkpoint-other-model",
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict",
        (
            r"Error\(s\) in loading state_dict for",
            r"Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict",
            r"size mismatch for [\w.]+: copying a param",
            r"doesn't match the size of parameter group",
            r"loaded state dict (?:has a different number|contains a parameter)",
        ),
        (
            Cause(
                "checkpoint-other-model",
                "The program itself: the checkpoint is of another model, or from another release of its package, "
                "than the one it is loaded into, or was saved from one wrapped by DDP (`module.`) or torch.compile "
                "(`_orig_mod.`).",
                "Make the model with the checkpoint's settings; save model.module.state_dict().",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "dataset-empty",
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
        (
            r"num_samples should be a positive integer value, but got num_samples=0",
            r"Couldn't find any class folder in|Found no valid file for the classes|Found 0 (?:files|images)",
            r"No images found in|No (?:data|training) (?:files|samples|images) (?:were )?found",
        ),
        (
            Cause(
                "dataset-empty",
                "The program found no data: the folder is empty, of another layout, or not mounted into the container.",
                "ls that folder in the container; DATA_DIR or a mount of devcontainer.json brings it in.",
            ),
        ),
        look=MOUNTS,
    ),
    Rule(
        "is-a-folder",
        "IsADirectoryError: [Errno 21] Is a directory: '/app/config.yaml'",
        (
            r"IsADirectoryError: \[Errno 21\] Is a directory: '([^']+)'",
            r"(?:open|read|cat):? (/[^\s:]+\.\w{2,5}): [Ii]s a directory",
        ),
        (
            Cause(
                "is-a-folder",
                "{0} is a folder where a file is expected; Docker makes such a folder where the file of a mount was missing.",
                "Look whether it is an empty folder on the machine: remove it there, put the file in its place, and "
                "recreate the container.",
            ),
        ),
        look=MOUNTS,
        level=GENERAL,
    ),
    Rule(
        "file-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
        (
            r"\[Errno 2\] No such file or directory: ['\"]([^'\"\n]+)",
            r"Parent directory (\S+) does not exist",
            r"unable to open file: name = '([^']+)', errno = 2",
            r"(?:python\S*|bash|sh|cat|ls|cp|mv): (?:can't open file |cannot (?:access|stat|open) )?['\"]?"
            r"([^'\"\n:]+)['\"]?: (?:\[Errno 2\] )?No such file or directory",
        ),
        (
            Cause(
                "file-missing",
                "There is no {0} where this runs; a container sees only the project and what is mounted.",
                "Check the path there; a folder of the machine comes in as a mount of devcontainer.json.",
            ),
        ),
        look=MOUNTS,
        level=GENERAL,
    ),
    # about: This user may not use the file or folder that the line names.
    Rule(
        "denied",
        "Failed to write log (Permission denied)",
        (
            r"^(?!.*(?:daemon|docker|public.?key)).*(?:Permission denied|\bEACCES\b)",
            r"^(?!.*(?:daemon|docker|public.?key)).*PermissionError: \[Errno 13\]",
        ),
        (
            Cause(
                "denied-1",
                "It belongs to somebody else, often root after a container ran as root.",
                "ls -ld on the path, and id",
                tell='ls -ld; sudo chown -R "$USER" on its folder of the machine',
            ),
            Cause(
                "denied-2",
                "It may not be executed, or its drive allows nobody.",
                "ls -ld on the path, and id",
                tell="ls -l; mount",
            ),
            Cause(
                "denied-3",
                "SELinux refuses it to a container.",
                "ls -ld on the path, and id",
                tell="sudo ausearch -m avc -ts recent",
            ),
        ),
        look=MOUNTS,
        level=GENERAL,
    ),
)
