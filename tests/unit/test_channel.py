"""A channel under a peer that is slow, gone, or sends in pieces."""

from __future__ import annotations

import mmap
import socket
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Iterator

import pytest

from holdfast.channel import Channel
from holdfast.errors import ConfigError
from holdfast.wire import Assigned, Meeting, Met
from tests.patience import PATIENCE_S, wait_until

MIB = 1 << 20


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def fill(channel: Channel, count: int) -> None:
    for index in range(count):
        channel.send(Meeting(index, bytes(MIB)))


def test_an_unbounded_channel_takes_anything_at_once(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel, peer = Channel(ends[0], unsent_bytes_max=None), Channel(ends[1])

    fill(channel, 100)

    assert channel.has_unsent
    assert not channel.flush(0.0)
    indexes: list[int] = []
    while len(indexes) < 100:
        channel.flush()
        indexes += [message.index for message in peer.receive() if isinstance(message, Meeting)]
    assert indexes == [*range(100)]
    assert not channel.has_unsent


def test_many_small_messages_to_a_slow_reader_come_whole_and_in_order(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that frames are cut in two
    channel, peer = Channel(ends[0]), Channel(ends[1])

    for index in range(5000):
        channel.send(Meeting(index, bytes(index % 97)))
    assert channel.has_unsent

    received: list[Meeting] = []
    while len(received) < 5000:
        channel.flush()
        received += [message for message in peer.receive() if isinstance(message, Meeting)]
    assert received == [Meeting(index, bytes(index % 97)) for index in range(5000)]
    assert not channel.has_unsent


def waits(thread: threading.Thread) -> bool:
    """Return whether a thread that sends is made to wait; False once it has ended instead."""

    def functions() -> list[str]:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  # Python's own name
        return [level.f_code.co_name for level, _ in traceback.walk_stack(frame)] if frame else []

    wait_until(lambda: not thread.is_alive() or "_poll" in functions())
    return thread.is_alive()


def test_a_bounded_channel_makes_its_sender_wait_until_there_is_room(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel, peer = Channel(ends[0], unsent_bytes_max=4 * MIB), Channel(ends[1])
    sent: list[int] = []

    def send() -> None:
        for index in range(12):
            channel.send(Meeting(index, bytes(MIB)))
            sent.append(index)

    thread = threading.Thread(target=send)
    thread.start()
    assert waits(thread)
    assert 4 <= len(sent) <= 6  # some are in the socket

    received = 0
    while received < 12:
        received += len(peer.wait(0.1))
        if not thread.is_alive():
            channel.flush()
    thread.join()
    assert sent == [*range(12)]


def test_a_sender_that_waits_is_let_go_when_its_peer_is_gone(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0], unsent_bytes_max=MIB)
    thread = threading.Thread(target=fill, args=(channel, 10))
    thread.start()
    assert waits(thread)

    ends[1].close()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    assert channel.is_closed


def test_what_is_sent_to_one_who_is_gone_is_not_kept(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0], unsent_bytes_max=None)
    ends[1].close()
    channel.send(Met(1))
    tracemalloc.start()
    try:
        fill(channel, 50)
        traced_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert traced_bytes < MIB
    assert channel.is_closed


@pytest.mark.parametrize("timeout_s", [None, 86_400.0])
def test_a_flush_ends_when_the_peer_is_gone(
    ends: tuple[socket.socket, socket.socket], timeout_s: float | None
) -> None:
    channel = Channel(ends[0])
    fill(channel, 8)
    ends[1].close()
    channel.receive()  # as the thread that listens would: now it is known to be closed

    assert not channel.flush(timeout_s)


def test_a_flush_waits_no_longer_than_it_was_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0])
    fill(channel, 8)
    began = time.monotonic()

    assert not channel.flush(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_wait_waits_no_longer_than_it_was_told_whatever_trickles_in(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0])
    over = threading.Event()

    def trickle() -> None:
        ends[1].send(b"\x00\x00\xff\xff")
        while not over.wait(0.02):
            ends[1].send(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()

    assert channel.wait(0.2) == []
    assert time.monotonic() - began >= 0.2
    over.set()
    thread.join()


def test_the_last_words_of_a_peer_are_heard(ends: tuple[socket.socket, socket.socket]) -> None:
    channel, peer = Channel(ends[0]), Channel(ends[1])
    peer.send(Met(1))
    peer.close()

    assert channel.wait() == [Met(1)]
    assert channel.wait() == []
    assert channel.is_closed


def test_a_closed_channel_refuses_nothing_and_does_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel = Channel(ends[0])
    channel.close()

    channel.send(Met(1))

    assert channel.flush(None)
    assert channel.wait(None) == []


def test_a_message_that_is_larger_than_any_can_be_is_refused_and_the_line_goes_on(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    channel, peer = Channel(ends[0]), Channel(ends[1])
    with (
        mmap.mmap(-1, 5 << 30) as untouched,  # takes no memory
        memoryview(untouched) as data,
        pytest.raises(ConfigError, match=r"shares with the others takes 5\.0 GiB.*4\.0 GiB"),
    ):
        channel.send(Meeting(1, data))  # type: ignore[arg-type]

    channel.send(Meeting(2, b"small"))

    assert peer.wait(PATIENCE_S) == [Meeting(2, b"small")]


def test_a_message_whose_frame_would_be_too_long_is_refused(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Channel, "MESSAGE_BYTES_MAX", 1000)

    with pytest.raises(
        ConfigError, match="the function with its config and everything it refers to"
    ):
        Channel(ends[0]).send(Assigned(bytes(1000)))
