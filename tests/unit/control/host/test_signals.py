"""Signals of the driver: real ones, in processes of their own where they could end the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from holdfast.control.host.signals import Interrupt, Interrupts
from tests.patience import PATIENCE_S

TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def nothing() -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def nothing_is_left_set() -> Iterator[None]:
    before = [signal.getsignal(number) for number in TAKEN]
    yield
    assert [signal.getsignal(number) for number in TAKEN] == before


def script(code: str, ignores: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """Start a process that runs `code`; what it says, `heard` and `end` return."""

    def begin() -> None:
        for number in ignores:
            signal.signal(number, signal.SIG_IGN)

    preamble = """
        import faulthandler, os, select, signal, sys, threading
        from holdfast.control.host.signals import Interrupt, Interrupts
        def say(*words): print(*words, flush=True)
        def kill(number): os.kill(os.getpid(), number)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(preamble) + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=begin if ignores else None,  # noqa: PLW1509  # it sets a signal, nothing else
    )


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.strip(), err


# ---------------------------------------------------------------------- what is taken


def test_the_first_ctrl_c_asks_to_stop_and_the_second_interrupts_on_the_spot() -> None:
    woken: list[int] = []
    with Interrupts(lambda: woken.append(1)) as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert woken == [1]
        assert interrupts.take() == [Interrupt.STOP]
        assert interrupts.take() == []
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.take() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_request_to_end_is_a_preemption_however_often_it_comes(number: int) -> None:
    with Interrupts(nothing) as interrupts:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.take() == [Interrupt.PREEMPTED]
        signal.raise_signal(signal.SIGUSR1)
        assert interrupts.take() == []


def test_both_kinds_come_in_their_order() -> None:
    with Interrupts(nothing) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

        assert interrupts.take() == [Interrupt.PREEMPTED, Interrupt.STOP]


def test_what_the_loop_did_not_take_can_be_taken_after_the_block() -> None:
    with Interrupts(nothing) as interrupts:
        signal.raise_signal(signal.SIGTERM)

    assert interrupts.take() == [Interrupt.PREEMPTED]


def test_a_block_knows_nothing_of_the_one_before() -> None:
    for _ in range(2):
        with Interrupts(nothing) as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert interrupts.take() == [Interrupt.STOP]


