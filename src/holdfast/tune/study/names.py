"""Makes up names for studies without one, claims them, and finds such studies again."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from holdfast import settings
from holdfast.clock import SYSTEM_CLOCK
from holdfast.control.record.identity import read_identity
from holdfast.control.record.new_names import claim
from holdfast.core.names import NAME_BYTES_MAX, cut_name, safe_name
from holdfast.errors import CannotResume
from holdfast.storage.base import Store
from holdfast.storage.locate import open_store
from holdfast.storage.prefix import child
from holdfast.tune.study.spec import StudySpec
from holdfast.tune.study.stored_spec import has_study

_TRAINABLE_BYTES_MAX = NAME_BYTES_MAX - 40  # what follows is the time, and perhaps random digits
_TIME = r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(_[0-9a-f]+)?"


def name_for(trainable: str) -> tuple[str, bool]:
    """Return the name of a study without one, and whether it must be claimed.

    It is the trainable's name with the time. If the user has turned the time off, it is the
    trainable's name, which need not be claimed, as if the user had given it.
    """
    short = cut_name(safe_name(trainable), _TRAINABLE_BYTES_MAX)
    if not settings.dates_studies():
        return short, False
    return f"{short}_{time.strftime('%Y-%m-%d_%H-%M-%S')}", True


def with_claimed_name(spec: StudySpec) -> StudySpec:
    """Return a study whose name no other study has or gets; a given name stays as it is."""
    if not spec.has_made_up_name:
        return spec
    name = claim(_storage(spec), spec.name, kind="tune", clock=SYSTEM_CLOCK)
    return replace(spec, name=name, has_made_up_name=False)


def newest_unnamed(spec: StudySpec) -> StudySpec | None:
    """Return `spec` with the name of its trainable's newest unnamed study; None if there is none.

    A study that is called by the trainable's name alone is preferred.
    """
    storage = _storage(spec)
    name = cut_name(safe_name(spec.trainable.name), _TRAINABLE_BYTES_MAX)
    if not has_study(child(storage, name)):
        pattern = re.compile(re.escape(name) + _TIME)
        dated = (folder for folder in storage.folders() if pattern.fullmatch(folder))
        created = {
            folder: _created(study)
            for folder in dated
            if has_study(study := child(storage, folder))
        }
        if not created:
            return None
        name = max(created, key=lambda folder: (created[folder], folder))
    return replace(spec, name=name, has_made_up_name=False)


def _created(store: Store) -> float:
    """Return when the study in `store` was begun, 0 if that cannot be read."""
    try:
        return read_identity(store).created
    except CannotResume:
        return 0.0


def _storage(spec: StudySpec) -> Store:
    return open_store(spec.run_config.storage_path, spec.run_config.storage_filesystem)
