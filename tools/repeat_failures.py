"""Run pytest, and each test that failed once more, alone; what passes then is called flaky.

    python tools/repeat_failures.py -n 2 tests/unit

Takes the arguments of pytest. Prints `FLAKY: ...` for each test that failed beside others and
passes alone: a defect of the test or of what it tests, to be dealt with before anything else. Ends
with 0 only if every test that was chosen has passed once. The last line counts as pytest's does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

import pytest

REPEATED_MAX = 50  # more is no flakiness, and would take hours


class Outcomes:
    """Notes how each test came out: its category in pytest's own summary."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}
        self.seed: int | None = None
        self.folder = "."
        self.is_complete = True

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._config = session.config
        self.folder = str(session.config.rootpath)
        self.seed = session.config.getoption("randomly_seed", None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        status = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        if status[0] and self.by_test.get(report.nodeid) not in {"failed", "error"}:
            self.by_test[report.nodeid] = status[0]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_complete = self.is_complete and not report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # Fewer have come out than were chosen: -x, or workers that died until none was left.
        if len(self.by_test) < session.testscollected:
            self.is_complete = False

    def failed(self) -> list[str]:
        return [test for test, status in self.by_test.items() if status in {"failed", "error"}]

    def passes_alone(self, test: str) -> bool:
        """Run one test in a process of its own, with the same seed: luck is no reason to pass."""
        seed = [] if self.seed is None else [f"--randomly-seed={self.seed}"]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *seed, test]
        return (
            subprocess.run(command, check=False, cwd=self.folder).returncode == pytest.ExitCode.OK
        )


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    outcomes = Outcomes()
    code = int(pytest.main(arguments, plugins=[outcomes]))
    failed = outcomes.failed()
    if code != pytest.ExitCode.TESTS_FAILED or not failed:
        return code
    if len(failed) > REPEATED_MAX:
        print(f"{len(failed)} tests failed: too many to repeat, and no flakiness")
        return code
    print(f"\nOnce more, alone: {len(failed)}", flush=True)
    flaky = [test for test in failed if outcomes.passes_alone(test)]
    outcomes.by_test.update(dict.fromkeys(flaky, "passed"))
    for test in outcomes.failed():
        print(f"FAILED TWICE: {test}")
    for test in flaky:
        print(f"FLAKY: {test}")
    if not outcomes.is_complete:
        print("not every test was run")
    print(closing_line(Counter(outcomes.by_test.values()), len(flaky), time.monotonic() - began))
    return 0 if outcomes.is_complete and not outcomes.failed() else code


def closing_line(counts: Counter[str], flaky: int, took_s: float) -> str:
    """Return what pytest would have said, had the tests that are flaky passed at once."""
    order = ["failed", "passed", "skipped", "xfailed", "xpassed", "error"]
    said = [f"{counts[status]} {status}" for status in order if counts[status]]
    if flaky:
        said.append(f"{flaky} flaky")
    return f" {', '.join(said)} in {took_s:.2f}s ".center(80, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
