"""What the process of a trial is told, and when."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.commit import Slot, deliver
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.study.commit_pool import CommitPool
from holdfast.control.study.trial_checkpoints import TrialCheckpoints
from holdfast.control.study.trial_process import TrialProcess, acknowledge
from holdfast.core.study.events import StudyEvent, TrialCheckpointChanged
from holdfast.core.study.trial import Trial, Verdict
from holdfast.errors import LeaseLost
from holdfast.storage.locate import open_store
from holdfast.wire import Committed, Delivered, Judged, Reported, Slotted


class Log:
    """Writes down what happens, and in the same list what is said, in the order of both."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.seen: list[Any] = []
        self.is_replaced = self.has_lost_records = False

    def happen(self, event: StudyEvent) -> None:
        if isinstance(event, TrialCheckpointChanged):
            self.seen.append(event.what)
            self.trial.checkpoints.apply(event.what, event.facts)
        else:
            self.seen.append(event.kind)

    def settle(self) -> None:
        self.seen.append("durable")

    def check(self) -> None:
        self.seen.append("checked")
        if self.is_replaced:
            raise LeaseLost("somebody else drives the study")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_checkpoint_is_acknowledged_by_whoever_still_drives_the_study(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    trial, store = Trial("t"), open_store(tmp_path / "trial")
    log, commits = Log(trial), CommitPool(lambda: None)
    process = TrialProcess(
        trial,
        1,
        TrialCheckpoints(trial, store, "run", 1, log, SYSTEM_CLOCK),
        node="node",
        log="",
        is_reused=False,
        tell=log.seen.append,
        scribe=log,
        commits=commits,
        on_result=lambda *_: None,
        on_saved=lambda *_: None,
    )
    process.hear(Reported(1, {"loss": 1.0}, saves=True))
    [slotted] = (one for one in log.seen if isinstance(one, Slotted))
    slot = Slot(slotted.number, slotted.directory, slotted.epoch, slotted.attempt)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "weights").write_bytes(b"w")
    part = deliver(store, slot, 0, str(tmp_path / "made"))
    files = [(entry.path, entry.size, entry.digest) for entry in part.files]
    process.hear(Delivered(1, files, list(part.folders)))
    log.seen.clear()
    commits.finish()
    log.is_replaced = is_replaced
    with pytest.raises(LeaseLost) if is_replaced else contextlib.nullcontext():
        acknowledge([process], log)
    commits.close()

    if is_replaced:
        assert log.seen == ["checkpoint_committed", "checked"], "nobody is told"
        return
    assert log.seen == [
        "checkpoint_committed",
        "checked",
        Committed(1, slotted.directory),
        "trial_result",
        Judged(1, Verdict.CONTINUE, save=False),
    ]
