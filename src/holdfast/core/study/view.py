"""What schedulers see of a study, and what they may ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.core.study.trial import Trial

TrialT = TypeVar("TrialT", bound=Trial)


class StudyView(Protocol[TrialT]):
    """A study, as its scheduler sees it.

    Requests are carried out once the scheduler has returned, in the order in which they were made.
    After a crash the same calls are made again in the same order, so a scheduler must depend on
    nothing but its own state, its calls, and what it reads here.
    """

    def get_trials(self) -> Sequence[TrialT]:
        """Return the trials that are not over, in the order in which they were made.

        Trials that are over are forgotten sooner or later: keep what you need of them.
        """
        ...

    def get_trial(self, trial_id: str) -> TrialT | None:
        """Return a trial that is not over by its id."""
        ...

    def has_resources_for_trial(self, trial: TrialT) -> bool:
        """Whether a trial could start right now."""
        ...

    def free_resources(self) -> Mapping[str, float]:
        """Return what is not reserved, over all nodes."""
        ...

    def stop_trial(self, trial: TrialT) -> None:
        """End a trial as finished, whatever it does now; for others than the one being judged."""
        ...

    def pause_trial(self, trial: TrialT, *, should_checkpoint: bool = True) -> None:
        """Take a running trial's process away, after a save if wanted; for others likewise."""
        ...

    def save_trial(self, trial: TrialT) -> None:
        """Have a trial save itself before it goes on; also for the one being judged."""
        ...

    def exploit(self, trial: TrialT, donor: TrialT, config: dict[str, Any], tag: str) -> bool:
        """Have a trial go on from the newest checkpoint of another, with another config and tag.

        Both move together or not at all. Returns False, and nothing happens, if the donor has no
        checkpoint. The trial is paused without a save, and runs again as soon as it is chosen.
        """
        ...

    def resize(self, trial: TrialT, resources: Sequence[Mapping[str, float]]) -> None:
        """Have a trial go on with other resources: it is paused, with a save, and started anew."""
        ...
