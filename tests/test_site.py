"""The documentation site: it builds without a warning, its navigation is complete, and its search finds error texts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gpukit.project.data import data
from tests.conftest import ROOT, cannot
from tests.ports import files_of

pytestmark = pytest.mark.network  # uv fetches the site's generator


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in ("zensical.toml", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder)
    if shutil.which("uv") is None:
        cannot("uv is not installed")
    command = ["uv", "run", "--only-group", "docs", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with files_of(site) as url:
        yield f"{url}/"


def test_every_page_is_in_the_navigation_and_on_the_first_page(site: Path) -> None:
    """A link to a page or a heading that does not exist fails the build."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    assert pages == set(re.findall(r'"([\w-]+\.md)"', navigation))
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(pages - {"index.md"})
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    assert listed.count("\n- ") == len(pages)


def test_searching_an_error_text_finds_it(address: str, browser: Browser) -> None:
    page = browser.new_page()
    page.route("https://**", lambda route: route.abort())  # the repository's stars and release
    examples = {sign["topic"]: sign["example"] for sign in data("knowledge")["signs"].values()}
    for example in [*examples.values()][:5]:
        page.goto(address)
        page.get_by_role("button", name="Search").click()
        page.keyboard.type(" ".join(example.splitlines()[0].split()[:8]))
        expect(page.locator("a[href*='/troubleshooting/?h=']").first).to_be_visible()
    page.close()