def test_a_loop_that_waits_is_woken() -> None:
    process = script("""
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        with Interrupts(lambda: os.write(writable, b"x")) as interrupts:
            say("ready")
            select.select([readable], [], [], 60)
            say(*interrupts.take())
            select.select([], [], [], 60)
    """)
    assert heard(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert heard(process) == "Interrupt.STOP"
    process.send_signal(signal.SIGINT)

    code, _, err = end(process)
    assert code == -signal.SIGINT, "as a Python that was interrupted ends"
    assert "KeyboardInterrupt" in err


# ---------------------------------------------------------------------- what is put back


@pytest.mark.parametrize("number", TAKEN)
@pytest.mark.parametrize("kind", ["function", "default", "ignored"])
@pytest.mark.parametrize("fails", [False, True])
def test_what_was_set_before_is_set_after(number: int, kind: str, fails: bool) -> None:
    def of_the_user(number: int, frame: FrameType | None) -> None: ...

    kinds: dict[str, Callable[..., None] | signal.Handlers] = {
        "function": of_the_user,
        "default": signal.SIG_DFL,
        "ignored": signal.SIG_IGN,
    }
    before = signal.signal(number, kinds[kind])
    try:
        with (
            pytest.raises(ZeroDivisionError) if fails else Interrupts(nothing),
            Interrupts(nothing),
        ):
            if kind == "ignored":
                assert signal.getsignal(number) is signal.SIG_IGN
            else:
                assert signal.getsignal(number) is not kinds[kind]
            if fails:
                raise ZeroDivisionError
        after = signal.getsignal(number)
    finally:
        signal.signal(number, before)

    assert after is kinds[kind]


def test_a_signal_after_the_block_does_what_it_did_before() -> None:
    process = script("""
        with Interrupts(lambda: None) as interrupts:
            kill(signal.SIGTERM)
            say(*interrupts.take())
        kill(signal.SIGTERM)
        say("survived")
    """)

    code, out, _ = end(process)
    assert (code, out) == (-signal.SIGTERM, "Interrupt.PREEMPTED")


@pytest.mark.parametrize("number", TAKEN)
def test_a_signal_that_was_ignored_when_the_process_began_is_ignored_throughout(
    number: int,
) -> None:
    process = script(
        f"""
        with Interrupts(lambda: None) as interrupts:
            kill({int(number)}); kill({int(number)})
            say(interrupts.take())
        kill({int(number)})
        say("alive", signal.getsignal({int(number)}) is signal.SIG_IGN)
        """,
        ignores=(number,),
    )

    assert end(process) == (0, "[]\nalive True", "")


def test_a_signal_that_native_code_has_taken_is_left_to_it() -> None:
    """Many scripts print their stacks on SIGUSR1; that must work during a run and after it."""
    process = script("""
        faulthandler.register(signal.SIGUSR1)
        with Interrupts(lambda: None) as interrupts:
            kill(signal.SIGUSR1)
            say(interrupts.take())
            kill(signal.SIGTERM)
            say(*interrupts.take())
        kill(signal.SIGUSR1)
        say("alive")
    """)

    code, out, err = end(process)
    assert (code, out) == (0, "[]\nInterrupt.PREEMPTED\nalive")
    assert err.count("most recent call first") == 2


def test_no_signal_at_any_moment_leaves_something_behind() -> None:
    """Blocks are entered and left while a thread sends a signal at some moment of each round.

    What the user had set raises, at whatever instruction it is called.
    """
    process = script("""
        import itertools, random, time
        class Sent(Exception): pass
        is_inside, count, wrong = False, 0, []
        def raises(number, frame):
            global count
            count += 1
            if is_inside: raise Sent
        taken = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        for number in taken: signal.signal(number, raises)
        sys.setswitchinterval(1e-6)
        begin, sent = threading.Semaphore(0), threading.Semaphore(0)
        def send():
            for number in itertools.cycle([(2, 2), (15,), (10,)]):
                begin.acquire()
                until = time.perf_counter() + random.random() * 2e-4
                while time.perf_counter() < until: pass
                for one in number: kill(one)
                sent.release()
        threading.Thread(target=send, daemon=True).start()
        def enter_and_leave():
            global is_inside
            try:
                is_inside = True
                with Interrupts(lambda: None):
                    pass
                is_inside = False
            except (Sent, KeyboardInterrupt):
                is_inside = False
        for turn in range(4000):
            before = count
            begin.release()
            enter_and_leave()
            sent.acquire()
            if any(signal.getsignal(number) is not raises for number in taken):
                wrong.append(turn)
                for number in taken: signal.signal(number, raises)
            if turn % 3:
                # The kernel may take its time to interrupt this thread.
                until = time.perf_counter() + 60
                while count == before and time.perf_counter() < until: pass
                if count != before + 1: wrong.append("lost")
        say(wrong)
    """)

    assert end(process) == (0, "[]", "")


def test_a_signal_that_comes_while_the_block_is_entered_is_taken_in_it() -> None:
    sent: list[int] = []

    def send_once_the_first_is_set(frame: FrameType, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") == "signal" and not sent:
            sent.append(1)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(send_once_the_first_is_set)
    try:
        with Interrupts(nothing) as interrupts:
            taken = interrupts.take()
    finally:
        sys.setprofile(None)

    assert (sent, taken) == ([1], [Interrupt.STOP])


# ---------------------------------------------------------------------- what the user had set


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_what_the_user_had_set_is_called_too_after_ours(number: int) -> None:
    order: list[object] = []
    before = signal.signal(number, lambda number, frame: order.append((number, frame is not None)))
    try:
        with Interrupts(lambda: order.append("woken")) as interrupts:
            signal.raise_signal(number)
            signal.raise_signal(number)
            assert interrupts.take() == [Interrupt.PREEMPTED]
    finally:
        signal.signal(number, before)

    assert order == ["woken", (number, True), (number, True)]


def test_what_the_user_had_set_may_raise_and_ours_has_been_noted() -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(7)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit), Interrupts(nothing) as interrupts:
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)

    assert interrupts.take() == [Interrupt.PREEMPTED]


def test_what_the_user_had_set_for_ctrl_c_is_called_with_the_second() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
    try:
        with Interrupts(nothing) as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert (interrupts.take(), called) == ([Interrupt.STOP], [])
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert called == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------- where it does nothing


def test_outside_the_main_thread_it_does_nothing() -> None:
    before = [signal.getsignal(number) for number in TAKEN]
    seen: list[object] = []

    def drive() -> None:
        with Interrupts(nothing) as interrupts:
            seen.extend(signal.getsignal(number) for number in TAKEN)
            seen.append(interrupts.take())

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()

    assert seen == [*before, []]


def test_outside_the_main_interpreter_it_does_nothing() -> None:
    process = script("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        code = (
            "from holdfast.control.host.signals import Interrupts\\n"
            "with Interrupts(lambda: None) as interrupts:\\n"
            "    print(interrupts.take(), flush=True)\\n"
        )
        interpreters.run_string(interpreters.create(), code)
    """)

    assert end(process) == (0, "[]", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_forked_process_has_what_was_set_before_the_block(number: int) -> None:
    process = script(f"""
        with Interrupts(lambda: None) as interrupts:
            child = os.fork()
            if child == 0:
                kill({int(number)})
                os._exit(0)
            _, status = os.waitpid(child, 0)
            say(os.waitstatus_to_exitcode(status), interrupts.take())
    """)

    assert end(process) == (0, f"{-number} []", "")
