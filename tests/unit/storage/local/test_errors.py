"""How failed file operations become store errors: never damage, and only sometimes retried."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import Damaged, ObjectMissing, StoreBusy, StoreDenied, StoreError
from holdfast.storage.local.disk import PosixDisk
from holdfast.storage.local.errors import store_error
from holdfast.storage.local.store import TEMPORARY, LocalStore
from holdfast.testing.faults import ALLOW, ReadTappedDisk, Refuse, Step, Verdict

LOOKS = ("read", "look at", "list", "reach")
CHANGES = ("write", "sync", "append to", "delete", "rename", "make")


def error_for(code: int, verb: str) -> StoreError:
    return store_error(OSError(code, os.strerror(code)), verb, "/run/a", "a")


@pytest.mark.parametrize("verb", LOOKS)
@pytest.mark.parametrize(
    "code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get
)
def test_a_look_that_failed_is_worth_another_try(code: int, verb: str) -> None:
    error = error_for(code, verb)

    assert type(error) is StoreBusy
    assert error.hint


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_that_failed_with_a_broken_disk_is_not(verb: str) -> None:
    """After a sync that failed, another one may claim to have done it."""
    assert type(error_for(errno.EIO, verb)) is StoreError


@pytest.mark.parametrize("verb", [*LOOKS, *CHANGES])
def test_no_errno_is_damage(verb: str) -> None:
    for code in errno.errorcode:
        assert not isinstance(error_for(code, verb), Damaged)


def test_what_is_not_there_is_told_from_what_must_not_be_read() -> None:
    assert type(error_for(errno.ENOENT, "read")) is ObjectMissing
    assert type(error_for(errno.EACCES, "read")) is StoreDenied


class Failing:
    """Refuses every look at a temporary file."""

    def judge(self, step: Step) -> Verdict:
        is_litter = step.verb == "stat" and "half" in step.path
        return Refuse(OSError(errno.EIO, "a disk that is reset")) if is_litter else ALLOW


def test_litter_that_cannot_be_looked_at_is_an_error_of_the_store(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), ReadTappedDisk(PosixDisk(), Failing()))
    (tmp_path / f".half{TEMPORARY}").touch()

    with pytest.raises(StoreBusy):
        list(store.litter())
