"""The template in git: its address, its releases, and the commits behind them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from gpukit.host.git import attempt, git, refusal
from gpukit.project import versions
from gpukit.project.messages import RefusalError
from gpukit.wheel.vendor import git_address


def release_key(tag: str) -> tuple | None:
    """What a final release is sorted by, as Copier sorts tags; None for others, which are only taken if `--to` names
    them.
    """
    match = versions.VERSION.fullmatch(tag.partition("+")[0])
    if not match or match["stage"] or match["dev"]:
        return None
    return int(match["epoch"] or 0), versions.key(tag.rpartition("!")[2])


class Template:
    """The template's repository: a folder of this machine, or a clone in `folder`."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.url = git_address(address)
        self.redirected: dict[str, str] = {}
        path = Path(self.url).expanduser()
        if path.is_dir():
            found = attempt(path, "rev-parse", "--absolute-git-dir")
            if found.code:
                raise RefusalError(
                    f"The template {address} is not a git repository: it has no releases.", id="template-gone"
                )
            self.repository = Path(found.out.strip())
            return
        if ":" not in self.url and not path.exists():
            raise RefusalError(
                f"The template {address} does not exist here: write its new address as _src_path in "
                ".copier-answers.yml, and commit that.",
                id="template-gone",
            )
        self.repository = folder / "template.git"
        note = f"Fetching the template from {address} ..."
        done = attempt(
            folder, "clone", "-q", "--bare", "--", str(self.url), str(self.repository), note=note, **no_questions()
        )
        if done.code:
            raise refusal(done, f"The template {address} cannot be fetched")
        # Copier clones the template up to three times. It gets this clone: one answer to ssh's question, one commit.
        given = os.environ.get("GIT_CONFIG_COUNT", "")
        number = int(given) if given.isdigit() else 0
        self.redirected = {
            "GIT_CONFIG_COUNT": str(number + 1),
            f"GIT_CONFIG_KEY_{number}": f"url.{self.repository.with_suffix('')}.insteadOf",
            f"GIT_CONFIG_VALUE_{number}": re.sub(r"\.git$", "", self.url),
            "COPIER_CACHE_DIR": str(folder / "cache"),
        }

    def commit(self, reference: str) -> str:
        """The commit of a tag, branch, commit, or description such as 1.0-3-gabc; empty if there is none."""
        # In a clone, HEAD is the commit that Copier takes, and refs/remotes/origin/HEAD an older one of its origin.
        for name in (
            f"refs/tags/{reference}",
            f"refs/heads/{reference}",
            reference,
            f"refs/remotes/origin/{reference}",
        ):
            found = attempt(self.repository, "rev-parse", "--verify", "-q", "--end-of-options", name + "^{commit}")
            if not found.code:
                return found.out.strip()
        return ""

    def describe(self, commit: str) -> str:
        """The name that Copier stores for a commit."""
        return git(self.repository, "describe", "--tags", "--always", commit).strip()

    def newest(self) -> str:
        """The commit of the newest final release; without releases, of the default branch."""
        tags = [tag for tag in git(self.repository, "tag", "--list").split("\n") if release_key(tag)]
        if tags:
            return self.commit(max(tags, key=lambda tag: release_key(tag) or ()))
        found = self.commit("HEAD")
        if not found:
            raise RefusalError(f"The template {self.address} has no commits.", id="template-gone")
        return found

    def includes(self, commit: str, other: str) -> bool:
        """Whether `other` is part of the history of `commit`."""
        return attempt(self.repository, "merge-base", "--is-ancestor", other, commit).code == 0

    def changelog(self, old: str, new: str) -> str:
        """What CHANGELOG.md has added between two commits; without one, the subjects of the commits."""
        before = attempt(self.repository, "show", f"{old}:CHANGELOG.md").out
        after = attempt(self.repository, "show", f"{new}:CHANGELOG.md").out
        sections = re.split(r"^(?=## )", after, flags=re.MULTILINE)[1:]
        added = "".join(section for section in sections if section.strip() not in before).strip()
        if added:
            return added
        return git(self.repository, "log", "--no-merges", "--format=- %s", "-30", f"{old}..{new}").strip()


def no_questions() -> dict[str, str]:
    """Without a terminal, git must fail instead of asking for a password."""
    return {} if sys.stdin.isatty() else {"GIT_TERMINAL_PROMPT": "0"}
