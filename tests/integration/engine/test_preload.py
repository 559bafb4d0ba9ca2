"""What a zygote imports ahead works in the workers it forks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.engine.base import WorkerSpec
from holdfast.engine.local.engine import LocalEngine
from holdfast.engine.local.zygote_line import SAFE_TO_PRELOAD
from holdfast.testing.suites.engine import ENTRY, ends, log_of, reports, start
from holdfast.wire import Assigned
from tests.conformance.engine_host import EngineHost

SUMS = {"numpy": 54_000_000.0, "torch": 54_000_000.0, "pandas": 50_000.0, "pyarrow": 50_000.0}


@pytest.mark.slow
@pytest.mark.parametrize("module", SAFE_TO_PRELOAD)
def test_a_module_that_is_imported_ahead_computes_in_every_worker(
    module: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = LocalEngine(ENTRY, [module], start="spawn")
    try:
        with caplog.at_level(logging.WARNING):
            start(engine, tmp_path, f"module={module} compute", f"module={module} compute")
            told = reports(engine, 4)

        assert [one["loaded"] for one in told if "loaded" in one] == [True, True]
        sums = [one for one in told if "loaded" not in one]
        assert [one["sum" if module == "numpy" else module] for one in sums] == [SUMS[module]] * 2
        assert caplog.messages == []  # of threads that a fork would not survive
    finally:
        engine.close()


@pytest.mark.slow
def test_torch_that_is_imported_ahead_uses_the_threads_that_the_worker_is_given(
    tmp_path: Path,
) -> None:
    engine = LocalEngine(ENTRY, ["torch"], start="spawn")
    try:
        for group, count in enumerate((1, 3)):
            spec = WorkerSpec(
                rank=0,
                node="node-0",
                log=str(tmp_path / "log"),
                first=Assigned(b"draw"),
                environment={"OMP_NUM_THREADS": str(count)},
            )
            engine.start_group(group, [spec])

            assert reports(engine, 1)[0]["threads"] == count
            ends(engine, 1)
    finally:
        engine.close()


def test_what_the_driver_has_not_imported_is_not_imported_ahead(
    host: EngineHost, tmp_path: Path
) -> None:
    host.execute("import numpy, colorsys")
    host.new("spawn")
    start(host, tmp_path, "module=numpy module=pandas module=colorsys")

    assert [one["loaded"] for one in reports(host, 3)] == [True, False, False]


def test_a_module_that_cannot_be_imported_is_for_the_worker_to_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty_module.py").write_text("raise RuntimeError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    engine = LocalEngine(ENTRY, ["faulty_module", "no_such_module", "colorsys"], start="spawn")
    try:
        start(engine, tmp_path, "module=colorsys")

        assert reports(engine, 1) == [{"loaded": True}]
        ends(engine, 1)
    finally:
        engine.close()


def test_a_zygote_with_threads_is_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "threaded_module.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    engine = LocalEngine(ENTRY, ["threaded_module"], start="spawn")
    try:
        start(engine, tmp_path, "")
        ends(engine, 1)

        assert "was forked from a process with 2 threads" in caplog.text
    finally:
        engine.close()


def test_what_a_module_changes_when_it_is_imported_ahead_is_put_right_for_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meddling_module.py").write_text(
        "import faulthandler, io, signal, sys\n"
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "sys.stdout, sys.stderr = io.StringIO(), io.StringIO()\n"
        "faulthandler.disable()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    engine = LocalEngine(ENTRY, ["meddling_module"], start="spawn")
    try:
        start(engine, tmp_path, "module=meddling_module signals print=hello signal=11")

        assert reports(engine, 2) == [{"loaded": True}, {"odd": [], "blocked": []}]
        ends(engine, 1)
        said = log_of(tmp_path, 0).read_text()
        assert said.startswith("hello\nFatal Python error: Segmentation fault")
    finally:
        engine.close()
