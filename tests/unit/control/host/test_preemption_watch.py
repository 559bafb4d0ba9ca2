"""The thread that polls for notices: it passes each on once, and only `stop` ends it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.control.host.preemption import AwsNotices, Notice, NoticeSource, watch
from tests.patience import PATIENCE_S
from tests.servers.metadata import MetadataServer


class Script:
    """A source that does one thing after another, and then the last for ever."""

    def __init__(self, *acts: Notice | BaseException | None) -> None:
        self.acts = list(acts)
        self.polls = 0
        self.polled = threading.Condition()

    def poll(self) -> Notice | None:
        with self.polled:
            act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
            self.polls += 1
            self.polled.notify_all()
        if isinstance(act, BaseException):
            raise act
        return act

    def wait_for(self, polls: int) -> None:
        with self.polled:
            assert self.polled.wait_for(lambda: self.polls >= polls, 10)


@contextlib.contextmanager
def watching(source: NoticeSource, tell: Callable[[Notice], None]) -> Iterator[None]:
    looking = watch(source, tell, interval_s=0.001)
    yield
    looking.stop()
    assert not looking.is_alive


def notice(deadline: float) -> Notice:
    return Notice(deadline, None, "test")


def test_what_a_cloud_announces_reaches_who_listens() -> None:
    server, received = MetadataServer(), queue.Queue[Notice]()
    with watching(AwsNotices(server.url), received.put):
        server.reclaim_on_aws(1_800_000_000.0)

        assert received.get(timeout=PATIENCE_S) == Notice(
            1_800_000_000.0, None, "AWS spot: terminate"
        )
    server.stop()


def test_each_notice_is_told_once() -> None:
    received: list[Notice] = []
    source = Script(None, notice(1), notice(1), None, notice(1), notice(2), notice(2))
    with watching(source, received.append):
        source.wait_for(12)

    assert received == [notice(1), notice(2)]


def test_it_survives_whatever_a_source_raises(caplog: pytest.LogCaptureFixture) -> None:
    received: queue.Queue[Notice] = queue.Queue()
    faults = [OSError("x"), SystemExit(1), KeyboardInterrupt(), RecursionError(), ValueError()]
    with caplog.at_level(logging.WARNING), watching(Script(*faults, notice(1)), received.put):
        assert received.get(timeout=PATIENCE_S) == notice(1)

    assert len(caplog.records) == 1


def test_a_source_that_returns_something_else_tells_nothing() -> None:
    received: list[Notice] = []
    source = Script("going down")  # type: ignore[arg-type]
    with watching(source, received.append):
        source.wait_for(3)

    assert received == []


def test_a_notice_that_was_not_taken_comes_again() -> None:
    received: queue.Queue[Notice] = queue.Queue()
    tries: list[int] = []

    def tell(notice: Notice) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not ready")
        received.put(notice)

    with watching(Script(notice(1)), tell):
        assert received.get(timeout=PATIENCE_S) == notice(1)


def test_nothing_is_told_after_stop_even_if_the_source_answers_late() -> None:
    asked, answer = threading.Event(), threading.Event()
    received: list[Notice] = []

    class Slow:
        def poll(self) -> Notice | None:
            asked.set()
            answer.wait(PATIENCE_S)
            return notice(1)

    looking = watch(Slow(), received.append)
    assert asked.wait(PATIENCE_S)
    stopping = threading.Thread(target=looking.stop)
    stopping.start()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive(), "stop waits for a source that hangs"
    answer.set()
    looking.stop()

    assert not looking.is_alive
    assert received == []


def test_it_can_be_stopped_by_what_it_tells_and_more_than_once() -> None:
    received: queue.Queue[Notice] = queue.Queue()

    def tell(notice: Notice) -> None:
        looking.stop()
        received.put(notice)

    ready = threading.Event()

    class Ready:
        def poll(self) -> Notice | None:
            return notice(1) if ready.is_set() else None

    looking = watch(Ready(), tell, interval_s=0.001)
    ready.set()

    assert received.get(timeout=PATIENCE_S) == notice(1)
    looking.stop()
    looking.stop()
    assert not looking.is_alive
