"""The state of a study as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.study.folder_names import FolderNames
from holdfast.core.study.trial import Status

if TYPE_CHECKING:
    from holdfast.core.study.machine import Study


def state_of(study: Study) -> dict[str, Any]:
    """Return the whole state of a study."""
    return {
        "trials": [trial.to_data() for trial in study.trials.values()],
        "finished": [trial.to_data() for trial in study.finished.values()],
        "counts": {str(status): count for status, count in study.counts.items()},
        "made": study.made,
        "is_search_over": study.is_search_over,
        "stopping": study.stopping,
        "archives": [list(part) for part in study.archives],
        "folders": study.folders.to_data(),
        "rooms": study.room.nodes,
        "last_resources": [dict(bundle) for bundle in study.last_resources],
        "judges": study.judges.get_state(),
    }


def become(study: Study, state: Mapping[str, Any]) -> None:
    """Give a study a state that `state_of` returned."""
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
