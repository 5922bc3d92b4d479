"""The page of the service in a browser without a window, against the service as real processes."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, Request, Route, expect

from gpukit.host.queue import TOKEN
from tests.jobs.test_service import Service, project

pytestmark = pytest.mark.program  # Chromium
expect.set_options(timeout=60_000)  # milliseconds
PAGE = Path(__file__).resolve().parents[2] / "gpukit/src/gpukit/jobs/page.html"
LONG = ["--data=" + "very-long-directory-name/" * 20, *(f"--option-{at}={at}" for at in range(40))]
# The lowest contrast of the texts that are visible, and which one has it.
CONTRAST = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => numbers(color).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if ((numbers(color)[3] ?? 1) === 1) return color;
    }
  };
  const found = [];
  for (const node of document.querySelectorAll('*')) {
    const text = [...node.childNodes].filter((one) => one.nodeType === 3).map((one) => one.data.trim()).join('');
    if (!(text || node.matches('input')) || !node.checkVisibility({opacityProperty: true})) continue;
    const both = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
    found.push([(both[0] + 0.05) / (both[1] + 0.05), node.outerHTML.slice(0, 80)]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.fixture(scope="module")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """It has one job, which runs until all tests have ended; others wait behind it."""
    found = Service(project(tmp_path_factory.mktemp("page")))
    found.submit("--name=first", "--lr", "1e-3")
    found.until(lambda: found.state(1) == "running")
    yield found
    found.ask("DELETE", "/jobs/1")
    found.stop()


class View:
    """One page, and what it requested."""

    def __init__(self, page: Page, service: Service) -> None:
        self.page = page
        self.service = service
        self.address = f"http://localhost:{service.port}/"
        self.requests: list[Request] = []
        self.errors: list[str] = []
        page.set_default_timeout(60_000)
        page.clock.install()
        page.on("request", lambda request: self.requests.append(request))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console", lambda message: self.errors.append(message.text) if "policy" in message.text.lower() else None
        )

    def sign_in(self) -> View:
        self.page.goto(f"{self.address}#{self.service.token}")
        expect(self.row(1)).to_be_visible()
        return self

    def row(self, number: int) -> Locator:
        return self.page.locator("#rows tr", has=self.page.get_by_role("cell", name=str(number), exact=True))

    def order(self) -> list[int]:
        return [int(text) for text in self.page.locator("#rows .id").all_inner_texts()]

    def button(self, name: str, number: int) -> Locator:
        return self.page.get_by_role("button", name=f"{name}: job {number}", exact=True)

    def polled(self, what: str = "/jobs") -> int:
        """Two seconds later, by the page's clock, which also runs by itself; the status of the response."""
        with self.page.expect_response(lambda answer: answer.url.endswith(what)) as response:
            self.page.clock.run_for(2000)
        return response.value.status

    def until_first(self, *numbers: int) -> None:
        end = time.monotonic() + 60
        while self.order()[: len(numbers)] != list(numbers):
            assert time.monotonic() < end, self.order()
            self.page.wait_for_timeout(20)

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edit what the server answers to the list of jobs."""

        def handle(route: Route) -> None:
            if route.request.method != "GET":
                return route.fallback()
            answer = route.fetch()
            found = answer.json()
            edit(found)
            return route.fulfill(response=answer, json=found)

        self.page.route("**/jobs", handle)


@pytest.fixture
def view(browser: Browser, service: Service) -> Iterator[View]:
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        found = View(context.new_page(), service)
        yield found
        found.page.unroute_all(behavior="ignoreErrors")
        assert not found.errors
        for request in found.requests:
            assert request.url.startswith(found.address) and service.token not in request.url
            assert service.token not in request.headers.get("referer", "")


def test_the_file_is_one_page_that_loads_nothing() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("\n") <= 311 and max(map(len, text.splitlines())) <= 120
    assert not re.search(r"//\w|src=|@import|url\(|innerHTML|outerHTML|insertAdjacent|document\.write|eval", text)
    assert not re.search(r"<[^>]*\s(on\w+|style)=", text)


def test_sign_in_by_the_address(view: View) -> None:
    view.sign_in()
    assert view.page.url == view.address and view.page.evaluate("document.cookie") == ""
    assert {request.url for request in view.requests} == {view.address, f"{view.address}login", f"{view.address}jobs"}
    login = next(request for request in view.requests if request.url.endswith("login"))
    assert login.method == "POST" and login.post_data_json == {"token": view.service.token}
    view.page.reload()  # now by the cookie
    expect(view.row(1)).to_be_visible()
    assert [view.polled(), view.polled()] == [304, 304]  # nothing has changed
    expect(view.row(1)).to_be_visible()
    expect(view.page.locator("#connection")).to_be_empty()


def test_sign_in_by_the_field(view: View) -> None:
    page = view.page
    page.goto(view.address)
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    expect(page.locator("#rows")).to_be_hidden()
    field.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("token")
    assert field.input_value() == ""
    page.clock.run_for(10_000)
    assert sum(request.url.endswith("/jobs") for request in view.requests) == 1  # it does not poll
    field.fill((view.service.root / TOKEN).read_text())
    page.keyboard.press("Enter")
    expect(view.row(1)).to_be_visible()
    assert page.url == view.address and field.input_value() == ""
    page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_focused()
    expect(view.row(1)).to_have_count(0)
    page.goto(f"{view.address}#wrong")  # an address that is opened where the page is open already
    expect(page.get_by_role("alert").first).to_contain_text("token")
    assert page.url == view.address


def test_progress_is_live(view: View) -> None:
    folder = view.service.root / "outputs/first"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"settings": {"max_steps": 1000, "batch_size": 8}}), encoding="utf-8")

    def log(step: int, loss: float) -> None:
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "loss": loss, "samples_per_second": 8.0}) + "\n")

    log(250, 0.5)
    view.change(
        lambda found: found["gpus"].append(
            {"index": 0, "name": "Card", "utilization": 0.93, "memory_used": 6 << 30, "memory_total": 24 << 30}
        )
    )
    row = view.sign_in().row(1)
    expect(row.get_by_role("progressbar")).to_have_js_property("value", 0.25)
    expect(row).to_contain_text("25% · step 250 of 1,000")
    expect(row.locator(".eta")).to_have_text(re.compile(r"12 min"))
    expect(row.locator(".loss")).to_have_text("0.5")
    expect(row.locator(".speed")).to_have_text("8")
    expect(view.page.locator("#gpus")).to_have_text("GPU 0 · 93% · 6.0 of 24.0 GiB · Card")
    same = row.element_handle()
    button = view.button("Log", 1)
    button.focus()
    log(500, 0.25)
    view.polled()
    expect(row.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(row.locator(".loss")).to_have_text("0.25")
    assert same.evaluate("(row) => row.isConnected")
    expect(button).to_be_focused()


def test_submit_cancel_retry_and_run_next(view: View) -> None:
    page = view.sign_in().page
    service = view.service
    answers = [False, True]
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if answers.pop(0) else dialog.dismiss()

    page.on("dialog", answer)
    page.get_by_role("button", name="Submit").first.click()
    form = page.get_by_role("dialog")
    expect(form.get_by_label("Module")).to_have_value("small.train")  # as in the last job
    arguments = form.get_by_label("Arguments")
    submit = form.get_by_role("button", name="Submit")
    for text in (
        "--lr 1e-3",
        r"""a 'b  c'"d e"'' \"f $HOME `g` *; "h\"\\\$" | i""",
        "--x=\\\n1 \\\n --y",
        "''",
        ' "a\\b" ',
    ):
        arguments.fill(text)
        expected = ["python", "-m", "small.train", *shlex.split(text.replace("\\\n", "").replace("\\\\\\$", "\\\\$"))]
        assert json.loads(page.locator("#preview").inner_text()) == expected
    arguments.fill("--name 'not closed")
    submit.click()
    assert not any(request.method == "POST" and request.url.endswith("/jobs") for request in view.requests)
    arguments.fill("--note '; touch x' $HOME")
    form.get_by_label("Module").fill("os")
    submit.click()
    expect(form.get_by_role("alert")).to_contain_text("python -m small.")
    form.get_by_label("Module").fill("small.train")
    form.get_by_label("Priority").fill("3")
    form.get_by_label("Max hours").fill("1.5")
    submit.click()
    expect(form).to_be_hidden()
    expect(page.locator("#news")).to_contain_text("is in the queue")
    number = int(re.findall(r"\d+", page.locator("#news").inner_text())[0])
    expect(view.row(number)).to_contain_text("priority 3 · at most 1.5 h")
    job = service.ask("GET", f"/jobs/{number}")[2]
    assert job["command"][-3:] == ["--note", "; touch x", "$HOME"] and (job["gpus"], job["after"]) == (1, None)
    other = service.submit(priority=3)
    view.polled()
    view.until_first(1, number, other)
    view.button("Run next", other).click()
    view.until_first(1, other, number)
    view.button("Cancel", number).click()
    assert service.state(number) == "queued"
    view.button("Cancel", number).click()
    expect(view.row(number)).to_contain_text("canceled")
    assert [f"Cancel job {number}?" in text and "touch x" in text for text in asked] == [True, True]
    expect(view.button("Cancel", number)).to_be_hidden()
    view.button("Retry", number).click()
    expect(page.locator("#news")).to_contain_text(f"retries job {number}")
    expect(view.row(other + 1)).to_contain_text("touch x")
    for one in (other, other + 1):
        service.ask("DELETE", f"/jobs/{one}")


def test_a_log_is_text(view: View) -> None:
    page = view.sign_in().page
    view.button("Log", 1).click()
    log = page.get_by_role("region")
    expect(log).to_contain_text("started <script>alert(1)</script>")
    assert log.evaluate("(log) => log.children.length") == 0
    lines = "".join(f"<img src=x onerror=alert({at})>\n" for at in range(300))
    page.route(
        "**/log",
        lambda route: route.fulfill(body=f"{lines}\x1b[31mred \u202e 10%\r 20%\r\nend", content_type="text/plain"),
    )
    view.polled()
    expect(log).to_contain_text("end")
    text = log.evaluate("(log) => log.textContent")
    assert text == f"{lines} 20%\nend" and log.evaluate("(log) => log.children.length") == 0
    assert log.evaluate("(log) => log.scrollTop + log.clientHeight >= log.scrollHeight - 1")  # it follows the end
    page.route("**/log", lambda route: route.fulfill(body="\x1b]0;title\x07\u202e\x00", content_type="text/plain"))
    log.evaluate("(log) => { log.scrollTop = 0; }")
    view.polled("/log")
    page.wait_for_timeout(50)
    assert log.evaluate("(log) => log.textContent") == text  # the reader has scrolled up
    log.evaluate("(log) => { log.scrollTop = log.scrollHeight; }")
    view.polled()
    expect(log).to_have_text("\\u{1b}]0;title\\u{7}\\u{202e}\\u{0}")
    page.keyboard.press("Escape")
    expect(log).to_be_hidden()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("region")).to_contain_text(re.compile(r"ID +STATE.*\n1 +running"))
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_hundreds_of_jobs(view: View) -> None:
    """Rows stay where they are, with the focus and the scroll position, while they are updated."""
    counter = [0]

    def many(found: dict[str, Any]) -> None:
        counter[0] += 1
        job = next(one for one in found["jobs"] if one["id"] == 1)
        more = [
            {**job, "id": at, "state": "finished", "ended": at, "note": f"update {counter[0]}"}
            for at in range(1001, 1301)
        ]
        found["jobs"] = [job, *more]

    view.change(many)
    page = view.sign_in().page
    assert view.order() == [1, *range(1300, 1000, -1)]
    page.evaluate(
        "() => { changes = 0; new MutationObserver((all) => { changes += all.filter((one) =>"
        " one.target.id === 'rows').length; }).observe(document.querySelector('#rows'), {childList: true}); }"
    )
    view.button("Retry", 1100).focus()
    before = page.evaluate("scrollY")
    note = view.row(1100).locator(".facts")
    update = note.inner_text()
    view.polled()
    expect(note).not_to_have_text(update)
    assert before > 1000 and page.evaluate("scrollY") == before and page.evaluate("changes") == 0
    expect(view.button("Retry", 1100)).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_colors(view: View, scheme: str) -> None:
    page = view.page
    service = view.service
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(view.address)
    expect(page.get_by_label("Token")).to_be_visible()

    def check() -> None:
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, text

    check()
    long = service.submit(*LONG)

    def every_state(found: dict[str, Any]) -> None:
        job = next(one for one in found["jobs"] if one["id"] == long)
        states = ("held", "waiting", "finished", "failed", "canceled", "out of time")
        found["jobs"] += [
            {**job, "id": 5000 + at, "state": one, "note": "a note", "ended": 1.0} for at, one in enumerate(states)
        ]
        found["processing"] = False

    view.change(every_state)
    view.sign_in()
    expect(view.row(5005)).to_be_visible()
    expect(page.locator("#connection")).to_contain_text("Nothing is processing")
    check()
    dark = sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")))) < 3 * 64
    assert dark == (scheme == "dark")
    assert view.row(long).bounding_box()["height"] < 200  # a long command is cut here, and whole in the dialog
    view.button("Log", long).click()
    expect(page.locator("#details")).to_contain_text("--option-39=39")
    check()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Submit").first.click()
    page.get_by_label("Arguments").fill(" ".join(LONG))
    check()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Escape")
    assert page.evaluate(CONTRAST)[0] >= 4.5 and page.evaluate("document.documentElement.scrollWidth") <= 1280
    service.ask("DELETE", f"/jobs/{long}")


def test_by_keyboard(view: View) -> None:
    page = view.sign_in().page

    def focused() -> str:
        return page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent.trim()")

    def tab(*names: str) -> None:
        for name in names:
            page.keyboard.press("Tab")
            assert focused() == name
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    tab("Submit", "Compare", "Sign out", "Cancel: job 1", "Log: job 1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert focused() == "Log: job 1"
    for _ in range(4):
        page.keyboard.press("Shift+Tab")
    assert focused() == "Submit"
    page.keyboard.press("Enter")
    expect(page.get_by_label("Module")).to_be_focused()
    before = len(view.order())
    page.keyboard.press("Tab")
    page.keyboard.type("--by keyboard")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#rows tr")).to_have_count(before + 1)
    assert focused() == "Submit"
    number = max(view.order())
    page.on("dialog", lambda dialog: dialog.accept())
    view.button("Cancel", number).focus()
    page.keyboard.press("Enter")
    expect(view.row(number)).to_contain_text("canceled")
    expect(view.button("Log", number)).to_be_focused()  # the button that had the focus is gone


def test_server_down_and_hidden_page(view: View) -> None:
    page = view.sign_in().page
    state = page.locator("#connection")
    assert state.get_attribute("role") == "status"
    page.context.set_offline(True)
    page.clock.run_for(2000)
    expect(state).to_contain_text("cannot be reached")
    expect(view.row(1)).to_be_visible()
    page.context.set_offline(False)
    view.polled()
    expect(state).to_be_empty()
    page.route("**/jobs", lambda route: route.fulfill(status=503, json={"error": "The disk is full."}))
    view.polled()
    expect(state).to_contain_text("The disk is full.")
    page.unroute("**/jobs")
    view.polled()
    expect(state).to_be_empty()

    def hidden(yes: bool) -> None:
        page.evaluate(
            "(yes) => { Object.defineProperty(document, 'hidden', {value: yes, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            yes,
        )

    hidden(True)
    count = len(view.requests)
    page.clock.run_for(60_000)
    page.wait_for_timeout(50)
    assert len(view.requests) == count
    with page.expect_response("**/jobs"):
        hidden(False)
    view.polled()


def test_a_session_that_ends(view: View) -> None:
    page = view.sign_in().page
    page.get_by_role("button", name="Submit").first.click()
    page.context.clear_cookies()
    page.clock.run_for(2000)
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.locator("#rows tr")).to_have_count(0)
