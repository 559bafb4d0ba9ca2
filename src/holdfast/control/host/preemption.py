"""Preemption notices: asks the cloud's metadata server whether this machine will be taken away.

Each cloud runs a metadata server that only its virtual machines can reach. If it is missing or
gives no proper answer, there is no notice, and a warning is logged once.
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
        deadline: When, seconds since 1970; None if it is unknown.
        nodes: Which, None for the one this driver is on.
        source: Where the notice comes from.
    """

    deadline: float | None
    nodes: tuple[str, ...] | None
    source: str


class NoticeSource(Protocol):
    """Knows when machines go away."""

    def poll(self) -> Notice | None:
        """Return the current notice, None if there is none; equal notices are the same one.

        Called again and again from a thread of its own; it may take seconds, and may raise.
        """
        ...


# ---------------------------------------------------------------------- metadata servers


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: str
    headers: Mapping[str, str]


class _Metadata:
    """The metadata server of a cloud; asked directly, never through a proxy."""

    def __init__(self, cloud: str, url: str) -> None:
        self._cloud, (self._host, self._port) = cloud, _address(url)
        self._has_complained = False

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> _Answer | None:
        """Return the answer, None if there is none."""
        import http.client  # it takes long to load, and most runs do not need it

        connection = http.client.HTTPConnection(self._host, self._port, timeout=ASK_TIMEOUT_S)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_BODY_BYTES_MAX)
            if response.length:
                raise http.client.IncompleteRead(body, response.length)
            received = {name.lower(): value for name, value in response.getheaders()}
            return _Answer(response.status, body.decode(errors="replace"), received)
        except (OSError, http.client.HTTPException) as error:
            self.complain(f"does not answer: {error!r}")
            return None
        finally:
            connection.close()

    def document(self, answer: _Answer | None) -> dict[str, Any] | None:
        """Return the JSON object of an answer; None if there is none."""
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
            self.complain(f"does not answer with a JSON object: {answer.body[:80]!r}")
            return None
        return data

    def complain(self, problem: str) -> None:
        """Log, once, that there are no notices and why."""
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "no notices from %s: the metadata server %s:%d %s",
                self._cloud,
                self._host,
                self._port,
                problem,
            )


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname:
            return parts.hostname, parts.port or 80
    except ValueError:
        pass  # an invalid port; the same message fits
    raise ConfigError(
        f"url={url!r}: a metadata server is reached over http, as in http://host:port",
        hint="leave url out; the usual address is built in",
    )


class AwsNotices:
    """Notices for AWS spot instances, two minutes before they are reclaimed.

    Args:
        heeds_rebalance: Whether a rebalance recommendation, which names no time and need not be
            followed by a reclaim, is a notice too.
    """

    def __init__(self, url: str = _LOCAL, *, heeds_rebalance: bool = False) -> None:
        self._metadata = _Metadata("AWS", url)
        self._heeds_rebalance = heeds_rebalance
        self._token: str | None = None

    def poll(self) -> Notice | None:
        planned = self._ask("/latest/meta-data/spot/instance-action")
        if planned is not None:
            action = planned.get("action")
            if action in {"terminate", "stop", "hibernate"}:
                return Notice(_moment(planned.get("time")), None, f"AWS spot: {action}")
            self._metadata.complain(f"announces the unknown action {action!r}")
        if self._heeds_rebalance:
            advice = self._ask("/latest/meta-data/events/recommendations/rebalance")
            if advice is not None and "noticeTime" in advice:
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
        # In a container, token requests may fail while requests without a token are answered.
        headers = {} if self._token is None else {"X-aws-ec2-metadata-token": self._token}
        return self._metadata.ask(path, headers)

    def _new_token(self) -> str | None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        answer = self._metadata.ask("/latest/api/token", headers, method="PUT")
        return answer.body if answer is not None and answer.status == 200 else None


class GcpNotices:
    """Notices for spot and preemptible machines of Google Cloud, half a minute ahead."""

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
        # Outside Google Cloud a server of that name may exist and answer anything.
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
    """Notices for machines of Azure that are preempted or deleted, half a minute ahead.

    All machines of a scale set get the events of each; only those of this one count.
    """

    def __init__(self, url: str = _LOCAL, clock: Clock = SYSTEM_CLOCK) -> None:
        self._metadata = _Metadata("Azure", url)
        self._clock = clock
        self._name: str | None = None
        self._begun: dict[str, float] = {}

    def poll(self) -> Notice | None:
        answer = self._ask("/metadata/scheduledevents?api-version=2020-07-01")
        events = (self._metadata.document(answer) or {}).get("Events")
        if not isinstance(events, list):
            return None
        notices = [notice for event in events if (notice := self._notice(event)) is not None]
        return min(notices, key=lambda notice: notice.deadline or 0.0, default=None)

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
            return True  # a needless stop costs less than one without warning
        return name.lower() in {str(resource).lower() for resource in resources}

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
    """Return a time in ISO 8601, or as in mails, as seconds since 1970; None if it is neither."""
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
    """Return the source of notices that a config value names, or is."""
    if isinstance(given, str) and given in _SOURCES:
        return _SOURCES[given]()
    if not isinstance(given, str | type) and callable(getattr(given, "poll", None)):
        source: NoticeSource = given  # type: ignore[assignment]
        return source
    names = ", ".join(repr(name) for name in sorted(_SOURCES))
    raise ConfigError(
        f"{given!r} is no source of preemption notices; the names are {names}",
        hint="or pass an object with a method poll() that returns a Notice or None",
    )


class Watch:
    """A thread that polls a source and passes on new notices; made by `watch`."""

    def __init__(
        self, source: NoticeSource, tell: Callable[[Notice], None], interval_s: float
    ) -> None:
        self._source, self._tell, self._interval_s = source, tell, interval_s
        self._last: Notice | None = None
        self._has_complained = False
        self._stopped = threading.Event()
        self._telling = threading.RLock()
        self._thread = threading.Thread(target=self._look, name="holdfast-notices", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Return once no notice will be passed on any more; idempotent, `tell` may call it.

        A poll that is under way is not waited for long; its result is dropped.
        """
        self._stopped.set()
        with self._telling:
            pass  # a notice that was being passed on has been
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _look(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look_once()
            except BaseException:  # the source is not our code, but the thread is ours
                if not self._has_complained:
                    self._has_complained = True
                    log.warning("the source of preemption notices failed", exc_info=True)
            self._stopped.wait(self._interval_s)

    def _look_once(self) -> None:
        notice = self._source.poll()
        if notice is None or notice == self._last:
            return
        if not isinstance(notice, Notice):
            raise TypeError(f"{self._source!r}.poll() returned {notice!r}, which is no Notice")
        with self._telling:
            if not self._stopped.is_set():
                self._tell(notice)
                self._last = notice


def watch(source: NoticeSource, tell: Callable[[Notice], None], interval_s: float = 5.0) -> Watch:
    """Poll `source` every `interval_s` in another thread, which passes each notice to `tell` once.

    It goes on if the source or `tell` raise; a notice for which `tell` raised is passed on again.
    """
    return Watch(source, tell, interval_s)
