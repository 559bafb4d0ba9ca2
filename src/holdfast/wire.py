"""What a driver and its workers say to each other.

Both ends are of one release, made by one driver, so there is no version in it. Pickled functions
and values may be inside; they cross a socket and never rest on a disk.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from holdfast.core.study.trial import Verdict

# ---------------------------------------------------------------------- from a worker


class Began(msgspec.Struct, tag=True, frozen=True):
    """All is prepared: the training function is called now."""


class Reported(msgspec.Struct, tag=True, frozen=True):
    """The `index`-th report of this rank; `saves` says that a checkpoint part follows.

    `validation` says that the checkpoint is to be validated, and how, as far as it is not usual.
    `line` is where user code reported, as `/lab/train.py:31`; only told where there are others.
    `placed` is the folder of the run that the part is in already, if `directory` is not where it is
    to go.
    """

    index: int
    metrics: dict[str, Any]
    saves: bool = False
    directory: str | None = None
    validation: dict[str, Any] | None = None
    line: str = ""
    placed: str | None = None


class Delivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint that belongs to report `index` is at rest."""

    index: int
    files: list[tuple[str, int, str]]
    folders: list[str]


class Placed(msgspec.Struct, tag=True, frozen=True):
    """The user's own code has put this rank's part into the folder `directory` of the run."""

    index: int
    directory: str


class NotDelivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint could not be stored; the error is raised in user code."""

    index: int
    error: str


class Resent(msgspec.Struct, tag=True, frozen=True):
    """The files that were asked for again are at rest."""

    index: int


class Meeting(msgspec.Struct, tag=True, frozen=True):
    """This rank waits for all others at meeting `index`, and may bring data for all."""

    index: int
    data: bytes | None = None


class Asked(msgspec.Struct, tag=True, frozen=True):
    """This rank wants a list of the checkpoints there are, its own `reports` included.

    `validated` says to wait until none of them is waiting to be validated. Threads may ask at the
    same time; `instead_of` is the question that is not to be answered any more, 0 for none.
    """

    index: int
    reports: int
    validated: bool
    instead_of: int = 0


class Warned(msgspec.Struct, tag=True, frozen=True):
    """Somebody has told this process by a signal that it will be ended."""

    signal: int


class Waiting(msgspec.Struct, tag=True, frozen=True):
    """This process waits for something that others have, and is not hung."""


class SawNotice(msgspec.Struct, tag=True, frozen=True):
    """User code has been told that machines will be taken away."""


class LastWords(msgspec.Struct, tag=True, frozen=True):
    """The training function is done: it returned `value`, or raised it; pickled, if it can be."""

    value: bytes | None = None
    error: str | None = None
    trace: str = ""


class JobDone(msgspec.Struct, tag=True, frozen=True):
    """The function has returned `value`, pickled, and the process waits for another job."""

    value: bytes | None = None


class Leaving(msgspec.Struct, tag=True, frozen=True):
    """The function is done, and the process ends once it has done what was left to its end."""


# ---------------------------------------------------------------------- to a worker


class Assigned(msgspec.Struct, tag=True, frozen=True):
    """What to run, and everything there is to know about it: the first message, or after a job.

    `log` is the file that gets what is printed from now on, None for the one that does.
    """

    job: bytes
    log: str | None = None


class Dismissed(msgspec.Struct, tag=True, frozen=True):
    """There are no more jobs: the process is to end, after what was left to its end."""


class Slotted(msgspec.Struct, tag=True, frozen=True):
    """Where the checkpoint of report `index` goes."""

    index: int
    number: int
    directory: str
    epoch: int
    attempt: int


class Resend(msgspec.Struct, tag=True, frozen=True):
    """Another rank has overwritten these files of report `index`; yours are the ones that count."""

    index: int
    paths: list[str]


class Committed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` is durable."""

    index: int
    directory: str


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` will not be: why; perhaps for ranks out of step."""

    index: int
    error: str
    out_of_step: bool = False


class Judged(msgspec.Struct, tag=True, frozen=True):
    """What a trial is to do after report `index`, after it has saved itself if so."""

    index: int
    verdict: Verdict
    save: bool = False


class Met(msgspec.Struct, tag=True, frozen=True):
    """All ranks have come to meeting `index`; or they have not, for the reason in `error`.

    `data` is what `rank` brought, the lowest that still runs.
    """

    index: int
    rank: int = 0
    data: bytes | None = None
    error: str | None = None


class Listed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoints there are, worst first: folder, metrics, and how far validation is."""

    index: int
    checkpoints: list[tuple[str, dict[str, Any], str]]


class Noticed(msgspec.Struct, tag=True, frozen=True):
    """Some nodes will go away by `deadline`, seconds since 1970; None if nobody knows when."""

    deadline: float | None
    ranks: dict[str, list[int]]


class SaveWanted(msgspec.Struct, tag=True, frozen=True):
    """The group will be restarted for a reason of ours: a checkpoint would be welcome now."""


Message: TypeAlias = (
    Began
    | Reported
    | Delivered
    | Placed
    | NotDelivered
    | Resent
    | Meeting
    | Asked
    | Warned
    | Waiting
    | SawNotice
    | LastWords
    | JobDone
    | Leaving
    | Assigned
    | Dismissed
    | Slotted
    | Resend
    | Committed
    | Refused
    | Judged
    | Met
    | Listed
    | Noticed
    | SaveWanted
)
