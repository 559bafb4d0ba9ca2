"""Names of studies that were given none, and how such a study is found again."""

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
    """Return the name of a study that was given none, and whether it is to be claimed first.

    It is the trainable's with the time; or without, if that is what the user has set, which is
    then as good as a name that was given.
    """
    short = cut_name(safe_name(trainable), _TRAINABLE_BYTES_MAX)
    if not settings.dates_studies():
        return short, False
    return f"{short}_{time.strftime('%Y-%m-%d_%H-%M-%S')}", True


def claimed(spec: StudySpec) -> StudySpec:
    """Return a study under a name that is its own from now on; one that was given stays."""
    if not spec.has_made_up_name:
        return spec
    name = claim(_storage(spec), spec.name, kind="tune", clock=SYSTEM_CLOCK)
    return replace(spec, name=name, has_made_up_name=False)


def newest_unnamed(spec: StudySpec) -> StudySpec | None:
    """Return a study under the name of the newest of its trainable; None if there is none.

    One that has the trainable's name alone comes first.
    """
    storage = _storage(spec)
    short = cut_name(safe_name(spec.trainable.name), _TRAINABLE_BYTES_MAX)
    if not has_study(child(storage, short)):
        pattern = re.compile(re.escape(short) + _TIME)
        dated = [name for name in storage.folders() if pattern.fullmatch(name)]
        begun = {name: _created(child(storage, name)) for name in dated}
        known = [name for name, created in begun.items() if created is not None]
        if not known:
            return None
        short = max(known, key=lambda name: (begun[name] or 0.0, name))
    return replace(spec, name=short, has_made_up_name=False)


def _created(store: Store) -> float | None:
    """Return when the study in `store` was begun, 0 if nobody knows, None if there is none."""
    if not has_study(store):
        return None
    try:
        return read_identity(store).created
    except CannotResume:
        return 0.0


def _storage(spec: StudySpec) -> Store:
    return open_store(spec.run_config.storage_path, spec.run_config.storage_filesystem)
