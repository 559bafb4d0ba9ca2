"""Results of a study are read when they are first used."""

from __future__ import annotations

import pickle

from holdfast.tune.results.reader import LazyList


def test_a_lazy_list_is_made_once_when_it_is_first_read() -> None:
    calls: list[int] = []

    def make() -> list[str]:
        calls.append(1)
        return ["a", "b", "c"]

    items = LazyList(make)

    assert calls == []
    assert (len(items), items[1], list(items[1:]), list(items)) == (3, "b", ["b", "c"], [*"abc"])
    assert calls == [1]


def test_a_lazy_list_is_pickled_as_a_plain_list() -> None:
    shift = 1
    items = LazyList(lambda: [shift, shift + 1])

    assert pickle.loads(pickle.dumps(items)) == [1, 2]
