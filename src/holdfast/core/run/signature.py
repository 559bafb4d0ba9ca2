"""The signature of a loss: by it a run notices that a loss repeats itself; and as a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.core.run.outcomes import KIND_NAMES, Blame, Raised, WorkerExit

_SIGNATURE = re.compile(r"(?s)(?P<blame>\w+): (?P<what>.*) after checkpoint (?P<number>None|\d+)")


def likeness(error: str) -> str:
    """Return an error's text without what differs each time: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", error)


def likeness_of(exits: Iterable[WorkerExit]) -> str:
    """Return what a lost group looks like: the errors raised, or the kinds of ends."""
    ends = list(exits)
    errors = sorted({likeness(ended.error) for ended in ends if isinstance(ended, Raised)})
    return "; ".join(errors) or ", ".join(sorted({type(ended).__name__ for ended in ends}))


def signature_of(blamed: Blame, what: str, checkpoint: int | None) -> str:
    """Return the signature of a loss that looks like `what`, after the checkpoint before it."""
    return f"{blamed}: {what} after checkpoint {checkpoint}"


def in_words(signature: str) -> str:
    """Return a signature as one line for people; one of another making is returned as it is."""
    parts = _SIGNATURE.fullmatch(signature)
    if parts is None or parts["blame"] not in [*Blame]:
        return " ".join(signature.split())
    blamed, what = Blame(parts["blame"]), " ".join(parts["what"].split())
    how = blamed.sentence
    if blamed is Blame.CODE:
        how = f"{how} {what}"
    elif blamed is Blame.START:
        how = f"{how}: {what}"
    elif not KIND_NAMES.issuperset(what.split(", ")):
        how = f"{how}, and others raised {what}"
    number = parts["number"]
    when = "before a checkpoint was saved" if number == "None" else f"after checkpoint {number}"
    return f"{how}, {when}"
