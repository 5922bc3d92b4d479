"""The HTTP interface of the queue, for the service `jobs`: `python3 -m gpukit.jobs.service`, started by serve.py.

Only this module and what it imports need packages (FastAPI, uvicorn, prometheus-client); none of them imports torch.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import hashlib
import hmac
import json
import os
import pkgutil
import re
from collections.abc import AsyncIterator, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as Parameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from gpukit.host import frozen
from gpukit.host.project import secret
from gpukit.host.queue import HEALTH, TOKEN, WorkerLock, fingerprint, folder
from gpukit.jobs import ledger
from gpukit.jobs.commands import compared, named, package, plain, retried
from gpukit.jobs.contract import FIELDS
from gpukit.jobs.gpus import gpus
from gpukit.jobs.metrics import registry
from gpukit.jobs.progress import progress, run_of
from gpukit.jobs.table import FINAL, Table
from gpukit.project.location import root as find_root
from gpukit.project.messages import RefusalError

HOSTS = ("localhost", "127.0.0.1", "[::1]", "jobs")
BODY_BYTES = 64 << 10
LOG_BYTES = 20 << 20
LINE_BYTES = 8 << 10
ENDED_SHOWN = 100
OPEN = {("GET", "/"), ("GET", "/health"), ("POST", "/login"), ("DELETE", "/login")}  # without a token
NOTHING_FROM_ELSEWHERE = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
COOKIE_SECONDS = 30 * 86400
Number = Annotated[int, Parameter(ge=1, le=2**62)]


class Submission(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    command: list[str] = Field(min_length=1, max_length=1000)
    gpus: int = Field(1, ge=1, le=1000)
    priority: int = Field(0, ge=-1_000_000, le=1_000_000)
    after: int | None = Field(None, ge=1, le=2**62)
    max_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    variables: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field([], max_length=100)
    latest: bool = False


class Login(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    token: str


class Guard:
    """What every request passes before the application: Host, Origin, the token, and the size of its body."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token.encode()
        self.cookie = cookie_name(token)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return

        async def secured(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (
                    ("X-Content-Type-Options", "nosniff"),
                    ("Content-Security-Policy", NOTHING_FROM_ELSEWHERE),
                    ("Referrer-Policy", "no-referrer"),
                    ("Cache-Control", "no-store"),
                ):
                    headers.setdefault(name, value)
            await send(message)

        body = b""
        try:
            self.admit(scope, Headers(scope=scope))
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    return
                body = body + message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > BODY_BYTES:
                    raise HTTPException(413, f"A request has at most {BODY_BYTES} bytes.")
        except HTTPException as error:
            refused = JSONResponse({"error": error.detail}, error.status_code, {"Connection": "close"})
            await refused(scope, receive, secured)
            return
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return messages.pop() if messages else await receive()

        await self.app(scope, again, secured)

    def admit(self, scope: Any, headers: Headers) -> None:
        hosts = headers.getlist("host")
        origins = headers.getlist("origin")
        if len(hosts) != 1:
            raise HTTPException(400, "A request has one Host header.")
        if not re.fullmatch(rf"({'|'.join(map(re.escape, HOSTS))})(:\d+)?", hosts[0].lower(), re.ASCII):
            raise HTTPException(421, f"This service answers to {', '.join(HOSTS)}, and to no other host name.")
        page = scope["method"] == "GET" and scope["path"] == "/"
        foreign = [one for one in origins if one.lower() != f"http://{hosts[0].lower()}"]
        if foreign or (headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not page):
            raise HTTPException(403, "Requests of other pages are refused.")
        given = headers.get("authorization", "")
        bearer = given[:7].lower() == "bearer " and self.matches(given[7:])
        cookie = any(
            name.strip() == self.cookie and self.matches(value)
            for name, _, value in (one.partition("=") for one in headers.get("cookie", "").split(";"))
        )
        scope["authorized"] = bearer or cookie
        if (scope["method"], scope["path"]) not in OPEN and not scope["authorized"]:
            raise HTTPException(401, "The token is missing or wrong: `./launch up` prints it.")
        if cookie and not bearer and scope["method"] not in ("GET", "HEAD") and not origins:
            raise HTTPException(403, "A change with the page's cookie needs the Origin header.")
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > BODY_BYTES:
            raise HTTPException(413, f"A request has at most {BODY_BYTES} bytes.")

    def matches(self, given: str) -> bool:
        return hmac.compare_digest(given.strip().encode(), self.token)


def cookie_name(token: str) -> str:
    """Cookies are not separate by port: with a name of its own, each project on this machine keeps its sign-in."""
    return f"gpukit_jobs_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def refuse_other_commands(command: list[str], package: str) -> None:
    """Refuse what is not a module of the project's package."""
    rest = command[1:] if command[0] in ("python", "python3") else []
    if command[0] == "torchrun":
        rest = command[1:]
        while rest and re.fullmatch(r"--standalone|--nproc[-_]per[-_]node=(\d+|gpu|cpu|auto)", rest[0], re.ASCII):
            rest = rest[1:]
    module = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else ""
    if not package or not re.fullmatch(rf"{re.escape(package)}(\.[A-Za-z_]\w*)*", module, re.ASCII):
        raise RefusalError(
            f"Commands are `python -m {package}.MODULE ...`, or torchrun: compose.yaml shows how to allow others."
        )


def named_run(root: Path, command: list[str]) -> list[str]:
    """The command, with the name of its run.

    Raises:
        HTTPException: it is not a module of the project's package, or its run's name cannot be a folder's.
    """
    try:
        module = package(root)
        refuse_other_commands(command, module)
        found = named(command, module)
    except RefusalError as error:
        raise HTTPException(400, str(error).rstrip(".")) from None
    if any(word.partition("=")[0] == "--name" for word in command) and not run_of(found):
        raise HTTPException(400, "command: a run's name has letters, digits, dots, dashes, and underscores")
    return found


def queue_state(place: Path) -> tuple[bool, str]:
    """Whether the queue is processed, and how many jobs it has, or what is wrong."""
    try:
        with Table(place, 2) as table:
            counts = table.counts()
        if WorkerLock(place).holder() is None:
            return False, "nothing processes the queue"
    except RefusalError as error:
        return False, str(error)
    states = ("running", "queued", "waiting", "held")
    return True, ", ".join(f"{counts[state]} {state}" for state in states if state in counts) or "empty"


def refused(request: Request, error: RefusalError) -> Response:
    status = 503 if error.kind == "queue" else 404 if str(error).startswith("There is no job") else 409
    return JSONResponse({"error": str(error)}, status)


def invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    if first["loc"] == ("body",) or first["type"] == "json_invalid":
        return JSONResponse({"error": "The body must be a JSON object, with Content-Type: application/json."}, 400)
    where = ".".join(str(one) for one in first["loc"] if one not in ("body", "path", "query"))
    return JSONResponse({"error": f"{where}: {first['msg']}."}, 400)


def failed(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": f"{error.detail}."}, error.status_code, error.headers)


ERRORS: dict[Any, Any] = {RefusalError: refused, RequestValidationError: invalid, HTTPException: failed}


def application(root: Path, any_command: bool = False) -> Guard:
    place = folder(root)
    token = secret(root / TOKEN)
    app = FastAPI(title="Jobs", version=release(), docs_url=None, redoc_url=None, exception_handlers=ERRORS)
    page = (pkgutil.get_data("gpukit.jobs", "page.html") or b"").decode()
    metrics = registry(place, root)
    ended: dict[int, Any] = {}  # the progress of jobs that have ended

    def view(job: dict[str, Any]) -> dict[str, Any]:
        if job["id"] not in ended or job["state"] not in FINAL:
            found = progress(root, job) if job["starts"] and run_of(job["command"]) else None
            if job["state"] in FINAL:
                ended[job["id"]] = found
        else:
            found = ended[job["id"]]
        return {**{name: job[name] for name in (*FIELDS, "position")}, "run": run_of(job["command"]), "progress": found}

    @app.get("/", response_class=Response)
    def the_page() -> Response:
        policy = [NOTHING_FROM_ELSEWHERE, "connect-src 'self'", "img-src 'self' data:"]
        policy += [f"{kind}-src {hashes(page, kind)}" for kind in ("script", "style")]
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": "; ".join(policy)})

    @app.post("/login", status_code=204)
    def login(given: Login, response: Response) -> None:
        if not hmac.compare_digest(given.token.strip().encode(errors="replace"), token.encode()):
            raise HTTPException(401, "The token is wrong: `./launch up` prints it")
        response.set_cookie(cookie_name(token), token, COOKIE_SECONDS, httponly=True, samesite="strict")

    @app.delete("/login", status_code=204)
    def logout(response: Response) -> None:
        response.delete_cookie(cookie_name(token), httponly=True, samesite="strict")

    @app.get("/jobs")
    def jobs(request: Request) -> Response:
        with Table(place) as table:
            every = table.recent(ENDED_SHOWN)
        for number in ended.keys() - {job["id"] for job in every}:
            ended.pop(number, None)
        processing = WorkerLock(place).holder() is not None
        # without FastAPI's encoder, which takes longer than all the rest
        body = json.dumps({"jobs": [view(job) for job in every], "processing": processing, "gpus": gpus()}).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(body, media_type="application/json", headers={"ETag": tag})

    @app.get("/jobs/{number}")
    def job(number: Number) -> dict[str, Any]:
        with Table(place) as table:
            return view(table.get(number))

    @app.get("/compare")
    def compare(ids: str = "", metric: str = "", text: bool = False) -> Response:
        if not re.fullmatch(r"(\d{1,18}(,\d{1,18})*)?", ids, re.ASCII):
            raise HTTPException(400, "ids: write numbers, as in ids=1,2")
        found = compared(root, [int(number) for number in ids.split(",") if number], metric)
        return PlainTextResponse("\n".join(ledger.aligned(ledger.table(found)))) if text else JSONResponse(found)

    def add(latest: bool, jobs: list[dict[str, Any]]) -> list[Any]:
        project = fingerprint(root)
        with frozen.submitting(root):
            code = "" if latest else frozen.freeze(root)
            with Table(place) as table:
                return table.submit_all([{**job, "project": project, "code": code} for job in jobs])

    together = {latest: Together(functools.partial(add, latest)) for latest in (True, False)}

    @app.post("/jobs", status_code=201)
    async def submit(given: Submission) -> dict[str, Any]:
        facts = given.model_dump()
        latest = facts.pop("latest")
        command = facts["command"]
        try:
            "\0".join(command).encode()
        except UnicodeEncodeError:
            raise HTTPException(400, "command: it is not valid Unicode") from None
        if any("\0" in word for word in command):
            raise HTTPException(400, "command: it contains a null character")
        if not any_command:
            facts["command"] = named_run(root, command)
        return await together[latest].add(facts)

    @app.delete("/jobs/{number}")
    def cancel(number: Number) -> dict[str, Any]:
        with Table(place) as table:
            return {"state": table.cancel(number)}

    @app.post("/jobs/{number}/retry", status_code=201)
    def retry(number: Number) -> dict[str, Any]:
        with Table(place) as table:
            return {"id": retried(table, root, number)}

    @app.post("/jobs/{number}/move")
    def move(number: Number) -> dict[str, Any]:
        with Table(place) as table:
            table.move(number)
        return {}

    @app.get("/jobs/{number}/log", response_class=PlainTextResponse)
    def log(
        number: Number, tail: Annotated[int, Query(ge=0, le=LOG_BYTES)] = 64 << 10, follow: bool = False
    ) -> Response:
        with Table(place) as table:
            table.get(number)
        return StreamingResponse(log_of(place, number, tail, follow), media_type="text/plain; charset=utf-8")

    @app.get("/health")
    def health(request: Request) -> Response:
        ok, queue = queue_state(place)
        try:
            cuda = json.loads((place / HEALTH).read_text(encoding="utf-8"))["cuda"]
        except (OSError, ValueError, KeyError):
            cuda = {"ok": False, "device": "", "error": "unknown"}
        facts: dict[str, Any] = {"status": "ok" if ok and cuda["ok"] else "failing"}
        if request.scope["authorized"]:
            facts.update(queue=queue, cuda=cuda, version=release())
        return JSONResponse(facts, 200 if facts["status"] == "ok" else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics_text() -> Response:
        return Response(generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return Guard(app, token)


class Together:
    """What comes while `work` does the same for others waits for that, and is then done with all that have come.

    Eight submissions that come at once need one commit, one thread, and one write to the disk.
    """

    def __init__(self, work: Callable[[list[Any]], list[Any]]) -> None:
        """`work` is given what has come, and returns a result or a refusal for each."""
        self.work = work
        self.waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self.task: asyncio.Task[None] | None = None

    async def add(self, one: Any) -> Any:
        result = asyncio.get_running_loop().create_future()
        self.waiting.append((one, result))
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._work())
        return await result

    async def _work(self) -> None:
        while self.waiting:
            batch = self.waiting
            self.waiting = []
            try:
                done = await run_in_threadpool(self.work, [one for one, _ in batch])
            except Exception as error:  # of each of them: their requests report it
                done = [error] * len(batch)
            for (_, result), outcome in zip(batch, done):
                if not result.cancelled():
                    settle = result.set_exception if isinstance(outcome, Exception) else result.set_result
                    settle(outcome)


@functools.cache
def release() -> str:
    try:
        return version("gpukit")
    except PackageNotFoundError:  # from its source
        return "0"


def hashes(page: str, kind: str) -> str:
    """The parts of the page that a browser may run, for its Content-Security-Policy."""
    parts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)


class Log:
    """The end of a job's log, and what is added to it, across its rotation."""

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.file = None
        files = [one for one in (Path(f"{path}.1"), path) if one.exists()]
        skipped = max(0, sum(one.stat().st_size for one in files) - most)
        self.partial = bool(skipped)  # it begins in the middle of a line
        self.earlier = []
        for one in files:
            file = one.open("rb")
            skipped -= file.seek(min(skipped, one.stat().st_size))
            self.earlier.append(file)

    def read(self) -> bytes:
        """Up to 256 KiB, or nothing if nothing was added."""
        while True:
            if self.file is None:
                if not self.earlier and not self.path.exists():
                    return b""
                self.file = self.earlier.pop(0) if self.earlier else self.path.open("rb")
            rotated = bool(self.earlier) or self._replaced()
            data = self.file.read(1 << 18)
            if data or not rotated:
                return data
            self.close()

    def _replaced(self) -> bool:
        try:
            return self.path.stat().st_ino != os.fstat(self.file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self.file:
            self.file.close()
        self.file = None


async def log_of(place: Path, number: int, most: int, follow: bool) -> AsyncIterator[str]:
    """Its lines without escape codes; the last one may be incomplete."""
    log = await run_in_threadpool(Log, place / f"{number}.log", most)
    rest = b""
    partial = log.partial

    def state() -> str:
        with Table(place) as table:
            return str(table.get(number)["state"])

    try:
        while True:
            ended = not follow or await run_in_threadpool(state) in FINAL
            data = await run_in_threadpool(log.read)
            *lines, rest = re.split(rb"(?<=\n)|(?<=\r)(?=[^\n])", rest + data)
            if partial and lines:
                lines = lines[1:]
                partial = False
            if len(rest) > LINE_BYTES or (ended and not data):
                lines = [*lines, rest]
                rest = b""
            text = await run_in_threadpool(lambda lines=lines: "".join(map(plain_part, lines)))
            if text:
                yield text
            if not data:
                if ended:
                    return
                await asyncio.sleep(0.5)
    finally:
        for file in (log.file, *log.earlier):
            if file:
                file.close()


def plain_part(part: bytes) -> str:
    return plain(part) + "\n" * part.endswith(b"\r")  # a progress bar: each state gets a line of its own


class Server(uvicorn.Server):
    async def main_loop(self) -> None:
        """Once per second: uvicorn's own loop wakes up ten times as often."""
        while not self.should_exit:
            await self.on_tick(0)
            await asyncio.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpukit.jobs.service")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8750)
    parser.add_argument("--allow-any-command", action="store_true")
    options = parser.parse_args()
    config = uvicorn.Config(
        application(find_root(), options.allow_any_command),
        host=options.host,
        port=options.port,
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,  # no line for each request
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    Server(config).run()


if __name__ == "__main__":
    main()
