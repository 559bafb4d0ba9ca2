"""A forked child never hangs in a store: it works, or an error says at once why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from holdfast.errors import StoreBusy, StoreForked
from holdfast.storage.locate import open_store
from holdfast.storage.retry import RetryPolicy
from tests.patience import PATIENCE_S

AT_ONCE = RetryPolicy(deadline_s=0.0, tries_min=1)
NOBODY = "s3://lab?endpoint_override=http://127.0.0.1:1&access_key=a&secret_key=b"


def in_a_fork(work: Callable[[], str], timeout_s: int = int(PATIENCE_S)) -> str:
    """Return what `work` returned in a forked child, or the signal that ended it."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads; that is the point
        pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler in Python would never run
        signal.alarm(timeout_s)
        try:
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    _, status = os.waitpid(pid, 0)
    return output or f"ended by signal {os.WTERMSIG(status)}"


def test_an_object_store_used_before_a_fork_is_refused_in_the_child() -> None:
    store = open_store(NOBODY, retry=AT_ONCE)
    with pytest.raises(StoreBusy):  # no server listens there, but now the client's runtime is up
        store.get("a")

    def use(path: str) -> Callable[[], str]:
        def work() -> str:
            try:
                (store if path == "the same" else open_store(path)).get("a")
            except StoreForked as error:
                return str(error)
            return "it went through"

        return work

    for path in ("the same", NOBODY, NOBODY.replace("lab", "other")):
        output = in_a_fork(use(path))
        assert "is a fork of it" in output
        assert "Try: start workers with the spawn or forkserver method" in output


def test_an_object_store_first_used_after_a_fork_works_there() -> None:
    """In a new process, whose parent has not used one."""
    program = (
        "from tests.unit.storage.test_fork import AT_ONCE, NOBODY, in_a_fork\n"
        "from holdfast.storage.locate import open_store\n"
        "store = open_store(NOBODY, retry=AT_ONCE)\n"
        "def work():\n"
        "    try: store.get('a')\n"
        "    except Exception as error: return type(error).__name__\n"
        "print(in_a_fork(work))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "StoreBusy\n"


def test_a_filesystem_opened_before_a_fork_is_refused_in_the_child() -> None:
    store = open_store("/forked", fsspec.filesystem("memory"))
    store.put("a", b"1")

    def work() -> str:
        try:
            store.get("a")
        except StoreForked as error:
            return str(error)
        return "it went through"

    assert "is a fork of it" in in_a_fork(work)


def test_a_local_store_works_in_a_fork(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("a", b"from the parent")

    def work() -> str:
        store.put("b", b"from the child")
        return store.get("a").data.decode()

    assert in_a_fork(work) == "from the parent"
    assert store.get("b").data == b"from the child"
