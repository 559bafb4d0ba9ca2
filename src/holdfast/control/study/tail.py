"""The end of a study's journal: its last state, and the events since.

A state is one record that holds everything. It is written when the events since the last one have
grown much longer than a state, so that reading a study costs as much as what it has become, not as
much as its past.

A new state lets the journal drop all events before it, whose results must be in result.json and
the like by then. So that the study need not wait for those files, a state may be of an earlier
moment, which `state_taken` marks in the journal; the events after the mark are still read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.checkpoint.record import Event
from holdfast.core.study.events import KINDS, STATE, StateTaken


class StudyTail:
    """The last state of a study and the events since; an account of its journal.

    Attributes:
        state: The last state, None if there is none yet.
        events: The events since, as the journal has them.
    """

    def __init__(self) -> None:
        self.state: Mapping[str, Any] | None = None
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self._is_read = False

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record of the journal."""
        if self._is_read:
            return
        if kind in KINDS:
            self.events.append((kind, data))
        elif kind == STATE:
            since = self._since(data.get("taken"))
            if since is not None:
                self.state, self.events = {**data, "taken": None}, since

    def _since(self, mark: str | None) -> list[tuple[str, Mapping[str, Any]]] | None:
        """Return the events since a mark, None if the record of the mark is damaged.

        The state of that moment is of no use then; the one before it leads to the same study.
        """
        if mark is None:
            return []
        for at in reversed(range(len(self.events))):
            kind, data = self.events[at]
            if kind == StateTaken.kind and data["mark"] == mark:
                return self.events[at + 1 :]
        return None

    def to_events(self) -> list[Event]:
        """Return the records that lead to where the study is."""
        state = [] if self.state is None else [(STATE, dict(self.state))]
        return [*state, *((kind, dict(data)) for kind, data in self.events)]

    def forget(self) -> None:
        """Drop everything, and whatever comes: the study itself takes in events from now on."""
        self.state, self.events, self._is_read = None, [], True


class PackedTail:
    """A `StudyTail` for compaction, which only passes events on: they are packed meanwhile.

    As objects they would take several times the memory, and a driver never gives that back.
    """

    def __init__(self) -> None:
        self._tail = StudyTail()

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record of the journal."""
        if kind not in (STATE, StateTaken.kind):
            with contextlib.suppress(OverflowError):  # a whole number that is too large for it
                data = {_PACKED: _pack(data)}
        self._tail.apply(kind, data)

    def to_events(self) -> list[Event]:
        """Return the records that lead to where the study is."""
        return [
            (kind, _unpack(data[_PACKED]) if _PACKED in data else data)
            for kind, data in self._tail.to_events()
        ]


_PACKED = ""  # no record has a member of that name
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode
