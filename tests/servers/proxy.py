"""A proxy that misbehaves on request, to stand between a client and a real HTTP server.

It understands HTTP just well enough to fail at a chosen moment: instead of an answer, in the middle
of an upload, after the server has acted and before the client hears of it, in the middle of a
download. Requests that no fault is planned for pass unchanged, signatures included.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TypeAlias

BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """The proxy answers itself, and the server hears nothing."""

    status: int
    code: str = "InternalError"


@dataclass(frozen=True, slots=True)
class DropRequest:
    """The connection breaks when this many bytes of the body have come in."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DropAnswer:
    """The server does what it was asked; the connection breaks before its answer arrives."""


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The connection breaks when this many bytes of the answer's body have gone out."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing happens until the event is set; then all goes its way."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class Delay:
    """All goes its way, but this much later."""

    seconds: float


Fault: TypeAlias = Answer | DropRequest | DropAnswer | CutAnswer | Hold | Delay


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for; `path` holds the query too, names of headers are in lower case."""

    method: str
    path: str
    body_bytes: int
    headers: Mapping[str, str]


@dataclass
class _Plan:
    fault: Fault
    when: Callable[[Request], bool] | None  # None: always
    times: int | None  # None: for ever

    def strikes(self, request: Request) -> bool:
        """Whether this request is to meet the fault; if so, it is one less to come."""
        if self.times == 0 or not (self.when is None or self.when(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultyProxy:
    """A proxy in front of the server at `upstream`; give clients `url` instead."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream.partition("//")[2]
        self._lock = threading.Lock()
        self._plans: list[_Plan] = []
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition(self._lock)
        self._seen: list[Request] = []
        self._server: _Listener | None = None
        self._port = 0
        self.come_back()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def seen(self) -> list[Request]:
        """Every request that has come in so far."""
        with self._lock:
            return list(self._seen)

    def plan(
        self,
        fault: Fault,
        *,
        when: Callable[[Request], bool] | None = None,
        times: int | None = 1,
    ) -> None:
        """Let the next `times` requests that match meet `fault`; None for all to come."""
        with self._lock:
            self._plans.append(_Plan(fault, when, times))

    def heal(self) -> None:
        """Forget all planned faults."""
        with self._lock:
            self._plans.clear()

    def wait_for(self, when: Callable[[Request], bool], timeout_s: float = 120.0) -> bool:
        """Return once a request that matches has come in; False if none did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: any(map(when, self._seen)), timeout_s)

    def go_away(self) -> None:
        """Refuse and break all connections, as a server that is down does; idempotent."""
        with self._lock:
            server, self._server = self._server, None
            broken, self._open = self._open, set()
        if server is not None:
            server.shutdown()
            server.server_close()
        for connection in broken:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        """Listen again, at the same address."""
        proxy = self

        class Handler(_Handler):
            """Requests to this very proxy."""

            held = proxy

        self._server = _Listener(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    stop = go_away

    def connected(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def fault_for(self, request: Request) -> Fault | None:
        """Note the request, and return the fault it is to meet, if any."""
        with self._changed:
            self._seen.append(request)
            self._changed.notify_all()
            return next((plan.fault for plan in self._plans if plan.strikes(request)), None)

    def ask_upstream(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._upstream, timeout=120)


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that breaks off is what this proxy is about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    held: FaultyProxy

    def setup(self) -> None:
        super().setup()
        self.held.connected(self.connection)

    def finish(self) -> None:
        self.held.disconnected(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing: tests have their own words."""

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, size, headers)
        fault = self.held.fault_for(request)
        if isinstance(fault, Hold):
            fault.until.wait()
        if isinstance(fault, Delay):
            time.sleep(fault.seconds)
        if isinstance(fault, DropRequest):
            self._read_body(min(size, fault.after_bytes))
            self._break()
            return
        if isinstance(fault, Answer):
            self._read_body(size)
            body = f"<Error><Code>{fault.code}</Code><Message>planned</Message></Error>".encode()
            self._begin_answer(fault.status, {}, len(body))
            self.wfile.write(body if self.command != "HEAD" else b"")
            return
        with contextlib.closing(self.held.ask_upstream()) as upstream:
            self._pass_on(upstream, size)
            answer = upstream.getresponse()
            if isinstance(fault, DropAnswer):
                answer.read()
                self._break()
                return
            cut = fault.after_bytes if isinstance(fault, CutAnswer) else None
            self._pass_back(answer, cut)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # every method is served alike
            return self._serve
        raise AttributeError(name)

    def _pass_on(self, upstream: http.client.HTTPConnection, size: int) -> None:
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                upstream.putheader(name, value)
        upstream.endheaders()
        for block in self._blocks(size):
            upstream.send(block)

    def _pass_back(self, answer: http.client.HTTPResponse, cut: int | None) -> None:
        body = answer.read()
        size = int(answer.headers.get("Content-Length") or len(body))
        self._begin_answer(answer.status, dict(answer.headers.items()), size)
        if cut is not None and cut < len(body):
            self.wfile.write(body[:cut])
            self.wfile.flush()
            self._break()
        else:
            self.wfile.write(body)

    def _begin_answer(self, status: int, headers: dict[str, str], size: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def _read_body(self, size: int) -> None:
        for _ in self._blocks(size):
            continue

    def _blocks(self, size: int) -> Iterator[bytes]:
        while size:
            block = self.rfile.read(min(BLOCK, size))
            if not block:
                raise ConnectionResetError
            size -= len(block)
            yield block

    def _break(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
