"""A study at rest: everything that it has become, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.study.folder_names import FolderNames
from holdfast.core.study.trial import Status

if TYPE_CHECKING:
    from holdfast.core.study.machine import Study


def state_of(study: Study) -> dict[str, Any]:
    """Return everything that a study has become, as plain data."""
    return {
        "trials": [trial.to_data() for trial in study.trials.values()],
        "finished": [trial.to_data() for trial in study.finished.values()],
        "counts": {str(status): count for status, count in study.counts.items()},
        "made": study.made,
        "is_search_over": study.is_search_over,
        "stopping": study.stopping,
        "archives": [list(one) for one in study.archives],
        "folders": study.folders.to_data(),
        "rooms": study.room.nodes,
        "last_resources": [dict(one) for one in study.last_resources],
        "judges": study.judges.get_state(),
    }


def become(study: Study, state: Mapping[str, Any]) -> None:
    """Make a study what `state_of` told of it."""
    trials, finished = state["trials"], state["finished"]
    study.trials = {data["trial_id"]: study.trial_type.from_data(data) for data in trials}
    study.finished = {data["trial_id"]: study.trial_type.from_data(data) for data in finished}
    study.counts = {Status(status): count for status, count in state["counts"].items()}
    study.made, study.is_search_over = state["made"], state["is_search_over"]
    study.stopping = state["stopping"]
    study.archives = [(key, count) for key, count in state["archives"]]
    study.folders = FolderNames(state.get("folders", ""))
    study.room.become(state["rooms"])
    study.last_resources = tuple(state["last_resources"])
    study.judges.set_state(state["judges"])
