"""The failure card of a lost group: what must be on it, and that it fits one screen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.failure.card import (
    COLUMNS_MAX,
    LINES_MAX,
    Exits,
    GaveUp,
    Loss,
    Next,
    Retry,
    card,
    culprit,
    headline,
    to_fix,
)
from holdfast.core.failure.stacks import OURS, crash_report, first_to_stop
from holdfast.core.run.outcomes import Died, Evicted, Finished, Hung, Raised, WorkerExit
from tests.unit.core.failure.test_traces import TRACE, deep_trace

LOADER = "DataLoader worker (pid 4121) is killed by signal:"


def log_of(rank: int) -> str:
    return f"/runs/bert-7/logs/attempt-2/rank-{rank}.log"


def loss(*exits: WorkerExit, **changes: Any) -> Loss:
    given: dict[str, Any] = {
        "run": "bert-7",
        "attempt": 2,
        "exits": exits,
        "ranks": 4,
        "then": Retry(3, left=1, limit=3),
        "log_of": log_of,
        "saved_step": 1200,
        "reached_step": 1203,
    }
    return Loss(**{**given, **changes})


def raised(rank: int, error: str = "ValueError: loss is nan", trace: str = TRACE) -> Raised:
    return Raised(rank, "node-0", error, trace)


def stopped(*ranks: int) -> list[Evicted]:
    return [Evicted(rank, "node-0") for rank in ranks]


# ---------------------------------------------------------------------- the whole screen


def test_the_screen_says_who_failed_where_what_is_lost_and_what_is_next() -> None:
    assert (
        card(loss(raised(1), *stopped(0, 2, 3)))
        == """\
── attempt 2 of run 'bert-7' lost: rank 1 of 4 raised ValueError ───────────────
  Traceback (most recent call last):
    File "/code/train.py", line 42, in train
      raise ValueError("loss is nan")
  ValueError: loss is nan

  rank 1       node-0: raised ValueError: loss is nan at train.py:42
  ranks 0,2-3  stopped after the failure
  log          /runs/bert-7/logs/attempt-2/rank-1.log
  lost         3 steps (step 1200 was saved, 1203 was reached)
  next         attempt 3 begins now from step 1200; 1 of 3 retries left"""
    )


def test_a_process_that_died_is_told_by_its_signal_its_last_lines_and_a_hint() -> None:
    last = ("epoch 1:  10%\repoch 1:  50%", "\x1b[31mUnexpected bus error\x1b[0m")
    died = Died(1, "node-0", 4121, signal=7, last_lines=last)

    shown = card(loss(died, *stopped(0, 2, 3), then=Retry(3, 12.0)))
    assert (
        shown
        == """\
── attempt 2 of run 'bert-7' lost: rank 1 of 4 was killed by SIGBUS ────────────
  rank 1 printed last:
    epoch 1:  50%
    Unexpected bus error

  rank 1       node-0, pid 4121: was killed by SIGBUS
  ranks 0,2-3  stopped after the failure
  log          /runs/bert-7/logs/attempt-2/rank-1.log
  try          usually shared memory is full: see `df /dev/shm`; give a container more (docker run
               --shm-size=8g, or --ipc=host), or use fewer data-loader workers
  lost         3 steps (step 1200 was saved, 1203 was reached)
  next         attempt 3 begins in 12 s from step 1200"""
    )


def test_a_hang_names_the_rank_that_stopped_first_where_it_stood_and_all_stacks() -> None:
    stacks = """\
Thread 0x00007f3796484 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f3796ff7b80 (most recent call first):
  File "/venv/site-packages/torch/distributed/c10d.py", line 7 in all_reduce
  File "/code/train.py", line 8 in train
"""
    hung = [Hung(rank, "node-0", 1900.0, stacks) for rank in range(4)]

    shown = card(loss(*hung, first_stopped=2, stacks_file="/runs/bert-7/logs/stacks.txt"))
    assert "all 4 ranks made no progress for 32 min" in shown
    assert (
        """\
  rank 2 stopped first, here (most recent call first):
    File "/venv/site-packages/torch/distributed/c10d.py", line 7 in all_reduce
    File "/code/train.py", line 8 in train
"""
        in shown
    )
    assert "log      /runs/bert-7/logs/attempt-2/rank-2.log" in shown
    assert "stacks   /runs/bert-7/logs/stacks.txt" in shown
    assert "hang_timeout_s" in shown


def stack(*frames: str) -> str:
    """Return what faulthandler writes of a worker whose main thread has these frames."""
    own = f'File "{OURS}/worker/entry.py", line 200 in _call'
    main = "\n".join(f"  {frame}" for frame in (*frames, own))
    return f"""\
