"""Results of a study that are read when they are first looked at."""

from __future__ import annotations

import pickle

from holdfast.tune.results.reader import LazyList


def test_nothing_is_made_before_somebody_looks_and_then_once() -> None:
    calls: list[int] = []

    def make() -> list[str]:
        calls.append(1)
        return ["a", "b", "c"]

    found = LazyList(make)

    assert calls == []
    assert (len(found), found[1], list(found[1:]), list(found)) == (3, "b", ["b", "c"], [*"abc"])
    assert calls == [1]


def test_it_travels_as_a_plain_list() -> None:
    shift = 1
    found = LazyList(lambda: [shift, shift + 1])

    assert pickle.loads(pickle.dumps(found)) == [1, 2]
