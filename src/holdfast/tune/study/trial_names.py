"""What trials and their folders are called."""

from __future__ import annotations

import itertools
import time

from holdfast import settings
from holdfast.core.names import NAME_BYTES_MAX, broken_name_rule, cut_name, safe_name, shown
from holdfast.core.study.machine import Study
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError
from holdfast.tune.search.generator import Proposal
from holdfast.tune.study.spec import StudySpec


class Namer:
    """Gives every trial a name and a folder of its own.

    No two trials of a study have the same folder: either the id of the trial is in its name, or it
    was chosen by the user and the study remembers it. Names are cut, never an id.

    The same trial gets the same folder. A driver that is killed before it is written down that a
    trial was added may have made its folder, and the next one adds that trial again; so the day in
    the name is that of the study.
    """

    def __init__(self, spec: StudySpec, study: Study, created: float) -> None:
        self._spec, self._study = spec, study
        self._day = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(created))
        self._longest = settings.longest_trial_name()

    @property
    def is_chosen(self) -> bool:
        """Whether it is the user who says what folders are called."""
        config = self._spec.tune_config
        return not (config.trial_name_creator is None and config.trial_dirname_creator is None)

    def names_of(self, proposal: Proposal) -> tuple[str | None, str]:
        """Return a trial's name, None for the usual one, and its folder."""
        config = self._spec.tune_config
        if not self.is_chosen:
            return None, self.usual_folder(proposal)
        trial = Trial(
            proposal.trial_id,
            number=proposal.number,
            config=proposal.config,
            trainable_name=self._spec.trainable.name,
            evaluated_params=proposal.evaluated_params,
            experiment_tag=proposal.experiment_tag,
        )
        if config.trial_name_creator is not None:
            trial.custom_name = _valid(str(config.trial_name_creator(trial)))
        if config.trial_dirname_creator is None:
            folder = self._folder_of(str(trial), proposal)
        else:
            folder = _folder_said(str(config.trial_dirname_creator(trial)))
        return trial.custom_name, self._free(folder, proposal.trial_id)

    def usual_folder(self, proposal: Proposal) -> str:
        """Return the folder of a trial if nobody says another name for it."""
        own = safe_name(f"{self._spec.trainable.name}_{proposal.trial_id}")
        folder = self._folder_of(own, proposal)
        if not folder.startswith(f"{own}_"):
            folder = _with(folder, proposal.trial_id)
        return self._free(folder, proposal.trial_id)

    def _folder_of(self, name: str, proposal: Proposal) -> str:
        long = safe_name(f"{name}_{proposal.experiment_tag}")[: self._longest]
        return f"{cut_name(long, NAME_BYTES_MAX - len(self._day) - 1)}_{self._day}"

    def _free(self, folder: str, trial_id: str) -> str:
        """Return `folder`, or if some trial has it, one like it with the trial's id."""
        taken, free = self._study.folders, folder
        for number in itertools.count(1):
            if free not in taken:
                break
            free = _with(folder, trial_id if number == 1 else f"{trial_id}_{number}")
        return free


def _with(folder: str, suffix: str) -> str:
    return f"{cut_name(folder, NAME_BYTES_MAX - len(suffix) - 1)}_{suffix}"


def _valid(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"trial_name_creator returned {shown(name)}, which is not valid Unicode",
            hint="a name of letters, digits and - _ . =",
        ) from None
    return name


def _folder_said(folder: str) -> str:
    """Return the folder that the user's function says, cut if it is long; raise if it is none."""
    rule = broken_name_rule(folder, bytes_max=None)
    if folder.startswith("."):
        rule = "it begins with a dot"
    if rule is not None:
        raise ConfigError(
            f"trial_dirname_creator returned {shown(folder)}, which is not the name of a folder:"
            f" {rule}",
            hint="a name without a slash, and not beginning with a dot",
        )
    return cut_name(folder, NAME_BYTES_MAX).rstrip()