Thread 0x00007f3796484 (most recent call first):
  File "{OURS}/worker/conversation.py", line 120 in _listen

Thread 0x00007f3796ff7b80 (most recent call first):
{main}
"""


LIBRARY = "/venv/site-packages"
IN_BARRIER = stack(
    f'File "{LIBRARY}/torch/distributed/distributed_c10d.py", line 4790 in barrier',
    f'File "{LIBRARY}/torch/distributed/c10d_logger.py", line 83 in wrapper',
    'File "/code/train.py", line 9 in train',
)
IN_OUR_BARRIER = stack(
    'File "/usr/lib/python3.11/threading.py", line 331 in wait',
    f'File "{OURS}/worker/conversation.py", line 109 in answer',
    f'File "{OURS}/worker/context.py", line 150 in meet',
    f'File "{OURS}/train/collective.py", line 17 in barrier',
    'File "/code/train.py", line 9 in train',
)
ELSEWHERE = stack(
    f'File "{LIBRARY}/requests/api.py", line 59 in get', 'File "/code/train.py", line 7 in load'
)


@pytest.mark.parametrize("in_barrier", [IN_BARRIER, IN_OUR_BARRIER], ids=["torch", "ours"])
@pytest.mark.parametrize("culprit_rank", [0, 2])
def test_a_hang_is_blamed_on_who_is_outside_a_collective_and_every_rank_has_a_line(
    in_barrier: str, culprit_rank: int
) -> None:
    stacks = {rank: ELSEWHERE if rank == culprit_rank else in_barrier for rank in range(4)}
    hung = [Hung(rank, "node-0", 5.0, stacks[rank]) for rank in range(4)]

    shown = card(loss(*hung, first_stopped=first_to_stop([1, 0, 2, 3], stacks)))

    assert f"rank {culprit_rank} stopped first, here" in shown
    assert 'File "/code/train.py", line 7 in load' in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for rank in range(4):
        where = " at train.py:7" if rank == culprit_rank else ", waits in barrier at train.py:9"
        assert f"rank {rank} node-0: made no progress for 5 s{where}" in lines
    assert headline(hung) == f"all 4 ranks made no progress for 5 s, rank {culprit_rank} first"
    assert culprit(hung) == hung[culprit_rank]


def test_of_many_ranks_that_hang_those_at_one_place_share_a_line() -> None:
    hung = [Hung(rank, "n", 5.0, ELSEWHERE if rank == 40 else IN_BARRIER) for rank in range(64)]

    shown = card(loss(*hung, ranks=64, first_stopped=40))

    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "rank 40 n: made no progress for 5 s at train.py:7" in lines
    assert "ranks 0-39,41-63 n: made no progress for 5 s, wait in barrier at train.py:9" in lines


CRASH = f"""\
epoch 1
Fatal Python error: Segmentation fault

Thread 0x00007f37 (most recent call first):
  File "{OURS}/worker/conversation.py", line 120 in _listen
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f3796ff7b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/code/train.py", line 12 in load
  File "{OURS}/worker/entry.py", line 200 in _call
  File "{OURS}/worker/entry.py", line 100 in main
  File "/code/train.py", line 40 in <module>

Extension modules: numpy._core._multiarray_umath (total: 1)
"""


def test_the_screen_of_a_crash_shows_the_line_of_the_users_and_no_other_threads() -> None:
    report = tuple(crash_report(CRASH.splitlines()))
    died = Died(1, "node-0", 4121, signal=11, last_lines=report)

    shown = card(loss(died, ours=OURS))

    assert (
        """\
  rank 1 crashed here (most recent call first; Fatal Python error: Segmentation fault):
    File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
    File "/code/train.py", line 12 in load

  rank 1   node-0, pid 4121: was killed by SIGSEGV at train.py:12
