"""`gpukit update --pull-request`: the update as a commit on a branch, and one pull request for it.

The files of the checkout are not touched. A pull request that is open is updated, never opened twice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from gpukit.host.git import attempt, environment, git, refusal, run
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say
from gpukit.update import trial
from gpukit.update.trial import Look

WORKFLOWS = ".github/workflows"
TESTS = ["./launch", "--native", "--cpu", "run", "--", "pytest"]
TRAILER = "Gpukit-Update"  # in the commit: what marks it as ours
MARK = "<!-- gpukit-update {} -->"  # in the pull request: the template's commit
# The account behind the token of GitHub Actions; https://github.com/actions/checkout#push-a-commit-using-the-built-in-token
# (2026-11-23)
BOT = {"NAME": "github-actions[bot]", "EMAIL": "41898282+github-actions[bot]@users.noreply.github.com"}
IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in BOT.items()}
LONGEST = 60_000  # GitHub takes 65,536 characters


class Branch:
    """A branch of ours on the project's remote, and its pull requests."""

    def __init__(self, project: Path, copy: Path, name: str, end: str, mark: str) -> None:
        """`name`, `end`: of the branch, around the one to merge into. `mark`: in the text of a pull request for this.
        `copy`: the repository that has the commit to push.
        """
        self.project = project
        self.copy = copy
        self.mark = mark
        self.base = attempt(project, "symbolic-ref", "--short", "-q", "HEAD").out.strip()
        if not self.base:
            raise RefusalError("A pull request needs a branch to merge into: check one out first.", id="no-branch")
        self.remote = attempt(project, "config", f"branch.{self.base}.remote").out.strip() or "origin"
        self.name = f"{name}/{self.base}{end}"
        self.known = requests(project, self.base, self.name)
        self.opened = next((each for each in self.known if each["state"] == "OPEN"), None)
        self.address = push_address(project, self.remote)
        self.tip = ""  # its commit on the remote, and that commit as git stores it
        self.previous = ""

    def left(self) -> str:
        """Why it is left as it is; empty if it is ours to push to."""
        if not self.opened and any(each["state"] == "CLOSED" and self.mark in each["body"] for each in self.known):
            return "The pull request for this was closed without merging it, so it is not opened again."
        self.tip = remote_tip(self.project, self.remote, self.name)
        self.previous = fetched(self.copy, self.address, self.name) if self.tip else ""
        merged = not self.opened and any(each["state"] == "MERGED" for each in self.known)
        if self.tip and not merged and f"\n{TRAILER}: " not in self.previous:
            where = self.opened["url"] if self.opened else f"Branch {self.name}"
            return f"{where} has commits that were added by hand, so it is left as it is: merge or close it first."
        return ""

    def push(self, tree: str, message: str) -> None:
        """Commit the tree on top of the project's commit, and push that."""
        head = git(self.project, "rev-parse", "HEAD").strip()
        if f"tree {tree}\nparent {head}\n" in self.previous:
            return
        commit = git(self.copy, "commit-tree", tree, "-p", head, "-m", message, **IDENTITY).strip()
        lease = f"--force-with-lease=refs/heads/{self.name}:{self.tip}"  # without a tip: if there is none
        place = f"{commit}:refs/heads/{self.name}"
        done = attempt(self.copy, *credentials(), "push", "-q", lease, self.address, place)
        if done.code:
            raise refusal(done, f"The branch {self.name} cannot be pushed")
        self.tip = commit

    def send(self, folder: Path, title: str, body: str) -> None:
        """Open its pull request, or update it."""
        file = folder / "body.md"
        file.write_text(f"{body}\n\n{self.mark}\n", encoding="utf-8")
        if self.opened:
            # `gh pr edit` needs more permissions than the token of GitHub Actions has.
            address = f"repos/{{owner}}/{{repo}}/pulls/{self.opened['number']}"
            fields = ["-f", f"title={title}", "-F", f"body=@{file}"]
            gh(self.project, "api", "--method", "PATCH", address, *fields, "--silent")
            say(f"Updated {self.opened['url']}")
        else:
            arguments = ["--base", self.base, "--head", self.name, "--title", title, "--body-file", str(file)]
            say(f"Opened {gh(self.project, 'pr', 'create', *arguments).strip()}")


