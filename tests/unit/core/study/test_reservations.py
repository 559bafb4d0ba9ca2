"""What is free on the nodes there are, asked again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.study.reservations import Room

ONE = ({"CPU": 1.0},)
TWO = ({"CPU": 2.0},)


def test_room_is_worked_out_again_only_after_something_has_moved() -> None:
    asked: list[int] = []
    taken: list[tuple[Sequence[Mapping[str, float]], Sequence[str]]] = [(ONE, ()), (ONE, ("b",))]

    def reserved() -> list[tuple[Sequence[Mapping[str, float]], Sequence[str]]]:
        asked.append(1)
        return taken

    room = Room(reserved)
    room.become({"a": {"CPU": 1.0}, "b": {"CPU": 2.0}})

    assert room.place(ONE) == room.place(({"CPU": 1.0},)) == ("a",)
    assert len(asked) == 1
    taken.append((ONE, ("a",)))
    room.changed()
    assert room.place(ONE) == ("b",)
    assert room.place(TWO) is None
    room.become({"c": {"CPU": 2.0}})
    assert room.place(TWO) == ("c",)
    assert room.free() == {"c": {"CPU": 2.0}}
