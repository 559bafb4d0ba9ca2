"""What trials and their folders are called."""

from __future__ import annotations

import re
import time

from holdfast import settings
from holdfast.core.study import Study
from holdfast.core.trial import Trial
from holdfast.errors import ConfigError
from holdfast.tune.search.generator import Proposal
from holdfast.tune.study_spec import StudySpec

_UNSAFE = re.compile(r'[/()<>:"|?*\\\s]')


class Namer:
    """Gives every trial a name and a folder of its own.

    The same trial gets the same folder. A driver that is killed before it is written down that a
    trial was added may have made its folder, and the next one adds that trial again; so the day in
    the name is that of the study.
    """

    def __init__(self, spec: StudySpec, study: Study, created: float) -> None:
        self._spec, self._study = spec, study
        self._day = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(created))

    def names_of(self, proposal: Proposal) -> tuple[str | None, str]:
        """Return a trial's name, None for the usual one, and its folder."""
        config = self._spec.tune_config
        if config.trial_name_creator is None and config.trial_dirname_creator is None:
            return None, self.usual_folder(proposal)
        trial = Trial(
            proposal.trial_id,
            number=proposal.number,
            config=proposal.config,
            trainable_name=self._spec.trainable.name,
            evaluated_params=proposal.evaluated_params,
            experiment_tag=proposal.experiment_tag,
        )
        name = None if config.trial_name_creator is None else str(config.trial_name_creator(trial))
        trial.custom_name = name
        if config.trial_dirname_creator is None:
            return name, self._folder_of(str(trial), proposal)
        folder = str(config.trial_dirname_creator(trial))
        if "/" in folder or not folder or folder.startswith("."):
            raise ConfigError(
                f"trial_dirname_creator returned {folder!r}, which is not the name of a folder",
                hint="a name without a slash, and not beginning with a dot",
            )
        taken = {one.folder for one in (self._study.trials | self._study.finished).values()}
        return name, f"{folder}_{proposal.trial_id}" if folder in taken else folder

    def usual_folder(self, proposal: Proposal) -> str:
        """Return the folder of a trial if nobody says another name for it."""
        return self._folder_of(f"{self._spec.trainable.name}_{proposal.trial_id}", proposal)

    def _folder_of(self, name: str, proposal: Proposal) -> str:
        most = settings.longest_trial_name()
        long = f"{name[:most]}_{proposal.experiment_tag}"
        return _UNSAFE.sub("_", f"{long[:most]}_{self._day}")
