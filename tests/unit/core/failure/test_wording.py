"""Errors of libraries made short, and signatures as sentences."""

from __future__ import annotations

import pytest

from holdfast.core.failure.card import Loss, Retry, card
from holdfast.core.failure.hints import concise
from holdfast.core.failure.kinds import is_machine_failure
from holdfast.core.failure.stacks import above_worker_entry
from holdfast.core.run.budget import Budget
from holdfast.core.run.machine import DriverStarted, GroupEnded, GroupNotStarted, Run, advance
from holdfast.core.run.outcomes import Died, Evicted, Hung, Raised, WorkerExit
from holdfast.core.run.signature import in_words

# As torch 2.13 says it.
GLOO = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read"
    " error [127.0.0.1]:1748: Connection reset by peer. This is typically caused by a remote worker"
    " hanging or bugs in the application. Check the logs of the remote worker before reporting an"
    " error. GLHF!"
)
MESH = (
    "RuntimeError: Gloo connectFullMesh failed with"
    " [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed out connecting:"
    " SO_ERROR: Connection refused, remote=[127.0.0.1]:12708$0"
)


def shown(*exits: WorkerExit, repeats: int = 1) -> str:
    loss = Loss(
        run="a",
        attempt=2,
        exits=exits,
        ranks=len(exits),
        then=Retry(3),
        log_of=lambda rank: f"rank-{rank}.log",
        repeats=repeats,
        ours="/venv/holdfast",
    )
    return card(loss)


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (GLOO, "RuntimeError: Read error [127.0.0.1]:1748: Connection reset by peer"),
        (
            MESH,
            MESH.replace(
                "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] ", ""
            ),
        ),
        ("NotSaved: rank 1: MemoryError [HF220]", "NotSaved: rank 1: MemoryError [HF220]"),
        ("ValueError: no. Really", "ValueError: no. Really"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "BrokenPipeError: [Errno 32] Broken pipe"),
    ],
)
def test_of_an_error_that_follows_another_what_happened_is_kept(error: str, short: str) -> None:
    assert concise(error) == short


def test_the_card_shows_what_a_rank_says_whose_peer_is_gone() -> None:
    text = shown(Raised(0, "node-0", GLOO, ""), Died(1, "node-0", 7, signal=9))

    error = "RuntimeError: Read error [127.0.0.1]:1748: Connection reset by peer"
    assert f"  rank 0   node-0: raised {error}\n" in text


FULL = "StoreFull: cannot write /runs/a/b: Disk quota exceeded [HF405]"


@pytest.mark.parametrize(
    ("ended", "is_so"),
    [
        (Raised(0, "n", FULL, ""), True),
        (Raised(0, "n", "OSError: [Errno 28] No space left on device", ""), True),
        (Raised(0, "n", "NotSaved: rank 0: StoreFull: the store is full [HF220]", ""), True),
        (Died(0, "n", 7, signal=9, out_of_memory=True), True),
        (Raised(0, "n", "ValueError: loss is nan", ""), False),
        (Died(0, "n", 7, signal=11), False),
        (Hung(0, "n", 9.0, ""), False),
        (Evicted(0, "n"), False),
    ],
)
def test_what_repeats_itself_is_called_a_bug_only_if_it_is_about_the_code(
    ended: WorkerExit, *, is_so: bool
) -> None:
    text = " ".join(shown(ended, repeats=3).split())

    assert is_machine_failure(ended) is is_so
    assert ("3 times in a row" in text) and ("looks like a bug" in text) is not is_so
    assert ("will not go away by itself" in text) is is_so


# ---------------------------------------------------------------------- stacks

STACKS = """\
Thread 0x00007f3796484 (most recent call first):
  File "/venv/holdfast/worker/entry.py", line 120 in talk
  File "/usr/lib/python3.11/threading.py", line 331 in run

Current thread 0x00007f3796ff7b80 (most recent call first):
  File "/code/train.py", line 8 in train
  File "/venv/holdfast/worker/entry.py", line 90 in _work
  File "/venv/holdfast/engine/local/zygote.py", line 260 in serve
  File "/code/train.py", line 80 in <module>
"""


def test_what_stood_below_a_worker_when_it_was_forked_is_not_shown() -> None:
    text = shown(Hung(0, "node-0", 9.0, STACKS))

    assert above_worker_entry(STACKS, "/venv/holdfast").endswith('train.py", line 8 in train')
    assert "line 8 in train" in text
    assert "<module>" not in text and "frames of holdfast" not in text


@pytest.mark.parametrize("text", ["", "it was put to sleep (SIGSTOP)", STACKS[:-160]])
def test_stacks_without_a_worker_in_them_are_left_as_they_are(text: str) -> None:
    assert above_worker_entry(text, "/venv/holdfast") == text


# ---------------------------------------------------------------------- signatures


def after(*exits: WorkerExit) -> Run:
    run = advance(Run(), DriverStarted(Budget(failures=None))).run
    if exits:
        return advance(run, GroupEnded(1, exits)).run
    return advance(run, GroupNotStarted(1, "no memory")).run


@pytest.mark.parametrize(
    ("exits", "sentence"),
    [
        (
            [Raised(0, "n", "ValueError: loss\nis nan", "")],
            "its code raised ValueError: loss is nan",
        ),
        ([Died(0, "n", 7, signal=9), Evicted(1, "n")], "a process died"),
        (
            [Died(0, "n", 7, signal=9), Raised(1, "n", "EOFError", "")],
            "a process died, and others raised EOFError",
        ),
        ([Hung(0, "n", 9.0, "")], "it made no progress"),
        ([Died(0, "n", 7, node_lost=True)], "a node was lost"),
        ([Evicted(0, "n", preempted=True)], "its machines were taken away"),
        ([], "its workers could not be started: no memory"),
    ],
)
def test_the_signature_of_every_loss_is_a_sentence(exits: list[WorkerExit], sentence: str) -> None:
    signature = after(*exits).signature
    assert signature is not None

    assert in_words(signature) == f"{sentence}, before a checkpoint was saved"
    assert in_words(signature.replace("None", "12")) == f"{sentence}, after checkpoint 12"


def test_a_signature_of_another_making_is_shown_as_it_is() -> None:
    assert in_words("fate: of\n another kind") == "fate: of another kind"
