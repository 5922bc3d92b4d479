"""HTTP with connections that are kept: a resolution asks a few servers several hundred times."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import queue
import socket
import ssl
import threading
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CONNECTIONS = 8  # at once
REDIRECTS = 5
LARGEST = 32 << 20  # bytes of one answer
Exchanged = tuple[http.client.HTTPResponse, bytes]


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Answers of servers, through HTTPS_PROXY and HTTP_PROXY unless NO_PROXY names the server.

    `seconds`: for one answer, from the request to its last byte. `bytes`: received in all bodies.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.bytes = 0
        self.proxies = urllib.request.getproxies()
        self.idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = defaultdict(list)
        self.places = threading.Semaphore(CONNECTIONS)
        self.lock = threading.Lock()

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        """Made at the first request by HTTPS: it takes 50 ms."""
        return ssl.create_default_context()

    def close(self) -> None:
        for connections in self.idle.values():
            for connection in connections:
                connection.close()

    def ask(self, method: str, url: str, headers: dict[str, str]) -> Response:
        """An answer of any status, after redirections; only the server that is asked first gets Authorization.

        Raises:
            TimeoutError: it is not complete in time, even if its bytes keep coming.
            OSError, http.client.HTTPException, ValueError: there is none.
        """
        for _ in range(REDIRECTS):
            answer = self._one(method, url, headers)
            place = answer.headers.get("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not place:
                return answer
            following = urllib.parse.urljoin(url, place)
            if urllib.parse.urlsplit(following).netloc != urllib.parse.urlsplit(url).netloc:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            url = following
        raise OSError("too many redirections")

    def _one(self, method: str, url: str, headers: dict[str, str]) -> Response:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OSError(f"{url} is not an address on the web")
        proxy = None if urllib.request.proxy_bypass(parts.hostname) else self.proxies.get(parts.scheme)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        if proxy and parts.scheme == "http":
            target = urllib.parse.urlunsplit(parts._replace(fragment=""))
            headers = {**headers, **_authorization(proxy)}
        key = (parts.scheme, parts.netloc)
        with self.places:
            with self.lock:
                connection = self.idle[key].pop() if self.idle[key] else None
            connection = connection or self._connection(parts, proxy)
            try:
                answer, body = self._in_time(lambda: self._exchange(connection, method, target, headers))
            except BaseException:
                connection.close()
                raise
            with self.lock:
                self.bytes += len(body)
                if headers.get("Connection") == "close":
                    connection.close()
                elif not answer.will_close:
                    self.idle[key].append(connection)
        return Response(answer.status, answer.headers, body)

    def _in_time(self, exchange: Callable[[], Exchanged]) -> Exchanged:
        """Its result. A socket's own limit is for each address of a name, and for each part of an answer."""
        done: queue.SimpleQueue[Exchanged | BaseException] = queue.SimpleQueue()

        def put() -> None:
            try:
                done.put(exchange())
            except BaseException as error:  # raised where it is waited for
                done.put(error)

        threading.Thread(target=put, daemon=True).start()
        try:
            found = done.get(timeout=self.seconds)
        except queue.Empty:
            found = socket.timeout()
        if isinstance(found, socket.timeout):  # TimeoutError itself from Python 3.10 on
            raise TimeoutError("no complete answer in time") from None
        if isinstance(found, BaseException):
            raise found
        return found

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: dict[str, str]
    ) -> Exchanged:
        connection.request(method, target, headers=headers)
        body = b""
        with connection.getresponse() as answer:  # it keeps the socket open, also after the connection is closed
            while part := answer.read1(1 << 16):
                body += part
                if len(body) > LARGEST:
                    raise OSError(f"the answer is larger than {LARGEST >> 20} MiB")
            answer.read()  # ends the answer for the connection, or raises where the server has closed it too early
        return answer, body

    def _connection(self, parts: urllib.parse.SplitResult, proxy: str | None) -> http.client.HTTPConnection:
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port
        if proxy:
            through = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            if secure:
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    through.hostname or "", through.port or 80, timeout=self.seconds, context=self.context
                )
                connection.set_tunnel(host, port or 443, _authorization(proxy))
                return connection
            return http.client.HTTPConnection(through.hostname or "", through.port or 80, timeout=self.seconds)
        if secure:
            return http.client.HTTPSConnection(host, port, timeout=self.seconds, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=self.seconds)


def _authorization(proxy: str) -> dict[str, str]:
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if parts.username:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}
