"""Notices that a machine will be taken away: what clouds say to the machine, and who listens.

Each cloud tells its virtual machines through a server of metadata that only they can reach. A
server that is not there, or does not answer as it should, has said nothing; that is logged once.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 1.0
STOP_TIMEOUT_S = 2.0
GCP_NOTICE_S = 30.0
MARGIN_S = 1.0  # before a deadline, to stop workers and close the run
_BODY_BYTES_MAX = 1 << 16
_TOKEN_TTL_S = 21600
_LOCAL = "http://169.254.169.254"
_AZURE_GONE = {"Preempt": "preempted", "Terminate": "deleted"}


@dataclass(frozen=True, slots=True)
class Notice:
    """Machines will go away.

    Attributes:
        deadline: When, seconds since 1970; None if nobody knows.
        nodes: Which, None for the one this driver is on.
        source: Who says so.
    """

    deadline: float | None
    nodes: tuple[str, ...] | None
    source: str


class NoticeSource(Protocol):
    """Somebody who knows when machines go away."""

    def poll(self) -> Notice | None:
        """Return what is announced now, the same as long as it is the same; None if nothing is.

        Called again and again from a thread of its own; it may take seconds, and may raise.
        """
        ...


# ---------------------------------------------------------------------- servers of metadata


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: str
    headers: Mapping[str, str]


class _Metadata:
    """A server that a machine asks about itself; directly, never through a proxy."""

    def __init__(self, cloud: str, url: str) -> None:
        self._cloud, (self._host, self._port) = cloud, _address(url)
        self._has_complained = False

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> _Answer | None:
        """Return the answer, None if there is none."""
        import http.client  # it takes long to load, and most runs ask nobody

        connection = http.client.HTTPConnection(self._host, self._port, timeout=ASK_TIMEOUT_S)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_BODY_BYTES_MAX)
            if response.length:
                raise http.client.IncompleteRead(body, response.length)
            found = {name.lower(): value for name, value in response.getheaders()}
            return _Answer(response.status, body.decode(errors="replace"), found)
        except (OSError, http.client.HTTPException) as error:
            self.complain(f"does not answer: {error!r}")
            return None
        finally:
            connection.close()

    def document(self, answer: _Answer | None) -> dict[str, Any] | None:
        """Return the JSON object of an answer; None if it says nothing, or is none."""
        if answer is None or answer.status == 404:
            return None
        if answer.status != 200:
            self.complain(f"answers with status {answer.status}")
            return None
        try:
            data = json.loads(answer.body)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            self.complain(f"answers with something else than JSON: {answer.body[:80]!r}")
            return None
        return data

    def complain(self, what: str) -> None:
        """Say once that there are no notices to be had."""
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "no notices from %s: the metadata server %s:%d %s",
                self._cloud,
                self._host,
                self._port,
                what,
            )


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname:
            return parts.hostname, parts.port or 80
    except ValueError:
        pass  # of a port that is none; the same is wrong with it
    raise ConfigError(
        f"url={url!r}: a metadata server is reached over http, as in http://host:port",
        hint="leave url out; the usual address is built in",
    )


class AwsNotices:
    """Spot instances of AWS, which are told two minutes before they are reclaimed.

    Args:
        heeds_rebalance: Whether the mere recommendation to move elsewhere, which names no time and
            may come to nothing, is a notice too.
    """

    def __init__(self, url: str = _LOCAL, *, heeds_rebalance: bool = False) -> None:
        self._metadata = _Metadata("AWS", url)
        self._heeds_rebalance = heeds_rebalance
        self._token: str | None = None

    def poll(self) -> Notice | None:
        said = self._ask("/latest/meta-data/spot/instance-action")
        if said is not None:
            action = said.get("action")
            if action in {"terminate", "stop", "hibernate"}:
                return Notice(_moment(said.get("time")), None, f"AWS spot: {action}")
            self._metadata.complain(f"announces the unknown action {action!r}")
        if self._heeds_rebalance:
            said = self._ask("/latest/meta-data/events/recommendations/rebalance")
            if said is not None and "noticeTime" in said:
                return Notice(None, None, "AWS spot: rebalance recommendation")
        return None

    def _ask(self, path: str) -> dict[str, Any] | None:
        answer = self._ask_once(path)
        if answer is not None and answer.status == 401:
            self._token = None  # it has expired
            answer = self._ask_once(path)
        return self._metadata.document(answer)

    def _ask_once(self, path: str) -> _Answer | None:
        if self._token is None:
            self._token = self._new_token()
        # In a container, tokens may not be had while plain questions are answered.
        headers = {} if self._token is None else {"X-aws-ec2-metadata-token": self._token}
        return self._metadata.ask(path, headers)

    def _new_token(self) -> str | None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        answer = self._metadata.ask("/latest/api/token", headers, method="PUT")
        return answer.body if answer is not None and answer.status == 200 else None


class GcpNotices:
    """Spot and preemptible machines of Google Cloud, which have half a minute once it is said."""

    def __init__(
        self, url: str = "http://metadata.google.internal", clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._metadata = _Metadata("Google Cloud", url)
        self._clock = clock
        self._deadline: float | None = None

    def poll(self) -> Notice | None:
        path = "/computeMetadata/v1/instance/preempted"
        answer = self._metadata.ask(path, {"Metadata-Flavor": "Google"})
        if answer is None:
            return None
        # Somewhere else, a server of that name may exist and answer anything.
        if answer.status != 200 or answer.headers.get("metadata-flavor") != "Google":
            self._metadata.complain(f"answers with status {answer.status}, not as Google's does")
            return None
        if answer.body.strip().upper() != "TRUE":
            self._deadline = None
            return None
        if self._deadline is None:
            self._deadline = self._clock.now() + GCP_NOTICE_S
        return Notice(self._deadline, None, "Google Cloud: preempted")


class AzureNotices:
    """Machines of Azure, which are told of events: being preempted or deleted, half a minute ahead.

    All machines of a scale set are told of the events of each; only those of this one count.
    """

    def __init__(self, url: str = _LOCAL, clock: Clock = SYSTEM_CLOCK) -> None:
        self._metadata = _Metadata("Azure", url)
        self._clock = clock
        self._name: str | None = None
        self._begun: dict[str, float] = {}

    def poll(self) -> Notice | None:
        answer = self._ask("/metadata/scheduledevents?api-version=2020-07-01")
        said = self._metadata.document(answer) or {}
        events = said.get("Events")
        notices = [self._notice(event) for event in events] if isinstance(events, list) else []
        known = [notice for notice in notices if notice is not None]
        return min(known, key=lambda one: one.deadline or 0.0, default=None)

    def _notice(self, event: object) -> Notice | None:
        if not isinstance(event, dict) or not self._is_about_us(event):
            return None
        kind = _AZURE_GONE[event["EventType"]]
        deadline = _moment(event.get("NotBefore"))
        if deadline is None and event.get("EventStatus") == "Started":
            name = str(event.get("EventId"))
            deadline = self._begun.setdefault(name, self._clock.now())
        return Notice(deadline, None, f"Azure: {kind}")

    def _is_about_us(self, event: Mapping[str, Any]) -> bool:
        if event.get("EventType") not in _AZURE_GONE:
            return False
        name = self._own_name()
        resources = event.get("Resources")
        if name is None or not isinstance(resources, list):
            return True  # a stop for nothing costs less than one that was not seen coming
        return name.lower() in {str(one).lower() for one in resources}

    def _own_name(self) -> str | None:
        if self._name is None:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            answer = self._ask(path)
            if answer is not None and answer.status == 200 and answer.body.strip():
                self._name = answer.body.strip()
        return self._name

    def _ask(self, path: str) -> _Answer | None:
        return self._metadata.ask(path, {"Metadata": "true"})


def _moment(text: object) -> float | None:
    """Return a time as seconds since 1970, be it written as ISO 8601 or as in mails."""
    if not isinstance(text, str):
        return None
    from email.utils import parsedate_to_datetime

    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
        except ValueError:
            continue
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return None


# ---------------------------------------------------------------------- listening


_SOURCES: dict[str, Callable[[], NoticeSource]] = {
    "aws": AwsNotices,
    "azure": AzureNotices,
    "gcp": GcpNotices,
}


def source_named(given: object) -> NoticeSource:
    """Return the source of notices that a config names, or is."""
    if isinstance(given, str) and given in _SOURCES:
        return _SOURCES[given]()
    if not isinstance(given, str | type) and callable(getattr(given, "poll", None)):
        source: NoticeSource = given  # type: ignore[assignment]
        return source
    known = ", ".join(repr(name) for name in sorted(_SOURCES))
    raise ConfigError(
        f"{given!r} is no source of preemption notices; known are {known}",
        hint="or pass an object with a method poll() that returns a Notice or None",
    )


class Watch:
    """A thread that asks a source, and tells what is new; made by `watch`."""

    def __init__(
        self, source: NoticeSource, tell: Callable[[Notice], None], interval_s: float
    ) -> None:
        self._source, self._tell, self._interval_s = source, tell, interval_s
        self._told: Notice | None = None
        self._has_complained = False
        self._stopped = threading.Event()
        self._telling = threading.RLock()
        self._thread = threading.Thread(target=self._look, name="holdfast-notices", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Return once nothing will be told any more; idempotent, and allowed while it tells.

        A source that is still being asked is not waited for long; its answer is dropped.
        """
        self._stopped.set()
        with self._telling:
            pass  # what is being told right now has been told
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _look(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look_once()
            except BaseException:  # of code that is not ours, in a thread that is
                if not self._has_complained:
                    self._has_complained = True
                    log.warning("looking for preemption notices failed", exc_info=True)
            self._stopped.wait(self._interval_s)

    def _look_once(self) -> None:
        notice = self._source.poll()
        if notice is None or notice == self._told:
            return
        if not isinstance(notice, Notice):
            raise TypeError(f"{self._source!r}.poll() returned {notice!r}, which is no Notice")
        with self._telling:
            if not self._stopped.is_set():
                self._tell(notice)
                self._told = notice


def watch(source: NoticeSource, tell: Callable[[Notice], None], interval_s: float = 5.0) -> Watch:
    """Begin to ask `source` every `interval_s`; `tell` gets each notice once, in another thread.

    It goes on whatever the source or `tell` raise; a notice that `tell` did not take comes again.
    """
    return Watch(source, tell, interval_s)
