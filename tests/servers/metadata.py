"""The metadata servers of three clouds on loopback, as far as machines are told that they must go.

It speaks as a virtual machine hears it: AWS with tokens (IMDSv2), Google Cloud with its header,
Azure with scheduled events. Nothing is announced until a test says so.
"""

from __future__ import annotations

import itertools
import json
import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_AWS, _GCP, _AZURE = "/latest/", "/computeMetadata/", "/metadata/"


class MetadataServer:
    """The server; `url` is where it listens, and its attributes are what it tells.

    Attributes:
        needs_token: Whether AWS wants a token with every question, as most machines now do.
        gives_tokens: Whether AWS hands any out; old machines do not.
        fault: A status that every question is answered with, None to answer properly.
        questions: What was asked, method and path, in order.
    """

    def __init__(self) -> None:
        self.needs_token = True
        self.gives_tokens = True
        self.fault: int | None = None
        self.azure_name = "gpu-vm-3"
        self.questions: list[str] = []
        self._documents: dict[str, str] = {}
        self._tokens: set[str] = set()
        self._numbers = itertools.count(1)
        self.announce_nothing()
        server = self

        class Handler(_Handler):
            """Questions to this very server."""

            held = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    # ------------------------------------------------------------------ what is announced

    def announce_nothing(self) -> None:
        """Take back whatever was announced."""
        self._documents = {
            f"{_GCP}v1/instance/preempted": "FALSE",
            f"{_AZURE}scheduledevents": json.dumps({"DocumentIncarnation": 1, "Events": []}),
        }

    def reclaim_on_aws(self, at: float, action: str = "terminate") -> None:
        """Announce that the spot instance goes at `at`, seconds since 1970."""
        notice = {"action": action, "time": _iso(at)}
        self._documents[f"{_AWS}meta-data/spot/instance-action"] = json.dumps(notice)

    def recommend_rebalance_on_aws(self, at: float) -> None:
        """Announce that the spot instance is likelier than others to be reclaimed."""
        path = f"{_AWS}meta-data/events/recommendations/rebalance"
        self._documents[path] = json.dumps({"noticeTime": _iso(at)})

    def preempt_on_gcp(self) -> None:
        """Announce that the machine goes; Google does not say when."""
        self._documents[f"{_GCP}v1/instance/preempted"] = "TRUE"

    def schedule_on_azure(
        self, kind: str, at: float | None, machines: tuple[str, ...], status: str = "Scheduled"
    ) -> None:
        """Announce an event for some machines; one that has started has no time any more."""
        moment = datetime.fromtimestamp(at, UTC) if at is not None else None
        event = {
            "EventId": f"event-{next(self._numbers)}",
            "EventType": kind,
            "EventStatus": status,
            "ResourceType": "VirtualMachine",
            "Resources": list(machines),
            "NotBefore": format_datetime(moment, usegmt=True) if moment is not None else "",
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self.say(
            f"{_AZURE}scheduledevents", json.dumps({"DocumentIncarnation": 2, "Events": [event]})
        )

    def say(self, path: str, body: str) -> None:
        """Answer questions about `path` with `body`, whatever it is."""
        self._documents[path] = body

    def forget_tokens(self) -> None:
        """Let every token expire that AWS has handed out."""
        self._tokens.clear()

    # ------------------------------------------------------------------ answering

    def _answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        self.questions.append(f"{method} {path}")
        place = urlsplit(path)
        if self.fault is not None:
            return self.fault, "out of order"
        if place.path == f"{_AWS}api/token":
            return self._token(method, headers)
        if method != "GET":
            return 405, ""
        if place.path.startswith(_AWS) and not self._is_known(headers):
            return 401, ""
        if place.path.startswith(_GCP) and headers.get("metadata-flavor") != "Google":
            return 403, ""
        if place.path.startswith(_AZURE):
            if headers.get("metadata") != "true" or "api-version" not in parse_qs(place.query):
                return 400, ""
            if place.path == f"{_AZURE}instance/compute/name":
                return 200, self.azure_name
        found = self._documents.get(place.path)
        return (404, "") if found is None else (200, found)

    def _token(self, method: str, headers: dict[str, str]) -> tuple[int, str]:
        lifetime = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not self.gives_tokens:
            return 404, ""
        if method != "PUT" or not lifetime.isdigit() or not 1 <= int(lifetime) <= 21600:
            return 400, ""
        token = f"token-{next(self._numbers)}"
        self._tokens.add(token)
        return 200, token

    def _is_known(self, headers: dict[str, str]) -> bool:
        token = headers.get("x-aws-ec2-metadata-token")
        return token in self._tokens if token is not None else not self.needs_token


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    held: MetadataServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing: tests have their own words."""

    def do_GET(self) -> None:
        self._reply()

    def do_PUT(self) -> None:
        self._reply()

    def _reply(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, body = self.held._answer(self.command, self.path, headers)  # noqa: SLF001
        data = body.encode()
        self.send_response(status)
        if self.path.startswith(_GCP):
            self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