def propose(project: Path, look: Look, notice: str = "") -> int:
    """Push the update, and open or update its pull request. Returns 1 if a person has to act on it.

    `notice`: a sentence on the end of support of what the project has afterwards.
    """
    prefix = git(project, "rev-parse", "--show-prefix").strip("\n").strip("/")
    end = f"-{prefix.replace('/', '-')}" if prefix else ""
    branch = Branch(project, look.copy, "gpukit-update", end, MARK.format(look.commit))
    if left := branch.left():
        say(left)
        return 0
    omitted = ""
    if not prefix:  # the workflows of a folder of a repository are not GitHub's
        omitted = omit_workflows(look.copy)
        look.conflicts = [entry for entry in look.conflicts if not entry.partition("\t")[2].startswith(WORKFLOWS)]
    tree = project_tree(project, look.copy, prefix)
    tests = run_tests(look)
    branch.push(tree, f"Update from the template to {look.name}\n\n{TRAILER}: {look.commit}\n")
    problem = "conflicts" if look.conflicts else "" if look.valid and tests != "failed" else "checks fail"
    title = f"Update the GPU stack to {look.name}" + (f" ({problem})" if problem else "")
    branch.send(look.copy.parent, title, text(look, omitted, tests, [notice, moved(branch.opened, look)]))
    say(f"{branch.name} is at {branch.tip[:12]}.")
    return int(bool(problem))


def gh(project: Path, *arguments: str) -> str:
    done = run(["gh", *arguments], project, "Waiting for GitHub ...")
    if done.code is None:
        raise RefusalError(
            "`--pull-request` needs GitHub's program gh: https://cli.github.com. `./launch update` does not.",
            id="gh-missing",
        )
    if done.code:
        raise refusal(done, f"`gh {arguments[0]} {arguments[1]}` failed")
    return done.out


def requests(project: Path, base: str, branch: str) -> list[dict[str, Any]]:
    """The pull requests from the branch, newest first; not from branches of that name in forks."""
    fields = "number,url,state,body,isCrossRepository"
    listed = gh(
        project, "pr", "list", "--head", branch, "--base", base, "--state", "all", "--limit", "50", "--json", fields
    )
    return [each for each in json.loads(listed) if not each["isCrossRepository"]]


def remote_tip(project: Path, remote: str, branch: str) -> str:
    done = attempt(project, *credentials(), "ls-remote", remote, f"refs/heads/{branch}")
    if done.code:
        raise refusal(done, f"The remote {remote} does not respond")
    return done.out.split("\t")[0].strip()


def push_address(project: Path, remote: str) -> str:
    """The remote's address, for the copy. Nothing is written to the project's own repository."""
    address = git(project, "remote", "get-url", "--push", remote).strip("\n")
    root = git(project, "rev-parse", "--show-toplevel").strip("\n")
    return address if ":" in address else str(Path(root, address).resolve())


def fetched(copy: Path, address: str, branch: str) -> str:
    """The last commit of the branch, as git stores it; a person who resolved conflicts has added one of theirs."""
    git(copy, *credentials(), "fetch", "-q", "--depth=1", "--no-tags", address, f"refs/heads/{branch}")
    return git(copy, "cat-file", "commit", "FETCH_HEAD")


def credentials() -> list[str]:
    """The checkout stores no token: git asks gh, which has it in its environment."""
    if not any(os.environ.get(name) for name in trial.SECRETS):
        return []
    return ["-c", "credential.helper=", "-c", "credential.helper=!gh auth git-credential"]


def omit_workflows(copy: Path) -> str:
    """Take back changes to workflows, which the token of GitHub Actions may not push; returns them as a patch."""
    git(copy, "add", "-A", "--", *[WORKFLOWS] * (copy / WORKFLOWS).exists())
    patch = git(copy, "diff", "--cached", "HEAD", "--", WORKFLOWS)
    if patch:
        git(copy, "rm", "-rfq", "--ignore-unmatch", "--", WORKFLOWS)
        if attempt(copy, "cat-file", "-e", f"HEAD:{WORKFLOWS}").code == 0:
            git(copy, "checkout", "-q", "HEAD", "--", WORKFLOWS)
    return patch


