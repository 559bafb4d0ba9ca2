"""Messages between a worker and its driver, from the first one on."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

import pytest

from holdfast.channel import Channel
from holdfast.core.placement import Place
from holdfast.wire import Assigned, Meeting, Message, Met, Noticed, Reported, SaveWanted
from holdfast.worker.conversation import Conversation, DriverGone
from holdfast.worker.entry import JobQueue
from holdfast.worker.job import Job, pack


def test_a_notice_that_comes_while_a_job_is_unpacked_is_not_lost() -> None:
    job = Job(
        task=b"",
        place=Place(0, 1, 0, 1, 0, "node-0"),
        run_name="run",
        run_id="id",
        attempt=1,
        store={},
    )
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as driver:
        jobs = JobQueue(Channel(theirs), lambda: None)
        notice = Noticed(7.0, {"node-0": [0]})
        for message in (Assigned(pack(job)), notice, Met(1)):
            driver.send(message)
        given = jobs.next_job()
        assert given is not None
        jobs.conversation.answer("meeting", 1)  # so what was said before it was heard

        context = jobs.begin(given)

        assert context.notice() == notice
        jobs.conversation.end()


def test_nobody_waits_for_an_answer_that_can_no_longer_be_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be no memory left for what the driver says."""
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    ours, theirs = socket.socketpair()

    def fails(message: Message) -> None:
        raise MemoryError

    with closing(Channel(ours)) as driver, closing(Channel(theirs)) as channel:
        conversation = Conversation(channel, fails, lambda: None)
        conversation.listen([])
        driver.send(SaveWanted())

        with pytest.raises(DriverGone):
            conversation.answer("report", 1)

    assert failed[0].exc_type is MemoryError


def test_what_is_said_behind_a_flood_of_reports_leaves_as_soon_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Channel, "FULL_S", 3600.0)
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as driver, closing(Channel(theirs)) as channel:
        conversation = Conversation(channel, lambda _: None, lambda: None)
        index = 0
        while not channel.has_unsent:
            conversation.say(Reported(index := index + 1, {"text": "x" * 10_000}))
        conversation.say(Reported(index := index + 1, {}))
        heard = drained(driver)
        assert channel.has_unsent, "a flood is sent in large pieces, not one by one"

        conversation.say(Meeting(1))

        assert not channel.has_unsent
        heard += drained(driver)
        indexes = [message.index for message in heard if isinstance(message, Reported)]
        assert indexes == [*range(1, index + 1)]
        assert heard[-1] == Meeting(1)


def drained(channel: Channel) -> list[Message]:
    messages: list[Message] = []
    while received := channel.receive():
        messages += received
    return messages
