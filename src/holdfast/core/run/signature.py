"""The signature of a loss, by which a run recognises one that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.run.outcomes import KIND_NAMES, Blame, Raised, WorkerExit

_SIGNATURE = re.compile(r"(?s)(?P<blame>\w+): (?P<looks>.*) after checkpoint (?P<number>None|\d+)")


def likeness(error: str) -> str:
    """Return an error's text without what differs from time to time: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", error)


def likeness_of(exits: Iterable[WorkerExit]) -> str:
    """Return what a lost group looks like: the errors raised, or the kinds of ends."""
    ends = list(exits)
    errors = sorted({likeness(ended.error) for ended in ends if isinstance(ended, Raised)})
    return "; ".join(errors) or ", ".join(sorted({type(ended).__name__ for ended in ends}))


def signature_of(blamed: Blame, looks: str, checkpoint: int | None) -> str:
    """Return the signature of a loss with this likeness, after this checkpoint."""
    return f"{blamed}: {looks} after checkpoint {checkpoint}"


def in_words(signature: str) -> str:
    """Return a signature as one line for people; any other text is returned on one line."""
    parts = _SIGNATURE.fullmatch(signature)
    if parts is None or parts["blame"] not in [*Blame]:
        return " ".join(signature.split())
    blamed, looks = Blame(parts["blame"]), " ".join(parts["looks"].split())
    sentence = blamed.sentence
    if blamed is Blame.CODE:
        sentence += f" {looks}"
    elif blamed is Blame.START:
        sentence += f": {looks}"
    elif not KIND_NAMES.issuperset(looks.split(", ")):
        sentence += f", and others raised {looks}"
    number = parts["number"]
    when = "before a checkpoint was saved" if number == "None" else f"after checkpoint {number}"
    return f"{sentence}, {when}"
