"""How a launch of a study ends, for people and for whoever started the process."""

from __future__ import annotations

from holdfast.control.study.controller import StudyController
from holdfast.control.study.plan import Resumption
from holdfast.core.quantities import counted
from holdfast.core.study.trial import Status
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.study.launch import Launch

RESUMABLE = 75  # the exit code that tells a scheduler to start the same command again


class Preempted(SystemExit):
    """This driver had to go, and the study can be carried on elsewhere; exits with 75."""

    def __init__(self, url: str) -> None:
        super().__init__(RESUMABLE)
        self.url = url


def what_goes_on(launch: Launch, controller: StudyController) -> str | None:
    """Return the call that does what is left to do, None if nothing is."""
    if controller.is_stopped:
        return launch.restore_call()
    failed = launch.study.counts.get(Status.ERROR, 0)
    return launch.restore_call(errored=True) if failed else None


def extension_plan(
    results: ResultGrid, how: Resumption, num_samples: int | None, stop: object
) -> str:
    """Return what an extended study will do, in a few lines."""
    trials = counted(len(results), "trial")
    lines = [f"This study has {trials}, of which {results.num_errors} failed."]
    if stop is not None:
        lines.append(f"  go on    {results.num_terminated} finished, until {stop!r}")
    else:
        lines.append(f"  kept     {results.num_terminated} finished")
    if results.num_errors:
        fate = "resuming" if how.errored else "not tried again"
        if how.errored_from_scratch:
            fate = "starting over"
        lines.append(f"  failed   {results.num_errors}, {fate}")
    if num_samples is not None:
        more = counted(num_samples, "more sample")
        lines.append(f"  new      {more}, {how.num_samples} in total")
    return "\n".join(lines)