def project_tree(project: Path, copy: Path, prefix: str) -> str:
    """The tree of the updated project, for a commit in its repository."""
    git(copy, "add", "-A")
    if (copy / "vendor").is_dir() and not is_adopted(copy):  # even if ignored
        git(copy, "add", "-A", "-f", "--", "vendor")
    tree = git(copy, "write-tree").strip()
    if not prefix:
        return tree
    variables = {"GIT_INDEX_FILE": str(copy.parent / "index")}
    git(copy, "read-tree", git(project, "rev-parse", "HEAD").strip(), **variables)
    git(copy, "rm", "-r", "-q", "--cached", "--ignore-unmatch", "--", prefix, **variables)
    git(copy, "read-tree", f"--prefix={prefix}/", tree, **variables)
    return git(copy, "write-tree", **variables).strip()


def run_tests(look: Look) -> str:
    """Run the project's tests on the updated files, without a GPU: "passed", "failed", or why not."""
    if look.conflicts:
        return "not run, because of the conflicts"
    if is_adopted(look.copy):
        return "not run: the repository's own CI runs them"
    if not (look.copy / "tests").is_dir():
        return "there are none"
    say(f"Running the tests: {' '.join(TESTS)}")
    variables = {name: value for name, value in environment().items() if name not in ("GPUKIT_PROJECT", "GPUS")}
    code = subprocess.run(TESTS, cwd=look.copy, env=trial.without_secrets(variables), check=False).returncode
    return "failed" if code else "passed"


def moved(opened: dict[str, Any] | None, look: Look) -> str:
    """A sentence if the open pull request is for the same release at another commit."""
    if not opened or f"`{look.name}`" not in opened["body"]:
        return ""
    before = re.search(MARK.format("([0-9a-f]{40,64})"), opened["body"])
    if not before or before[1] == look.commit:
        return ""
    return (
        f"**The template's tag {look.name} has moved** since this pull request was opened: it was commit {before[1]}."
    )


def text(look: Look, omitted: str, tests: str, warnings: list[str]) -> str:
    """The pull request's text."""
    conflicts = sorted({entry.partition("\t")[2] for entry in look.conflicts})
    parts = [f"```text\n{look.summary.text('request')}\n```", *filter(None, warnings)]
    if conflicts:
        listed = "\n".join(f"- [ ] `{name}`" for name in conflicts)
        parts.append(
            "## Conflicts\n\nThese files contain both versions, between `<<<<<<< before updating` (yours) and "
            f"`>>>>>>> after updating` (the template's). Resolve them on this branch before you merge.\n\n{listed}"
        )
    validate = "not run, because of the conflicts" if conflicts else "passed" if look.valid else "failed"
    parts.append(f"## Checks\n\n- validate: {validate}\n- `{' '.join(TESTS)}`: {tests}")
    if omitted:
        listed = ", ".join(f"`{name}`" for name in re.findall(r"^diff --git a/(\S+) ", omitted, re.MULTILINE))
        parts.append(
            f"## Not included\n\n{listed}: the token of GitHub Actions may not change workflows. Apply the "
            "patch on this branch with `git apply`, or run `./launch update` on your machine instead of merging this: "
            f"it includes them.\n\n<details><summary>Patch</summary>\n\n{fenced(omitted, 'diff')}\n\n</details>"
        )
    template = look.template
    parts.append(
        f"## Template\n\n`{look.old_name}` -> `{look.name}` of {template.address}, from commit `{look.old}` to commit "
        f"`{look.commit}`.\n\n<details><summary>Changes in the template</summary>\n\n"
        f"{template.changelog(look.old, look.commit) or 'None are listed.'}\n\n</details>"
    )
    body = "\n\n".join(parts)
    return body if len(body) <= LONGEST else f"{body[:LONGEST]}\n\n(shortened)"


def fenced(content: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", content)), default=0))
    return f"{fence}{language}\n{content.rstrip()}\n{fence}"
