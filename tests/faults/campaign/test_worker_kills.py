"""Workers that die in every way at every moment, one death after the other in one run."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.control.run import grace
from holdfast.core.failure.card import headline
from holdfast.core.run.outcomes import Raised
from holdfast.errors import NotSaved
from holdfast.train import Checkpoint, WorkerGroupError, get_context, report
from tests.faults.campaign.conftest import STEPS, Campaign, wait_for_end
from tests.faults.campaign.deaths import SAID, WAYS, Death, campaign_of
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import folder_with, note
from tests.patience import PATIENCE_S, pause


def card_of(campaign: Campaign, attempt: int) -> str:
    """Return what the driver said of a lost attempt."""
    said = campaign.launches[-1].said()
    begins = f"── attempt {attempt} of run 'run' lost: "
    assert said.count(begins) == 1
    return said[said.index(begins) :].partition("\n── attempt")[0]


def is_told(card: str, words: str) -> bool:
    """Whether the title of a card has these words."""
    return words in card.splitlines()[0]


@pytest.mark.slow
@pytest.mark.req("T-001", "T-002", "T-003", "T-004", "T-005", "T-007", "T-010", "T-011", "T-012")
@pytest.mark.req("T-035", "T-036", "T-039", "T-043", "T-045", "T-046", "T-051", "T-055")
@pytest.mark.parametrize(
    "who",
    [
        pytest.param([(0,), (1,), (0, 1)], id="in turn"),
        pytest.param([(0,), (1,)], id="one rank", marks=pytest.mark.long),
        pytest.param([(0, 1)], id="all ranks", marks=pytest.mark.long),
    ],
)
def test_no_death_of_workers_changes_a_bit_of_what_a_run_comes_to(
    torch_run: Campaign, undisturbed: str, who: list[tuple[int, ...]]
) -> None:
    """Over thirty deaths, one in each attempt, and the last attempt comes to the end."""
    deaths = campaign_of(who)

    printed = torch_run.finish(steps=STEPS, deaths=[one.to_data() for one in deaths])

    assert printed["weights"] == undisturbed
    assert died_as_planned(torch_run, deaths)
    torch_run.must_be_whole(STEPS)


def died_as_planned(campaign: Campaign, deaths: list[Death]) -> bool:
    """Whether every death came, and the driver said what it was of."""
    planned = {
        (attempt, rank, death.way, death.moment)
        for attempt, death in enumerate(deaths, 1)
        for rank in death.ranks
    }
    noted = campaign.noted("dies")
    came = {(one["attempt"], one["rank"], one["way"], one["moment"]) for one in noted}
    assert planned == came
    for attempt, death in enumerate(deaths, 1):
        assert is_told(card_of(campaign, attempt), SAID[death.way]), death
    return len(noted) == len(planned)


# ---------------------------------------------------------------------- whom to blame

ECHO = "NotSaved: rank 1: MemoryError [HF220]"
# What is staged is removed once a rank has failed to save, perhaps under the hands of another.
SWEPT = "StoreError: cannot write /runs/a/.holdfast/staging/7-1-0/w.pt: No such file or directory"


@pytest.mark.parametrize("said", [ECHO, SWEPT])
def test_the_rank_that_could_not_save_is_told_first_and_not_those_who_waited_for_it(
    said: str,
) -> None:
    exits = [Raised(0, "node-0", said, ""), Raised(1, "node-0", "MemoryError", "")]

    assert headline(exits) == "rank 1 of 2 raised MemoryError; 1 other failed too"


def test_the_others_are_told_what_kept_a_rank_from_saving(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    notes = lab.notes

    class Unsavable(Checkpoint):
        @contextlib.contextmanager
        def as_directory(self) -> Iterator[str]:
            raise MemoryError
            yield ""

    def loop() -> None:
        rank = get_context().get_world_rank()
        with folder_with({"weights": ""}) as folder:
            kind = Unsavable if rank == 1 else Checkpoint
            try:
                report({}, checkpoint=kind(folder))
            except (MemoryError, NotSaved) as error:
                note(notes, what="raised", rank=rank, kind=type(error).__name__, text=str(error))

    lab.fit(loop, workers=2)

    told = {fact["rank"]: fact for fact in lab.noted("raised")}
    assert (told[0]["kind"], told[1]["kind"]) == ("NotSaved", "MemoryError")
    assert "rank 1: MemoryError" in told[0]["text"]


def test_a_rank_whose_peer_is_gone_is_not_taken_for_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is heard of first: a process that has used much memory takes its time to die."""
    monkeypatch.setattr(grace, "CAUSE_S", PATIENCE_S)
    monkeypatch.setattr(grace, "FINISH_SAVE_S", PATIENCE_S)
    lab = Lab(tmp_path)
    notes = lab.notes

    def loop() -> None:
        rank = get_context().get_world_rank()
        note(notes, what="began", rank=rank, pid=os.getpid())
        if rank == 0:
            raise RuntimeError("Connection closed by peer")
        while not lab.begun(rank=0):
            pause()
        wait_for_end(lab.begun(rank=0)[0]["pid"], PATIENCE_S)
        select.select([], [], [], 0.5)  # it is as good as dead, but not yet to the kernel
        WAYS["SIGSEGV"]()

    with pytest.raises(WorkerGroupError, match=r"^rank 1 .*was killed by SIGSEGV"):
        lab.fit(loop, workers=2)
