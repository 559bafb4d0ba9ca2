"""When ranks are found to report out of step, and when they are left alone."""

from __future__ import annotations

import itertools

import pytest

from holdfast.core.run.rank_agreement import RankAgreement

# A report is the letter of the line that makes it: a capital saves, a small one does not.
Reports = dict[int, str]


def first_disagreement(reports: Reports, order: str = "") -> tuple[int, str] | None:
    """Play the reports of each rank, in the order of ranks given; the rest rank by rank in turns.

    A rank returns after its last report. What all ranks that run have made is forgotten.
    """
    agreement = RankAgreement(reports)
    made = dict.fromkeys(reports, 0)
    running = set(reports)
    turns = itertools.chain(map(int, order), itertools.cycle(sorted(reports)))
    while running:
        rank = next(turns)
        if rank not in running:
            continue
        if made[rank] == len(reports[rank]):
            running.discard(rank)
            agreement.returned(rank)
        else:
            letter = reports[rank][made[rank]]
            made[rank] += 1
            metrics = {"epoch": reports[rank][: made[rank]].count(letter)}
            line = f"/lab/train.py:{ord(letter.lower()) - ord('a') + 1}"
            agreement.reported(rank, made[rank], metrics, saves=letter.isupper(), line=line)
        for index in range(1, max(made.values()) + 1):
            why = agreement.disagreement(index)
            if why is not None:
                return index, why
        agreement.forget(min((made[rank] for rank in running), default=0))
    return None


@pytest.mark.parametrize(
    "reports",
    [
        {0: "SSS", 1: "SSS"},
        {0: "SSS", 1: "mmm"},
        {0: "mmSmmS", 1: "mmSmmS"},
        {0: "SxSxS", 1: "mmm"},  # who never saves reports as it likes
        {0: "SSS", 1: "mmmmmmm"},
        {0: "SSSS", 1: "m"},  # and returns when it likes
        {0: "SSS", 1: ""},
        {0: "SSSm", 1: "SSS"},  # metrics after the last checkpoint say nothing about it
        {0: "Sm", 1: "Smmmmmm"},
        {0: "mmmm", 1: "m"},
        {0: "SSSS", 1: "sssS"},  # one line; in the end all save
        {0: "AAAF", 1: "bbbF"},  # two lines, and a third one in the end
        {0: "ASSS", 1: "SSSS"},  # different lines, and always all save
        {0: "S", 1: "S", 2: "m"},
    ],
    ids=str,
)  # fmt: skip
def test_a_healthy_group_is_left_alone_in_any_order(reports: Reports) -> None:
    ahead = ["", *(str(rank) * 9 for rank in reports)]

    disagreements = [first_disagreement(reports, order) for order in ahead]

    assert disagreements == [None] * len(ahead)


@pytest.mark.parametrize(
    ("reports", "at"),
    [
        ({0: "SxSxSx", 1: "SSS"}, 2),  # rank 0 reports an extra
        ({0: "SSS", 1: "SxSxSx"}, 2),
        ({0: "SSxS", 1: "SSS"}, 3),
        ({0: "xSSS", 1: "SSS"}, 2),  # before the first: who saves late has been there less often
        ({0: "mmSmmS", 1: "mxmSmmS"}, 4),
        ({0: "SSS", 1: "SS"}, 3),  # one skips a report
        ({0: "SSSS", 1: "S"}, 2),
        ({0: "mmmxS", 1: "mmmS"}, 5),  # all save only once
        ({0: "SSSS", 1: "SSSS", 2: "SSxS"}, 3),
        ({0: "SSS", 1: "SmS"}, 2),  # every rank that saves, saves whenever others do
    ],
    ids=str,
)
def test_ranks_out_of_step_are_found_in_any_order(reports: Reports, at: int) -> None:
    ahead = ["", *(str(rank) * 9 for rank in reports)]

    disagreements = [first_disagreement(reports, order) for order in ahead]

    assert [
        None if disagreement is None else disagreement[0] for disagreement in disagreements
    ] == [at] * len(ahead)


SILENT = """\
ranks are not in step: the checkpoint of report 2 would mix steps
  rank 1 saves (train.py:19, epoch=2)
  rank 0, which saved at report 1, does not (train.py:24, epoch=1)"""
GONE = """\
ranks are not in step: the checkpoint of report 3 would mix steps
  rank 0 saves (train.py:19, epoch=3)
  ranks 1-2, which saved at report 1, have returned after report 2\
 (rank 1 at train.py:19, epoch=2)"""
LATE = """\
ranks are not in step: the checkpoint of report 2 would mix steps
  rank 1 saves (train.py:19, epoch=2)
  rank 0 saves for the first time (train.py:19, epoch=1), and has reported from that line once;\
 rank 1 twice"""


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ({0: "SxS", 1: "SS", 2: "mm"}, SILENT),
        ({0: "SSS", 1: "SS", 2: "SS"}, GONE),
        ({0: "xS", 1: "SS", 2: "mm"}, LATE),
    ],
    ids=["silent", "gone", "late"],
)
def test_a_disagreement_names_ranks_reports_lines_and_steps(reports: Reports, message: str) -> None:
    disagreement = first_disagreement(reports, order="111222")

    assert disagreement is not None
    assert disagreement[1] == message


def test_one_found_long_before_all_ranks_have_come() -> None:
    """A third rank that waits for the first two in a collective would never come."""
    agreement = RankAgreement([0, 1, 2])
    for rank in (0, 1, 2):
        agreement.reported(rank, 1, {}, saves=True, line="/lab/train.py:19")
    agreement.reported(0, 2, {}, saves=False, line="/lab/train.py:24")
    agreement.reported(1, 2, {}, saves=True, line="/lab/train.py:19")

    assert agreement.disagreement(2) is not None
    assert agreement.disagreement(1) is None
