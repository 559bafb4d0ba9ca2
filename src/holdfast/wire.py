"""The messages between a driver and its workers.

Both ends run the same release, so messages have no version. They may hold pickled functions and
values, because they cross a socket and are never written to a disk.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from holdfast.core.study.trial import Verdict

# ---------------------------------------------------------------------- from a worker


class Began(msgspec.Struct, tag=True, frozen=True):
    """Setup is done: the training function is called now."""


class Reported(msgspec.Struct, tag=True, frozen=True):
    """The `index`-th report of this rank; with `saves`, a checkpoint part follows.

    `validation` asks for the checkpoint to be validated and holds the options that differ from the
    default. `line` is where user code reported, as `/lab/train.py:31`; empty if there is one rank.
    `placed` is the folder of the run where the part is already, if that is not `directory`.
    """

    index: int
    metrics: dict[str, Any]
    saves: bool = False
    directory: str | None = None
    validation: dict[str, Any] | None = None
    line: str = ""
    placed: str | None = None


class Delivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint that belongs to report `index` is stored."""

    index: int
    files: list[tuple[str, int, str]]
    folders: list[str]


class Placed(msgspec.Struct, tag=True, frozen=True):
    """User code has written this rank's part to the folder `directory` of the run itself."""

    index: int
    directory: str


class NotDelivered(msgspec.Struct, tag=True, frozen=True):
    """The part of a checkpoint could not be stored; the error is raised in user code."""

    index: int
    error: str


class Resent(msgspec.Struct, tag=True, frozen=True):
    """The files that `Resend` asked for are stored."""

    index: int


class Meeting(msgspec.Struct, tag=True, frozen=True):
    """This rank waits for all others at barrier `index`; `data` is its contribution, if any."""

    index: int
    data: bytes | None = None


class Asked(msgspec.Struct, tag=True, frozen=True):
    """This rank asks for the list of checkpoints, including those of its own `reports`.

    With `validated`, the answer waits until all validations are done. Several threads may ask at
    once; `instead_of` is the request that this one replaces, 0 for none.
    """

    index: int
    reports: int
    validated: bool
    instead_of: int = 0


class Warned(msgspec.Struct, tag=True, frozen=True):
    """This process got a signal that announces its end."""

    signal: int


class Waiting(msgspec.Struct, tag=True, frozen=True):
    """This process waits for something that another one holds; it is not hung."""


class SawNotice(msgspec.Struct, tag=True, frozen=True):
    """User code has seen the notice that machines will be taken away."""


class LastWords(msgspec.Struct, tag=True, frozen=True):
    """The training function returned or raised `value`, pickled if possible."""

    value: bytes | None = None
    error: str | None = None
    trace: str = ""


class JobDone(msgspec.Struct, tag=True, frozen=True):
    """The function returned `value`, pickled; the process waits for another job."""

    value: bytes | None = None


class Leaving(msgspec.Struct, tag=True, frozen=True):
    """The function is done; the process ends after its exit work."""


# ---------------------------------------------------------------------- to a worker


class Assigned(msgspec.Struct, tag=True, frozen=True):
    """The job to run next.

    `log` is the file for output from now on, None for the current one.
    """

    job: bytes
    log: str | None = None


class Dismissed(msgspec.Struct, tag=True, frozen=True):
    """There are no more jobs: the process ends after its exit work."""


class Slotted(msgspec.Struct, tag=True, frozen=True):
    """Where the checkpoint of report `index` goes."""

    index: int
    number: int
    directory: str
    epoch: int
    attempt: int


class Resend(msgspec.Struct, tag=True, frozen=True):
    """Another rank overwrote these files of report `index`; yours must win, so store them again."""

    index: int
    paths: list[str]


class Committed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` is durable."""

    index: int
    directory: str


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The checkpoint of report `index` is not committed: why, and if ranks were out of step."""

    index: int
    error: str
    out_of_step: bool = False


class Judged(msgspec.Struct, tag=True, frozen=True):
    """What a trial is to do after report `index`, after it has saved itself if so."""

    index: int
    verdict: Verdict
    save: bool = False


class Met(msgspec.Struct, tag=True, frozen=True):
    """All ranks have reached barrier `index`; or they cannot, because of `error`.

    `data` is the contribution of `rank`, the lowest that still runs.
    """

    index: int
    rank: int = 0
    data: bytes | None = None
    error: str | None = None


class Listed(msgspec.Struct, tag=True, frozen=True):
    """The checkpoints, worst first: folder, metrics and state of validation."""

    index: int
    checkpoints: list[tuple[str, dict[str, Any], str]]


class Noticed(msgspec.Struct, tag=True, frozen=True):
    """Some nodes will go away by `deadline`, in seconds since 1970; None if unknown."""

    deadline: float | None
    ranks: dict[str, list[int]]


class SaveWanted(msgspec.Struct, tag=True, frozen=True):
    """The group is about to be restarted; a checkpoint saved now avoids lost work."""


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
