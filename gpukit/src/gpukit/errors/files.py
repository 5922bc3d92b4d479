"""Files: rights, owners, disks, what is broken or missing, checkpoints."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.evidence import (
    CONTAINER,
    JETSON,
    SELINUX,
    WSL,
    only,
    text_has,
    text_must_have,
    torch_below,
    unless_text_has,
)
from gpukit.errors.rule import BROAD, GENERAL, GRANT, HOST, MOUNTS, VERIFY, Rule
from gpukit.findings.finding import Cause

DISK = "`./launch doctor --only disk`"

# Causes that several rules have.
DISK_FULL = Cause(
    "no-space-left",
    "The disk is full, or your quota on it is used up.",
    "Run `df -h` to find the full disk. `./launch clean` and `docker system prune` remove what is unused; models are "
    "in `~/.cache/huggingface`.",
    tell="`df -h FOLDER` shows no free space, or `quota -s` a limit that is reached",
    standalone="Run `df -h` to find the full disk. `docker system prune` removes what is unused; models are "
    "in `~/.cache/huggingface`.",
)
OTHER_OWNER = Cause(
    "other-owner",
    "The file or folder belongs to another user, often to root after a container ran as root.",
    'On the host, run `sudo chown -R "$USER" FOLDER` on the folder that is mounted.',
    tell="`ls -ld` on the path shows another owner than `id -un`",
    given=unless_text_has(r"['\"]/(?:usr|lib|bin|sbin|etc)/"),
)
NOT_WRITABLE = Cause(
    "folder-not-writable",
    "The folder is one that this user may not write to: one of the system, or a network drive with its own "
    "permissions.",
    "Write to a folder of yours, such as outputs/ in the project; set `HF_HOME` or `TMPDIR` for caches and temporary "
    "files.",
    tell="`ls -ld` on the folder above it shows that only others may write",
)
SELINUX_REFUSES = Cause(
    "selinux-refuses",
    "SELinux does not let the container use a folder of the host.",
    'Mount it with `:z`, as in `-v "$PWD":/workspace:z`, or use `--security-opt label=disable`.',
    tell="owner and mode are right, and `sudo ausearch -m avc -ts recent` on the host lists it",
    given=only(SELINUX | text_has(r"SELinux|\bavc:|Fedora|Red Hat|\bel[89]\b")),
)
NOT_SAVED_WHOLE = Cause(
    "file-incomplete",
    "The file is incomplete: its download or its save was interrupted.",
    "Delete it, and download or save it again; in Hugging Face's cache, run `hf download NAME --force-download`. If a "
    "complete download fails too, the published file is broken: use another version of it, or tell its owner.",
    tell="its size differs from the original's, or `ls -l` shows 0",
)
WEB_PAGE = Cause(
    "file-is-web-page",
    "A web page or an error message was saved in place of the file, because the download needed a login or a "
    "confirmation.",
    "Delete it, and download it again with a login or with the tool that its page names.",
    tell="`head -c 200 FILE` prints HTML or a sentence",
    given=text_has(r"invalid load key, '<'", r"operand 60\b"),
)
LFS_POINTER = Cause(
    "lfs-pointer",
    "The file is a pointer of Git LFS, not the content: the repository was cloned without Git LFS.",
    "Run `git lfs install && git lfs pull` in that repository, or `hf download NAME`.",
    tell="`head -c 40 FILE` prints `version https://git-lfs`",
    given=text_must_have(r"invalid load key, 'v'", r"git-lfs", r"operand 118", r"HeaderTooLarge"),
)
SAVED_BY_SEVERAL = Cause(
    "saved-by-several",
    "Several processes wrote the same file at the same time.",
    "Save from one process only: `if rank == 0: torch.save(...)`, followed by `torch.distributed.barrier()`.",
    tell="the training ran on several GPUs, and each process called `save`",
)
DRIVE_FAILS = Cause(
    "drive-fails",
    "The disk or network drive that holds the file reports errors.",
    "Run `sudo dmesg | grep -i -e error -e ext4 -e nfs` on the host, and copy what is important to another disk.",
    tell="`dmesg` names the drive, or other files on it fail too",
)
DRIVE_GONE = Cause(
    "network-drive-gone",
    "The network drive that holds the file was disconnected, or was mounted again while it was in use.",
    "On the host, run `sudo umount -l FOLDER && sudo mount FOLDER`, then start the container again.",
    tell="`ls` on that folder of the host fails or hangs",
)
NO_LOCKS = Cause(
    "drive-without-locks",
    "The network drive does not support file locks, which caches and databases need.",
    "Put caches on a local disk, for example `HF_HOME=/tmp/hf`; for HDF5, set `HDF5_USE_FILE_LOCKING=FALSE`.",
    tell="`findmnt -T FILE` shows nfs, cifs, lustre, or fuse",
    given=text_has(r"No locks|Errno 37|\bf?lock(?:s|f|ing)?\b|\.locks?\b|fcntl"),
)
CHECKPOINT_FROM_NEWER = Cause(
    "checkpoint-from-newer",
    "The checkpoint was saved by a newer torch or Python than the one that reads it.",
    "Use a newer torch: `./launch update` in a project. Or save it there again with "
    "`torch.save(..., _use_new_zipfile_serialization=False)`.",
    tell="this torch is older than 1.6, or the text has `version` or `protocol`",
    given=text_has(r"file with version|kMaxSupported|pickle protocol") | torch_below("1.6"),
    standalone="Use a newer torch. Or save it there again with `torch.save(..., "
    "_use_new_zipfile_serialization=False)`.",
)

# What torch.load reads is no pickle: none of these numbers is an instruction that a checkpoint has.
NO_PICKLE = (
    r"Unsupported operand (?!(?:6[67]|7[0136]|83|100|105|108|111|1[2-5]\d)\b)|invalid load key|Ran out of input|"
    r"pickle data was truncated"
)

RULES = (
    Rule(
        "conflict-markers",
        "<<<<<<< before updating",
        (r"<<<<<<< before updating", r"you have unmerged files", r"needs merge$"),
        (
            Cause(
                "conflict-markers",
                "A merge or an update of the project changed the same lines as you, and the files hold both versions.",
                "Edit each file that `git status` lists: keep one version between `<<<<<<<` and `>>>>>>>`. Then run "
                "`git add FILE`.",
            ),
        ),
        more="`./launch doctor --only merge`",
        program=True,
    ),
    Rule(
        "no-new-privileges",
        'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.',
        (r"no new privileges\\?\"? flag is set", r"sudo must be owned by uid 0 and have the setuid bit set"),
        (
            Cause(
                "no-new-privileges",
                "The container is not allowed to gain root rights (`no-new-privileges`), so sudo does not work in it.",
                "Install packages through apt.txt or the Dockerfile and run `./launch build`; or remove "
                "`--security-opt=no-new-privileges` from runArgs in devcontainer.json.",
                tell="`grep NoNewPrivs /proc/self/status` shows 1",
                given=unless_text_has(r"owned by uid 0"),
                standalone="Install packages in the Dockerfile, or start the container without "
                "`--security-opt=no-new-privileges`.",
            ),
            Cause(
                "sudo-damaged",
                "The file of sudo has the wrong owner or mode: somebody changed it, or the container maps user ids "
                "(rootless).",
                "Rebuild the image with `./launch build`; on a machine, as root: `chown root:root /usr/bin/sudo && "
                "chmod 4755 /usr/bin/sudo`.",
                tell="`ls -l /usr/bin/sudo` does not show `-rwsr-xr-x root`",
                given=text_must_have(r"owned by uid 0"),
                standalone="Rebuild the image; on a machine, as root: `chown root:root /usr/bin/sudo && chmod 4755 "
                "/usr/bin/sudo`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "git-owner",
        "fatal: detected dubious ownership in repository at '/workspace'",
        (r"detected dubious ownership in repository", r"unsafe repository[^\n]{0,200}owned by someone else"),
        (
            Cause(
                "git-owner",
                "The repository's folder belongs to another user than the one who runs git, as with a folder that "
                "root or another container created.",
                'On the host, run `sudo chown -R "$USER" .` in the repository. In CI, or if the owner is right, as '
                "on a Windows or network drive: `git config --global --add safe.directory FOLDER`.",
            ),
        ),
        more=MOUNTS,
        certain=True,
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
                "Files in .git belong to another user, often to root after a container ran as root.",
                'On the host, run `sudo chown -R "$USER" .git` in the repository.',
            ),
        ),
        more=MOUNTS,
    ),
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
            Cause(
                "library-not-mapped",
                "The library cannot be mapped into memory: SELinux or a memory limit prevents it.",
                "Check `ulimit -v` (it should be unlimited), and `sudo ausearch -m avc -ts recent` on the host.",
                tell="the folder is not mounted with noexec",
                given=text_has(r"Cannot allocate memory|Permission denied|avc:"),
            ),
        ),
        more=VERIFY,
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
            DISK_FULL,
            Cause(
                "save-folder-missing",
                "The folder for the file does not exist.",
                "Create it before saving: `os.makedirs(folder, exist_ok=True)`.",
                tell="`ls -ld FOLDER` does not find it",
                given=text_has(r"cannot be opened"),
            ),
            NOT_WRITABLE,
        ),
        more=DISK,
        level=BROAD,
    ),
    Rule(
        "no-temporary-folder",
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']",
        (r"No usable temporary directory found",),
        (
            DISK_FULL,
            Cause(
                "no-temporary-folder",
                "No folder for temporary files (/tmp, /var/tmp) is writable for this user.",
                "Set `TMPDIR` to a folder of yours, or mount one: `--tmpfs /tmp`.",
                tell="`touch /tmp/x` fails with `Permission denied` or `Read-only file system`",
            ),
        ),
        more=DISK,
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
            DISK_FULL,
            Cause(
                "docker-store-full",
                "The disk that holds images and containers is full (/var/lib/docker, or Docker Desktop's virtual "
                "disk).",
                "Run `docker system df`, then `docker system prune`; in Docker Desktop, raise the disk limit in "
                "Settings, Resources.",
                tell="`df -h /var/lib/docker` shows no free space",
                given=text_has(
                    r"/var/lib/(?:docker|containerd)|register layer|ApplyLayer|failed to (?:solve|build|copy)|#\d+ "
                    r"\d+\.\d+ |overlay"
                ),
            ),
            Cause(
                "no-free-inodes",
                "The disk has space, but no free inodes: there are too many small files on it.",
                "Run `df -i`, and delete folders with very many files, such as old caches and environments.",
                tell="`df -i` shows 100%",
            ),
        ),
        more=DISK,
        kind="disk",
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
                "device-groups",
                "The user is not in the group that the device belongs to.",
                'On the host, run `sudo usermod -aG video,render "$USER"` and log in again; in a container, add '
                "`--group-add=$(stat -c %g /dev/dri/renderD128)`.",
                tell="`ls -l` on the device shows a group that `id` does not list",
                given=JETSON | text_has(r"/dev/(?:dri|kfd|video)"),
            ),
            Cause(
                "device-mode",
                "The device files of the NVIDIA driver are open to root only.",
                "On the host, run `sudo chmod 666 /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm*`, and remove "
                "`NVreg_DeviceFileMode` from "
                "/etc/modprobe.d.",
                tell="`ls -l /dev/nvidia0` does not show `crw-rw-rw-`",
                given=text_has(r"/dev/nvidia"),
            ),
            Cause(
                "device-cgroup",
                "The container was not given the device: its file was mounted, but the engine's device rules do not "
                "allow it.",
                "Start it with `./launch`, or with `docker run --gpus all ...` instead of mounting /dev.",
                tell="it works on the host",
                given=CONTAINER,
                standalone="Start it with `docker run --gpus all ...` instead of mounting /dev.",
            ),
        ),
        more=GRANT,
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
                "The container's user has no home folder, so programs use `/` or a folder that does not exist.",
                "Start it with `./launch` or VS Code, which give the image your user; with `docker run --user`, add "
                "`-e HOME=/tmp`.",
                tell="`echo $HOME` prints `/`, or a folder that `ls -ld` does not find",
                standalone="Start it as a user that the image has; with `docker run --user`, add `-e HOME=/tmp`.",
            ),
        ),
        more=VERIFY,
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
                "{0} belongs to the system or the image, and only root may change it.",
                "Install packages with `./launch add PACKAGE`. Other files belong in the Dockerfile or in the project.",
                tell="`ls -ld` on it shows root as the owner",
                standalone="Install packages in a virtual environment (`python -m venv`). Other files belong in the "
                "Dockerfile.",
            ),
        ),
        more=VERIFY,
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
                "The program writes to root's home folder (/root), and does not run as root.",
                "Start the container with `./launch` or VS Code, which give the image your user; with `docker run "
                "--user`, add `-e HOME=/tmp -e HF_HOME=/tmp/hf`.",
                tell="`echo $HOME` prints /root, and `id -u` is not 0",
                standalone="Start it as a user that the image has; with `docker run --user`, add `-e HOME=/tmp -e "
                "HF_HOME=/tmp/hf`.",
            ),
            Cause(
                "installed-in-root-home",
                "The program or its Python was installed in root's home folder, which other users may not read.",
                "Install it elsewhere in the Dockerfile: `ENV UV_PYTHON_INSTALL_DIR=/opt/python`, and the environment "
                "in /opt/venv.",
                tell="the path in the message is a program, a library, or a Python",
                given=text_has(r"/root/(?:\.local/(?:bin|share/uv)|\.pyenv|(?:mini|ana)conda|\.cargo|\.venv|\.nvm)"),
            ),
        ),
        more=VERIFY,
    ),
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
        (OTHER_OWNER, NOT_WRITABLE, SELINUX_REFUSES),
        more=MOUNTS,
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
                "not-root",
                "Only root may change owners and the modes of other users' files, and this user is not root.",
                "Do it in the Dockerfile, or on the host with `sudo`.",
                tell="`id -u` does not print 0",
            ),
            Cause(
                "drive-without-owners",
                "The file is on a drive that has no Unix owners, or keeps its own: Windows' drives (/mnt/c), exFAT, "
                "network drives, Docker Desktop's mounts.",
                "Move the files to a Linux disk (in WSL, your home folder), or skip the change of owners: `tar "
                "--no-same-owner`, `rsync --no-o --no-g`, `cp` without `-a`.",
                tell="`findmnt -T FILE` shows 9p, drvfs, fuse, nfs, cifs, exfat, or ntfs",
                given=WSL | text_has(r"/mnt/[a-z]/|ownership to uid"),
            ),
            Cause(
                "root-without-rights",
                "The user is root only inside of the container: it is rootless, or `--cap-drop` removed the right.",
                "Do it on the host, or start the container without `--cap-drop` or rootless mode.",
                tell="`id -u` prints 0",
                given=CONTAINER & text_has(r"rootless|uid=0|root@"),
            ),
        ),
        more=MOUNTS,
    ),
    Rule(
        "read-only",
        "OSError: [Errno 30] Read-only file system: '/data/out'",
        (r"Read-only file system:? ?['\"]?(/[^'\"\s]*)?", r"EROFS: read-only file system"),
        (
            Cause(
                "mounted-read-only",
                "{0} is mounted read-only on purpose, like a project's data folders.",
                "Write to outputs/ or a cache; to allow writing, remove `readonly` (or `:ro`, `--read-only`) from "
                "the mount.",
                tell="`findmnt -T FILE` in the container shows `ro`, and on the host `rw`",
                given=unless_text_has(r"remount"),
            ),
            Cause(
                "file-system-fault",
                "The kernel made the file system read-only after an error of the disk.",
                "Run `sudo dmesg | grep -i -e error -e remount` on the host, save your data, and check the disk: "
                "`sudo fsck` on the unmounted device.",
                tell="`findmnt -T FILE` on the host shows `ro` as well",
                given=text_has(r"I/O error|remount"),
            ),
            Cause(
                "system-read-only",
                "The system's own folders are read-only, as on immutable systems (Talos, Flatcar, Fedora CoreOS, "
                "NixOS, macOS) or in a snap.",
                "Use a folder that this system allows, such as /var or /opt, and set it in the tool's configuration.",
                tell="the path is below /usr, /lib, or /etc",
                given=text_must_have(r"(?:mkdir|open|create|write)[^\n]{0,40} ['\"]?/(?:usr|lib|etc|bin|sbin|opt)\b"),
            ),
        ),
        more=VERIFY,
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
        (DRIVE_GONE, NO_LOCKS, DRIVE_FAILS),
        more=MOUNTS,
        program=True,
    ),
    Rule(
        "cross-device",
        "OSError: [Errno 18] Invalid cross-device link",
        (r"Invalid cross-device link",),
        (
            Cause(
                "cross-device",
                "The program moves or links a file from one disk to another, which cannot be done in one step: the "
                "cache and the temporary folder are on different mounts.",
                "Set `TMPDIR` to a folder on the same disk as the target; in a program of yours, use `shutil.move`. "
                "For uv, set `UV_LINK_MODE=copy`.",
            ),
        ),
        more=MOUNTS,
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
                "lock-in-use",
                "Another process is using the file ({0}) and holds its lock, as during a download.",
                "Wait for it, or find it with `fuser -v FILE` and end it.",
                tell="`fuser -v FILE` lists a process",
            ),
            Cause(
                "lock-left",
                "A process that was killed left the lock, or a network drive did not release it.",
                "If no process uses it, delete the lock file (*.lock).",
                tell="`fuser -v FILE` lists nothing",
            ),
            replace(NO_LOCKS, given=None),
        ),
        more=MOUNTS,
        program=True,
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
                "database-in-use",
                "Several processes write to one SQLite database (of MLflow, Optuna, or Jupyter), or one that hangs "
                "holds it.",
                "Let one process write, or use a server: `./launch up` starts the project's MLflow. End a process "
                "that hangs: `fuser -v FILE`.",
                tell="`fuser -v FILE` lists more than one process",
                given=unless_text_has(r"unable to open|readonly|disk I/O"),
                standalone="Let one process write, or use a server, such as MLflow's. End a process that hangs: `fuser "
                "-v FILE`.",
            ),
            Cause(
                "database-not-writable",
                "The database's folder does not exist, or this user may not write to it.",
                'Run `ls -ld` on the folder; create it, or change its owner with `sudo chown -R "$USER" FOLDER` on '
                "the host.",
                tell="the text has `unable to open` or `readonly`",
                given=text_must_have(r"unable to open|readonly"),
            ),
            Cause(
                "database-on-network-drive",
                "The database is on a network drive, whose locks SQLite cannot rely on.",
                "Move it to a local disk.",
                tell="`findmnt -T FILE` shows nfs, cifs, fuse, or 9p",
            ),
        ),
        more=MOUNTS,
        program=True,
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
                "windows-file-in-use",
                "Another program on Windows has the file open, often the virus scanner, an editor, or a Python "
                "process.",
                "Close programs that use it, and run the command again. Projects in WSL's own file system (your home "
                "folder there) are not affected.",
                tell="it works on another try, or after a restart",
                given=text_has(r"WinError 3[23]|used by another process"),
            ),
            Cause(
                "windows-no-rights",
                "This Windows user may not write there.",
                "Use a folder of yours, or a virtual environment instead of a Python for all users.",
                tell="the path is in C:\\Program Files or C:\\Windows",
                given=unless_text_has(r"WinError 3[23]|used by another process"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "input-output",
        "OSError: [Errno 5] Input/output error",
        (
            r"\[Errno 5\] Input/output error",
            r"\b(?:cp|mv|rm|ls|cat|dd|tar|rsync|touch|mkdir|stat): [^\n]{0,200}: Input/output error$",
        ),
        (
            DRIVE_FAILS,
            Cause(
                "terminal-closed",
                "The terminal or SSH connection was closed, which ended the training.",
                "Start it in the background with `./launch run -d -- ...`, or in tmux.",
                tell="the traceback ends in `print`, `write`, or `flush`",
                given=text_must_have(r"\b(?:print|flush|tqdm|sys\.std|write)\b"),
                standalone="Start it in tmux, or with `nohup`.",
            ),
            NO_LOCKS,
        ),
        more="`sudo dmesg | grep -i error`",
        level=BROAD,
        program=True,
    ),
    Rule(
        "disk-fails",
        "blk_update_request: I/O error, dev nvme0n1, sector 4242",
        (
            r"\[Errno 74\]|: Bad message\b|EBADMSG|Structure needs cleaning|EUCLEAN",
            r"(?<!nvidia-smi): Input/output error(?!$)|I/O error, dev ",
        ),
        (DRIVE_FAILS, NO_LOCKS),
        more="`sudo dmesg | grep -i error`",
        program=True,
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
                "git-lfs-missing",
                "The repository keeps large files in Git LFS, which is not installed here.",
                "Add `git-lfs` to apt.txt and run `./launch build` (on a machine: `sudo apt-get install git-lfs`). "
                "Then run `git lfs install && git lfs pull`.",
                standalone="Install it: `sudo apt-get install git-lfs`. Then run `git lfs install && git lfs pull`.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
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
                "lfs-interrupted",
                "The download of a large file was interrupted, or the file arrived damaged.",
                "Run `git lfs pull` again; it continues where it stopped. For a new clone: `GIT_LFS_SKIP_SMUDGE=1 "
                "git clone ADDRESS`, then `git lfs pull`.",
                tell="another try gets further",
            ),
            Cause(
                "lfs-quota",
                "The repository's quota for Git LFS downloads is used up.",
                "Ask its owner, wait until next month, or download the files elsewhere; for models, `hf download "
                "NAME`.",
                tell="the text has `quota`",
                given=text_must_have(r"quota|bandwidth"),
            ),
            Cause(
                "lfs-refused",
                "The server does not have the file, or refuses it without a login.",
                "Log in (`gh auth login`, or a token), and check that the repository's owner uploaded the file.",
                tell="the text has `404`, `403`, or `not exist`",
                given=text_has(r"does not exist|40[134]|Authori[sz]ation|Auth"),
            ),
        ),
        more="`git lfs logs last`",
        program=True,
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
        (LFS_POINTER, WEB_PAGE, NOT_SAVED_WHOLE),
        program=True,
        more=VERIFY,
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
        ),
        (
            CHECKPOINT_FROM_NEWER,
            Cause(
                "checkpoint-unpacked",
                "The checkpoint was unpacked: its data.pkl is read instead of the whole file.",
                "Use the file as it was downloaded, without unpacking it.",
                tell="the path ends in data.pkl, or its folder has `data` and `version`",
                given=text_has(r"data\.pkl"),
            ),
            Cause(
                "checkpoint-plain-pickle",
                "The file was saved with `torch.save`, and is read with `pickle.load`.",
                "Read it with `torch.load`.",
                tell="the traceback's last frame calls `pickle.load`",
                given=text_has(r"pickle\.load\("),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "checkpoint-zip",
        "RuntimeError: checkpoint.pth is a zip archive (did you mean to use torch.jit.load()?)",
        (r"is a zip archive \(did you mean to use torch\.jit\.load",),
        (
            CHECKPOINT_FROM_NEWER,
            Cause(
                "checkpoint-torchscript",
                "The file is a TorchScript model.",
                "Read it with `torch.jit.load`.",
                tell="`unzip -l FILE` lists a folder `code`",
                given=~torch_below("1.6"),
            ),
        ),
        more="`unzip -l FILE`",
    ),
    Rule(
        "python-cache-broken",
        "ValueError: bad marshal data (unknown type code)",
        (r"bad marshal data", r"bad magic number in '([\w.]+)'", r"marshal data too short"),
        (
            Cause(
                "python-cache-broken",
                "A compiled Python file in __pycache__ is damaged, or was made by another Python version.",
                "Delete them: `find . -name __pycache__ -prune -exec rm -r {} +`. If the file belongs to a package, "
                "reinstall it with `pip install --force-reinstall --no-deps PACKAGE`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "checkpoint-device",
        "RuntimeError: don't know how to restore data location of torch.storage.UntypedStorage (tagged with mps:0)",
        (r"don't know how to restore data location of [^\n]{0,80}tagged with (\w+)",),
        (
            Cause(
                "checkpoint-device",
                "The checkpoint's tensors were saved on a kind of device ({0}) that is not available here.",
                'Load it with `torch.load(..., map_location="cpu")`.',
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "checkpoint-form",
        'RuntimeError: Expected hasRecord("version") to be true, but got false',
        (
            r"Expected hasRecord\(\"version\"\) to be true",
            r"storage has wrong (?:byte )?size: expected",
            r"unexpected pos \d+ vs|Invalid magic number|not a TorchScript archive",
        ),
        (
            NOT_SAVED_WHOLE,
            SAVED_BY_SEVERAL,
            Cause(
                "checkpoint-repacked",
                "Another program wrote or packed the file, or it was unpacked and packed again.",
                "Download or save the original again; load safetensors, GGUF, or TensorFlow files with their own "
                "package.",
                tell="`unzip -l FILE` shows no folder that holds data.pkl and version",
            ),
        ),
        level=BROAD,
        program=True,
        more=VERIFY,
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
        (NOT_SAVED_WHOLE, WEB_PAGE, SAVED_BY_SEVERAL),
        excludes=r"spawn_main",
        program=True,
        more=VERIFY,
    ),
    Rule(
        "image-not-read",
        "cv2.error: OpenCV(4.10.0) error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
        (r"!_src\.empty\(\)|!ssize\.empty\(\)|!_img\.empty\(\)",),
        (
            Cause(
                "image-not-read",
                "OpenCV got no image: the path is wrong or not mounted into the container, or the file is not an "
                "image.",
                "Print the path before `cv2.imread`, and check it with `ls -l` in the container.",
                tell="`cv2.imread` or a list of files is in the traceback's last frames",
            ),
            Cause(
                "frame-empty",
                "The camera or the video gives no picture: it has ended, cannot be opened, or has a format that "
                "OpenCV cannot decode.",
                "Stop when `ok, frame = capture.read()` gives `ok` as False, and check `capture.isOpened()`; in a "
                "container, pass the camera with `--device /dev/video0`.",
                tell="the program reads from `cv2.VideoCapture`",
                given=text_has(r"VideoCapture|video|camera|webcam|frame = |\.mp4|\.avi"),
            ),
        ),
        more=MOUNTS,
        program=True,
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
            NOT_SAVED_WHOLE,
            WEB_PAGE,
            Cause(
                "data-format-unknown",
                "The file is of a format that this reader does not support, or its name has the wrong extension.",
                "Check it with `file FILE`, and convert it or install the decoder that the reader names.",
                tell="`file FILE` names another format than the extension",
            ),
        ),
        program=True,
        more=VERIFY,
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
            replace(NOT_SAVED_WHOLE, given=text_must_have(NO_PICKLE)),
            replace(WEB_PAGE, given=text_must_have(NO_PICKLE)),
            Cause(
                "weights-only",
                "The checkpoint contains Python objects, and since torch 2.6 `torch.load` accepts only weights by "
                "default.",
                "If you trust the file, use `torch.load(..., weights_only=False)`, or allow the class that the text "
                "names with `torch.serialization.add_safe_globals([...])`. If the code is not yours, upgrade its "
                "package, or set `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`.",
                tell="the text names a class that is not allowed, or the same file loads with an older torch",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "torch-load-too-old",
        "Due to a serious vulnerability issue in `torch.load`, ... require users to upgrade torch to at least v2.6",
        (r"serious vulnerability issue in `torch\.load`",),
        (
            Cause(
                "torch-load-too-old",
                "transformers no longer reads .bin checkpoints with a torch older than 2.6, because of a "
                "vulnerability in `torch.load`.",
                "Use a newer torch (`./launch update` in a project), or a model with safetensors files.",
                standalone="Use a newer torch, or a model with safetensors files.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "checkpoint-other-model",
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict",
        (
            r"Error\(s\) in loading state_dict for",
            r"(?:Missing|Unexpected) key(?:\(s\))? (?:in state_dict|\"[\w.]+\" in state_dict)",
            r"size mismatch for [\w.]+: copying a param",
            r"doesn't match the size of parameter group",
            r"loaded state dict (?:has a different number|contains a parameter)",
        ),
        (
            Cause(
                "checkpoint-other-model",
                "The checkpoint belongs to another model or configuration than the one that it is loaded into.",
                "Build the model with the checkpoint's settings (layers, classes, vocabulary). To train it for other "
                "classes, leave the last layer out: `ignore_mismatched_sizes=True` in transformers, or delete its keys "
                "and use `strict=False`.",
                tell="the text lists sizes that differ, or only some of the keys",
            ),
            Cause(
                "checkpoint-other-release",
                "The package that defines the model names its parameters and buffers differently than the release "
                "with which the checkpoint was saved.",
                "Install the release that the project names, such as `pip install 'transformers==4.30.2'` for "
                "`position_ids`. If only buffers such as position_ids or inv_freq differ, "
                "`load_state_dict(..., strict=False)` is enough.",
                tell="the keys belong to a layer of transformers, timm, or another package",
                given=text_has(r"position_ids|inv_freq|\bin_proj|relative_position_index|parametrizations"),
            ),
            Cause(
                "checkpoint-prefix",
                "The keys have a prefix of DDP (`module.`) or torch.compile (`_orig_mod.`), because the wrapped "
                "model was saved.",
                "Remove the prefix from the keys when loading, and save `model.module.state_dict()` or "
                "`model._orig_mod.state_dict()`.",
                tell="all keys that the text lists begin with that prefix",
                given=text_must_have(r"\bmodule\.|_orig_mod"),
            ),
            Cause(
                "optimizer-other-parameters",
                "The optimizer's state was saved with other parameters, for example with other frozen layers.",
                "Freeze the same layers and create the parameter groups in the same order as at saving, or start "
                "with a new optimizer.",
                tell="the text has `parameter group`",
                given=text_must_have(r"parameter group|loaded state dict"),
            ),
        ),
        program=True,
        more=VERIFY,
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
                "dataset-not-mounted",
                "The data folder is empty or missing here: it is not mounted into the container.",
                "Run `ls` on it in the container; in a project, mount it in devcontainer.json, and set `DATA_DIR` if "
                "the program reads it.",
                tell="the folder has files on the host and none in the container",
                given=CONTAINER,
            ),
            Cause(
                "dataset-layout",
                "The folder has another layout than the program expects, such as one folder for each class, or other "
                "file extensions.",
                "Compare it with the layout in the program's documentation; check the path and the pattern.",
                tell="`ls` shows files, but in other folders or with other extensions",
            ),
        ),
        more=MOUNTS,
        program=True,
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
                "path-is-folder",
                "{0} is a folder, and the program expects a file.",
                "Pass the path of the file inside of it.",
                tell="`ls` shows files in it",
            ),
            Cause(
                "mount-left-folder",
                "{0} is an empty folder that Docker created, because the file to be mounted did not exist.",
                "On the host, remove it with `sudo rmdir`, create the file, and recreate the container.",
                tell="`ls -la` shows an empty folder that belongs to root",
            ),
        ),
        more=MOUNTS,
        level=GENERAL,
        program=True,
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
                "path-wrong",
                "{0} does not exist: the path is wrong, or is relative to another folder than the one where the "
                "program starts.",
                "Run `pwd` and `ls` where the program runs, and correct the path.",
                tell="`ls` does not find it on the host either",
            ),
            Cause(
                "file-not-made-yet",
                "The file is made or downloaded by an earlier step of the program, which did not run or failed.",
                "Run the steps for data and weights in the program's README first, and read their output for errors.",
                tell="the program's README names the file, or a script that writes it",
            ),
            Cause(
                "path-not-mounted",
                "{0} is on the host, and the container sees only the project and mounted folders.",
                "Add a mount for it in devcontainer.json (`-v` for `docker run`), and use its path in the container.",
                tell="`ls` finds it on the host and not in the container",
                given=CONTAINER & text_has(r"['\"]/(?:home|mnt|data|media|datasets?|Users)/"),
            ),
        ),
        more=MOUNTS,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "denied",
        "Failed to write log (Permission denied)",
        (
            r"^(?!.*(?:daemon|docker|public.?key)).*(?:Permission denied|\bEACCES\b)",
            r"^(?!.*(?:daemon|docker|public.?key)).*PermissionError: \[Errno 13\]",
        ),
        (
            OTHER_OWNER,
            Cause(
                "file-not-executable",
                "The file is a program or script that may not be executed.",
                "Run `chmod +x FILE`, or start it with its interpreter: `bash FILE`, `python FILE`.",
                tell="`ls -l FILE` shows no `x`, or `findmnt -T FILE` shows noexec",
                given=text_must_have(r"^(?:/bin/)?(?:ba|z|da)?sh: [^\n]*Permission denied|exec(?:ve|utable)?\b"),
            ),
            SELINUX_REFUSES,
        ),
        more=MOUNTS,
        level=GENERAL,
        program=True,
    ),
)
