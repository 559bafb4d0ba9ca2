from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from holdfast.api.config import RunConfig
from holdfast.control.record.identity import RUN_KEY
from holdfast.control.record.open_run import open_run
from holdfast.errors import CannotResume, RunMissing
from holdfast.storage.base import Store
from holdfast.storage.local.store import LocalStore
from holdfast.train.resume_policy import check_resume_policy, settle_name

Policy = Literal["auto", "must", "never"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "run")


def make_run(store: Store) -> None:
    open_run(store, name="run", beats=False).close()


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_new_run_may_begin_unless_there_must_be_one(resume: Policy, store: Store) -> None:
    check_resume_policy(RunConfig("run", resume=resume), store)


@pytest.mark.parametrize("resume", ["auto", "must"])
def test_a_run_may_be_carried_on_with_unless_there_must_be_none(
    resume: Policy, store: Store
) -> None:
    make_run(store)

    check_resume_policy(RunConfig("run", resume=resume), store)


def test_a_run_that_must_be_there_and_is_not_is_missed(store: Store, tmp_path: Path) -> None:
    with pytest.raises(RunMissing, match="resume='must'") as refused:
        check_resume_policy(RunConfig("run", resume="must"), store)

    assert store.url in str(refused.value)
    assert refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_must_not_be_there_is_left_as_it_is(store: Store, tmp_path: Path) -> None:
    make_run(store)
    before = everything(tmp_path)

    with pytest.raises(CannotResume, match="resume='never'") as refused:
        check_resume_policy(RunConfig("run", resume="never"), store)

    assert store.url in str(refused.value)
    assert refused.value.hint
    assert everything(tmp_path) == before


def test_a_run_that_has_lost_its_identity_is_still_a_run(store: Store) -> None:
    make_run(store)
    store.delete(RUN_KEY)

    check_resume_policy(RunConfig("run", resume="must"), store)
    with pytest.raises(CannotResume, match="already"):
        check_resume_policy(RunConfig("run", resume="never"), store)


def test_a_run_without_a_name_cannot_be_carried_on_with(store: Store) -> None:
    with pytest.raises(RunMissing, match="has no name") as refused:
        settle_name(RunConfig(resume="must", storage_path=store.url))

    assert "name=" in str(refused.value.hint)
