"""Names that are made up for runs without one, and claimed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import RUN_KEY, read_identity
from holdfast.control.record.new_names import claim
from holdfast.core.names import broken_name_rule
from holdfast.errors import Conflict, StoreError
from holdfast.storage.base import ALWAYS, Condition
from holdfast.storage.memory import MemoryStore
from holdfast.storage.prefix import child


def claimed(store: MemoryStore, wanted: str = "train") -> str:
    return claim(store, wanted, kind="tune", clock=SYSTEM_CLOCK)


def test_a_name_is_claimed_once() -> None:
    store = MemoryStore()

    names = [claimed(store) for _ in range(20)]

    assert names[0] == "train" and len(set(names)) == 20
    assert all(re.fullmatch(r"train_[0-9a-f]{6}", name) for name in names[1:])
    assert [read_identity(child(store, name)).name for name in names] == names


def test_a_claim_whose_answer_was_lost_is_not_taken_for_somebody_elses() -> None:
    class Forgetful(MemoryStore):
        """Answers a put that it has done as one that came second, as a put that was repeated is."""

        def put(self, key: str, data: bytes, condition: Condition = ALWAYS) -> str:
            version = super().put(key, data, condition)
            if key.endswith(RUN_KEY):
                raise Conflict(f"{key} is there")
            return version

    assert claimed(Forgetful()) == "train"


def test_where_nobody_can_tell_who_was_first_names_are_told_apart_by_chance() -> None:
    class Unfenced(MemoryStore):
        fences = False

    store = Unfenced()

    assert re.fullmatch(r"train_[0-9a-f]{6}", claimed(store))


@pytest.mark.parametrize("wanted", ["a/b", "n" * 300, "訓" * 100, "nul\0", "..", "\ud800"])
def test_what_is_claimed_can_be_a_name(wanted: str) -> None:
    store = MemoryStore()

    names = {claimed(store, wanted), claimed(store, wanted)}

    assert len(names) == 2 and not any(map(broken_name_rule, names))


def test_storage_that_cannot_be_asked_is_no_name_that_is_taken() -> None:
    class Broken(MemoryStore):
        def put(self, key: str, data: bytes, condition: Any = ALWAYS) -> str:
            raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        claimed(Broken())
