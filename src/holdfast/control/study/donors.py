"""Checkpoints that trials take over from each other: verified, and newest first, like their own."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.checkpoint.manifests import read_manifests
from holdfast.checkpoint.verification import verify_checkpoint
from holdfast.control.record.checkpoints import must_be_there
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.study.trial import Donor
from holdfast.storage import locate
from holdfast.storage.base import Store

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"(\d+)$")


class Donation(NamedTuple):
    """What a trial can take over.

    Attributes:
        directory: The checkpoint, None if none is whole.
        result: What its trial had reported when it saved that; {} if it is the one it was to be.
        problems: What is damaged about the one that it was to be, [] if it is that one.
    """

    directory: str | None
    result: Mapping[str, Any]
    problems: list[str]


def find_whole(study: Store, run_id: str, donor: Donor) -> Donation:
    """Return the checkpoint that a trial was given, or else the newest whole one before it.

    Raises `StoreError` if one cannot be read: it may be whole.
    """
    store = locate.child(study, donor.folder)
    manifest, problems = verify_checkpoint(store, donor.directory)
    if not problems:
        return Donation(donor.directory, {}, [])
    must_be_there(study)
    number = _number_of(donor.directory) if manifest is None else manifest.number
    others = [
        other
        for directory, other in read_manifests(store, {donor.directory})
        if isinstance(other, Manifest) and other.run_id == run_id
        if number is None or other.number < number
    ]
    for other in sorted(others, key=lambda other: -other.number):
        if not verify_checkpoint(store, other.directory).problems:
            return Donation(other.directory, other.metrics, problems)
    return Donation(None, {}, problems)


def _number_of(directory: str) -> int | None:
    """Return the number in the name of a checkpoint, None if it has a name of the user's own."""
    found = _NUMBER.search(directory)
    return None if found is None else int(found[1])