"""
        in shown
    )
    assert "_listen" not in shown and "<module>" not in shown


def test_a_crash_in_a_thread_without_python_shows_the_main_thread() -> None:
    lines = CRASH.replace("Current thread", "Thread").splitlines()

    assert crash_report(lines)[2:4] == [
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "/code/train.py", line 12 in load',
    ]
    assert crash_report(["nothing", "of", "it"]) == []
    assert crash_report(["Fatal Python error: Aborted"]) == ["Fatal Python error: Aborted"]


@pytest.mark.parametrize(
    "error",
    [
        "KeyError: 'loss'",
        "ConfigError: metrics=3 is no dictionary",
        "RanksDisagree: ranks are not in step",
    ],
)
def test_after_a_bug_the_code_is_to_be_fixed_before_the_same_command_helps(error: str) -> None:
    gave_up = GaveUp("no failure is absorbed", "give the same command again")

    shown = card(loss(raised(0, error), then=gave_up))

    assert "try      fix the code at train.py:42; then resume from what is saved" in shown
    assert to_fix([raised(0, error)]) == "fix the code at train.py:42"


@pytest.mark.parametrize(
    "ended",
    [
        Died(0, "n", 7, signal=9),
        raised(0, "ConnectionError: the server is away"),
        raised(0, "RuntimeError: Connection reset by peer"),
        raised(0, "torch.OutOfMemoryError: CUDA out of memory. Tried"),
    ],
)
def test_what_may_pass_by_itself_is_no_bug(ended: WorkerExit) -> None:
    assert to_fix([ended]) is None


def test_a_lost_node_is_the_cause_and_errors_of_the_survivors_are_not() -> None:
    lost = [Died(rank, "node-1", 7, node_lost=True) for rank in (2, 3)]
    others = [raised(rank, "RuntimeError: Connection closed by peer") for rank in (0, 1)]

    shown = card(loss(*others, *lost))
    assert "ranks 2-3 of 4 were lost with node node-1" in shown.splitlines()[0]
    assert shown.index("ranks 2-3  were lost") < shown.index("ranks 0-1  node-0: raised")
    assert "Traceback" not in shown


def test_a_preemption_says_that_the_run_goes_on() -> None:
    shown = card(
        loss(
            Evicted(0, "node-0", preempted=True),
            Finished(1, "node-0"),
            ranks=2,
            then=Exits("this machine is taken away", "python train.py --name bert-7"),
        )
    )

    assert "rank 0 of 2 evicted: node node-0 is being taken away" in shown
    assert "rank 1   finished" in shown
    assert "this process ends: this machine is taken away; the run goes on from step 1200" in shown
    assert "  resume   python train.py --name bert-7" in shown


def test_workers_that_were_not_started_have_a_reason() -> None:
    shown = card(loss(not_started="4 workers need 2 GPUs each, and there are none"))

    assert "its workers were not started" in shown
    assert "  why      4 workers need 2 GPUs each, and there are none" in shown


def test_who_gave_up_says_why_and_how_to_go_on() -> None:
    then = GaveUp("3 of 3 retries are used", "python train.py --name bert-7")
    shown = card(loss(raised(0), *stopped(1, 2, 3), then=then))

    assert "nothing: 3 of 3 retries are used" in shown
    assert "python train.py --name bert-7" in shown


@pytest.mark.parametrize(
    ("saved", "reached", "words"),
    [
        (None, None, "nothing: no step was reported"),
        (None, 7, "everything up to step 7: nothing was saved"),
        (7, 7, "nothing: step 7 was saved, and none after it was reported"),
        (7, 3, "nothing: step 7 was saved, and none after it was reported"),
        (7, None, "nothing: no step was reported"),
        (7, 8, "1 step (step 7 was saved, 8 was reached)"),
        (7, 19, "12 steps (step 7 was saved, 19 was reached)"),
    ],
)
def test_what_is_lost_is_counted(saved: int | None, reached: int | None, words: str) -> None:
    assert words in card(loss(raised(0), saved_step=saved, reached_step=reached))


def test_the_same_failure_again_is_called_a_bug_and_the_first_time_is_not() -> None:
    assert "looks like a bug" not in card(loss(raised(0), repeats=1))
    assert "2 times in a row, at the same place" in card(loss(raised(0), repeats=2))
    assert "looks like a bug, not bad luck" in card(loss(raised(0), repeats=2))


@pytest.mark.parametrize(
    ("after_s", "when"),
    [
        (0.0, "now"),
        (0.4, "in 0.4 s"),
        (30.0, "in 30 s"),
        (600.0, "in 10 min"),
        (9000.0, "in 2.5 h"),
    ],
)
def test_when_the_next_attempt_begins_is_said(after_s: float, when: str) -> None:
    assert f"attempt 3 begins {when} from" in card(loss(raised(0), then=Retry(3, after_s)))


def test_a_run_without_a_checkpoint_begins_from_the_start() -> None:
    assert "begins now from the start" in card(loss(raised(0), saved_step=None))


# ---------------------------------------------------------------------- ranks that ended alike


def test_failures_that_differ_only_in_numbers_are_one() -> None:
    exits = [raised(rank, f"OSError: shard {rank} at 0x7f{rank}c is bad") for rank in range(4)]

    assert headline(exits) == "all 4 ranks raised OSError: shard 0 at 0x7f0c is bad"
    assert "ranks 0-3  node-0: raised OSError: shard 0 at 0x7f0c is bad" in card(loss(*exits))
    assert "(rank 0's words)" in card(loss(*exits))


def test_failures_with_the_same_words_are_not_said_to_be_one_ranks() -> None:
    assert "words" not in card(loss(*(raised(rank) for rank in range(4))))


def test_failures_with_other_words_are_told_apart() -> None:
    exits: list[WorkerExit] = [raised(0), raised(1, "KeyError: 'lr'"), *stopped(2, 3)]

    shown = card(loss(*exits))
    assert "rank 0     node-0: raised ValueError" in shown
    assert "rank 1     node-0: raised KeyError" in shown
    assert headline(exits) == "rank 0 of 4 raised ValueError: loss is nan; 1 other failed too"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:42",
        "torch.distributed.DistBackendError: NCCL error: remote process exited",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    ],
)
def test_an_error_that_only_follows_anothers_is_not_taken_for_the_cause(error: str) -> None:
    exits = [raised(0, error), raised(1, error), raised(2), raised(3, error)]

    assert culprit(exits) == raised(2)
    assert culprit(stopped(0, 1)) is None and culprit([]) is None
    assert headline(exits).startswith("rank 2 of 4 raised ValueError")
    assert headline([raised(0, error)]).startswith("rank 0 raised"), "if there is no other"


def test_a_process_that_its_library_aborted_follows_the_error_of_another() -> None:
    aborted, crashed = Died(0, "node-0", 7, signal=6), Died(0, "node-0", 7, signal=11)

    assert headline((aborted, raised(1))).startswith("rank 1 of 2 raised ValueError")
    assert headline((crashed, raised(1))).startswith("rank 0 of 2 was killed by SIGSEGV")


def test_ranks_that_died_alike_are_told_in_the_plural() -> None:
    died = [Died(rank, "node-0", 70 + rank, exit_code=3) for rank in range(2)]

    assert headline(died) == "all 2 ranks exited with code 3 before their function returned"
    killed = [Died(rank, "node-0", 70 + rank, signal=9) for rank in range(2)]
    assert headline(killed, ranks=4) == "ranks 0-1 of 4 were killed by SIGKILL"


def test_a_line_can_be_said_of_any_group() -> None:
    assert headline([]) == "no worker was started"
    assert headline([Finished(0, "n")]) == "rank 0 finished"
    assert headline(stopped(0, 1)) == "all 2 ranks stopped after the failure"
    assert headline([Hung(0, "n", 31.0, "")]) == "rank 0 made no progress for 31 s"
    evicted = [Evicted(rank, f"node-{rank}", preempted=True) for rank in range(2)]
    assert headline(evicted) == "all 2 ranks evicted: 2 nodes are being taken away"
    assert headline([Raised(0, "n", "", "")]) == "rank 0 raised an error without a name"


def test_many_scattered_ranks_are_counted_not_listed() -> None:
    exits = [raised(rank) if rank % 2 else Evicted(rank, "n") for rank in range(200)]

    assert headline(exits) == "100 ranks of 200 raised ValueError: loss is nan"


# ---------------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("ended", "hint"),
    [
        (Died(0, "n", 7, signal=9, out_of_memory=True), "fewer data-loader workers"),
        (Died(0, "n", 7, signal=9), "dmesg"),
        (Died(0, "n", 7, signal=11), "called from the first line"),
        (Died(0, "n", 7, signal=7), "/dev/shm"),
        (Died(0, "n", 7, signal=6), "printed why in the log"),
        (Died(0, "n", 7, signal=15), "a scheduler at its time limit"),
        (Died(0, "n", 7, exit_code=3), "os._exit(3)"),
        (Died(0, "n", 7, exit_code=0), "os._exit(0)"),
        (raised(0, "torch.OutOfMemoryError: CUDA out of memory. Tried"), "a smaller batch"),
        (raised(0, "OSError: [Errno 28] No space left on device"), "df -h"),
        (raised(0, "RuntimeError: unable to write to file </dev/shm/torch_1>"), "--shm-size"),
        (raised(0, "OSError: [Errno 24] Too many open files"), "ulimit -n"),
        (raised(0, f"RuntimeError: {LOADER} Killed."), "because memory ran out"),
        (raised(0, f"RuntimeError: {LOADER} Bus error. It is possible"), "--shm-size"),
    ],
)
def test_a_failure_of_a_known_kind_has_something_to_try(ended: WorkerExit, hint: str) -> None:
    shown = " ".join(card(loss(ended)).split())

    assert " try " in shown and hint in shown


@pytest.mark.parametrize(
    "ended", [raised(0), Died(0, "n", 7, signal=64), Died(0, "n", 7, node_lost=True)]
)
def test_a_failure_that_says_all_there_is_has_no_hint(ended: WorkerExit) -> None:
    assert "  try " not in card(loss(ended))


# ---------------------------------------------------------------------- it is one screen

texts = st.text(max_size=300) | st.sampled_from(
    ["x" * 500, "a\r\nb\rc", "\x1b[31mred\x1b[0m", "\n" * 50, "line\n" * 60, "\u2028\x85\x9b1m"]
)
nodes = st.sampled_from(["node-0", "node-1", "n" * 150])
traces = st.builds(
    lambda users, library, message: "\n".join(deep_trace(users, library, message)),
    st.integers(0, 30),
    st.integers(0, 30),
    texts,
)
ranks = st.integers(0, 300)
exits = st.lists(
    st.one_of(
        st.builds(Finished, ranks, nodes),
        st.builds(Raised, ranks, nodes, texts, traces | texts),
        st.builds(
            Died,
            ranks,
            nodes,
            st.integers(1, 99999),
            signal=st.sampled_from([6, 7, 9, 11, 64]),
            out_of_memory=st.booleans(),
            node_lost=st.booleans(),
            last_lines=st.lists(texts, max_size=30).map(tuple),
        ),
        st.builds(Died, ranks, nodes, st.integers(1, 99999), exit_code=st.integers(0, 255)),
        st.builds(Hung, ranks, nodes, st.floats(0, 1e6), traces | texts),
        st.builds(Evicted, ranks, nodes, preempted=st.booleans()),
    ),
    max_size=30,
    unique_by=lambda ended: ended.rank,
)
steps = st.none() | st.integers(0, 10**9)
nexts = st.one_of(
    st.builds(Retry, st.integers(2, 10**6), st.floats(0, 1e5), st.integers(0, 9), st.just(9)),
    st.builds(GaveUp, texts, st.just("python train.py")),
    st.builds(Exits, texts, st.just("python train.py")),
)


@settings(max_examples=300)
@given(exits, nexts, steps, steps, st.integers(1, 10**6), st.none() | ranks, st.none() | texts)
def test_whatever_happened_it_is_one_plain_screen(
    exits: list[WorkerExit],
    then: Next,
    saved: int | None,
    reached: int | None,
    repeats: int,
    first: int | None,
    why: str | None,
) -> None:
    shown = card(
        loss(
            *exits,
            ranks=max([len(exits), 1]),
            then=then,
            saved_step=saved,
            reached_step=reached,
            repeats=repeats,
            first_stopped=first,
            stacks_file="/runs/stacks.txt",
            ours="/venv/holdfast",
            not_started=why,
        )
    )

    lines = shown.split("\n")
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX
    assert all(line.isprintable() for line in lines), "control characters"
    assert "  lost " in shown and "  next " in shown, "what matters most is never pushed out"
    assert headline(exits).isprintable()


def test_of_a_frame_that_is_too_wide_the_file_and_the_line_are_kept() -> None:
    path = f"/{'long/' * 30}train.py"
    stacks = f'Thread 0x1 (most recent call first):\n  File "{path}", line 42 in compute_the_loss'
    shown = card(loss(Hung(0, "node-0", 9.0, stacks), ranks=1))

    assert 'long/train.py", line 42 in compute_the_loss' in shown
    assert path not in shown


def test_paths_and_commands_are_never_cut() -> None:
    command = "python train.py " + "--option=value " * 20
    path = "/" + "long-folder/" * 20 + "rank-0.log"
    shown = card(loss(raised(0), then=GaveUp("all used", command), log_of=lambda _: path))

    assert command.strip() in shown
    assert path in shown
