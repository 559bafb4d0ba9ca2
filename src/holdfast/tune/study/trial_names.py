"""Names of trials and of their folders."""

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

    No two trials of a study have the same folder: either the id of the trial is in its name, or the
    user chose it and the study remembers it. Long names are cut, but never an id.

    The same trial gets the same folder: a driver can be killed after it has made the folder of a
    trial and before the journal has the trial, and the next driver adds the trial again. So the
    time in the name is that of the study.
    """

    def __init__(self, spec: StudySpec, study: Study, created: float) -> None:
        self._spec, self._study = spec, study
        self._time = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(created))
        self._longest = settings.longest_trial_name()

    @property
    def is_chosen(self) -> bool:
        """Whether functions of the user name the folders."""
        config = self._spec.tune_config
        return not (config.trial_name_creator is None and config.trial_dirname_creator is None)

    def names_of(self, proposal: Proposal) -> tuple[str | None, str]:
        """Return a trial's name, None for the default one, and its folder."""
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
            trial.custom_name = _valid_name(str(config.trial_name_creator(trial)))
        if config.trial_dirname_creator is None:
            folder = self._folder_of(str(trial), proposal)
        else:
            folder = _valid_folder(str(config.trial_dirname_creator(trial)))
        return trial.custom_name, self._free(folder, proposal.trial_id)

    def usual_folder(self, proposal: Proposal) -> str:
        """Return the folder that a trial has by default."""
        name = safe_name(f"{self._spec.trainable.name}_{proposal.trial_id}")
        folder = self._folder_of(name, proposal)
        if not folder.startswith(f"{name}_"):
            folder = _with_suffix(folder, proposal.trial_id)
        return self._free(folder, proposal.trial_id)

    def _folder_of(self, name: str, proposal: Proposal) -> str:
        long = safe_name(f"{name}_{proposal.experiment_tag}")[: self._longest]
        return f"{cut_name(long, NAME_BYTES_MAX - len(self._time) - 1)}_{self._time}"

    def _free(self, folder: str, trial_id: str) -> str:
        """Return `folder`, with the trial's id added if another trial has that folder."""
        taken, free = self._study.folders, folder
        for number in itertools.count(1):
            if free not in taken:
                break
            free = _with_suffix(folder, trial_id if number == 1 else f"{trial_id}_{number}")
        return free


def _with_suffix(folder: str, suffix: str) -> str:
    return f"{cut_name(folder, NAME_BYTES_MAX - len(suffix) - 1)}_{suffix}"


def _valid_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"trial_name_creator returned {shown(name)}, which is not valid Unicode",
            hint="a name of letters, digits and - _ . =",
        ) from None
    return name


def _valid_folder(folder: str) -> str:
    """Return a folder name of the user's function, cut if it is long; raise if it is invalid."""
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
