"""The signature of a loss, which a run is known by to repeat itself, as a sentence for people."""

from __future__ import annotations

import re

from holdfast.core.run.budget import Blame

_SIGNATURE = re.compile(r"(?s)(?P<blame>\w+): (?P<what>.*) after checkpoint (?P<number>None|\d+)")
_KINDS = re.compile(r"(Died|Hung|Evicted|Finished)(, (Died|Hung|Evicted|Finished))*")
_HOW = {
    Blame.PROCESS: "a process died",
    Blame.HANG: "it made no progress",
    Blame.NODE: "a node was lost",
    Blame.PREEMPTION: "its machines were taken away",
}


def in_words(signature: str) -> str:
    """Return what a signature says as one line; one of another making is returned as it is."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None or found["blame"] not in [*Blame]:
        return " ".join(signature.split())
    blamed, what = Blame(found["blame"]), " ".join(found["what"].split())
    match blamed:
        case Blame.CODE:
            how = f"its code raised {what}"
        case Blame.START:
            how = f"its workers could not be started: {what}"
        case _:
            how = _HOW[blamed]
            if not _KINDS.fullmatch(what):  # what the others said then
                how = f"{how}, and others raised {what}"
    number = found["number"]
    when = "before a checkpoint was saved" if number == "None" else f"after checkpoint {number}"
    return f"{how}, {when}"
