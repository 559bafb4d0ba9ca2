"""Disks with injected faults: a sync that does nothing, a full disk, an error, a power cut.

A `TappedDisk` asks a tap about each operation that changes the disk, before it happens; a
`ReadTappedDisk` about each that reads. The taps here work on any disk, real or simulated.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from holdfast.storage.base import Buffer
from holdfast.storage.local.disk import READABLE, Disk, Stat

Verb: TypeAlias = Literal[
    "create",
    "write",
    "truncate",
    "sync",
    "link",
    "rename",
    "remove",
    "mkdir",
    "rmdir",
    "sync_dir",
    "open",
    "read",
    "stat",
    "scan",
]
SYNCS: frozenset[Verb] = frozenset({"sync", "sync_dir"})


class PowerCut(BaseException):
    """Not an Exception, so that no `except Exception` in the code under test catches it."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation about to happen; `path` is the new name where there are two."""

    verb: Verb
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class Allow:
    """The step happens."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The step does not happen, but claims success."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The step fails; a write leaves the share `part` of its bytes behind."""

    error: OSError
    part: float = 0.0


Verdict: TypeAlias = Allow | Skip | Refuse
ALLOW, SKIP = Allow(), Skip()


class Tap(Protocol):
    """Asked about every step before it happens; may raise `PowerCut` instead of answering."""

    def judge(self, step: Step) -> Verdict: ...


class Fuse:
    """Cuts the power for good at the step numbered `blows_at`, from 1."""

    def __init__(self, blows_at: int) -> None:
        self._left = blows_at

    def pass_through(self) -> None:
        """Raise `PowerCut` in call `blows_at` and every later one."""
        self._left -= 1
        if self._left <= 0:
            raise PowerCut

    def judge(self, step: Step) -> Verdict:
        self.pass_through()
        return ALLOW


@dataclass(slots=True)
class Drop:
    """Makes syncs do nothing while they claim success, to test that each one is needed.

    Attributes:
        nth: Drop only the sync with this number, from 1, counting files and folders together and
            only those that `match`; None drops all of them.
        match: Drop only syncs whose verb and path match this glob: "sync *", "* */manifests/*".
        dropped: The steps dropped so far.
    """

    nth: int | None = None
    match: str = "*"
    dropped: list[Step] = field(default_factory=list)
    _count: int = 0

    def judge(self, step: Step) -> Verdict:
        if step.verb not in SYNCS or not fnmatch.fnmatchcase(str(step), self.match):
            return ALLOW
        self._count += 1
        if self.nth not in (None, self._count):
            return ALLOW
        self.dropped.append(step)
        return SKIP


@dataclass(slots=True)
class Fail:
    """Makes the `nth` step fail, from 1, counting those that `match`.

    A file whose sync has failed is never made durable by a later sync, although that claims
    success: the kernel forgets which bytes were not written.

    Attributes:
        code: The `errno` of the error. With ENOSPC, removals work: a full disk can be emptied.
        match: Fail only steps whose verb and path match this glob: "rename *", "* */journal/*".
        lasting: Whether every later step that matches fails, too.
        part: A write that fails leaves this share of its bytes, as a full disk does.
        failed: The steps that have failed so far.
    """

    code: int = errno.EIO
    nth: int = 1
    match: str = "*"
    lasting: bool = False
    part: float = 0.0
    failed: list[Step] = field(default_factory=list)
    _count: int = 0
    _spoiled: set[str] = field(default_factory=set)

    def judge(self, step: Step) -> Verdict:
        if self._is_counted(step):
            self._count += 1
            if self._count == self.nth or (self.lasting and self._count > self.nth):
                self.failed.append(step)
                if step.verb == "sync":
                    self._spoiled.add(step.path)
                return Refuse(OSError(self.code, os.strerror(self.code), step.path), self.part)
        if step.verb == "create":
            self._spoiled.discard(step.path)
        return SKIP if step.verb == "sync" and step.path in self._spoiled else ALLOW

    def _is_counted(self, step: Step) -> bool:
        frees = step.verb in ("remove", "rmdir")
        if frees and self.code in (errno.ENOSPC, errno.EDQUOT):
            return False
        return fnmatch.fnmatchcase(str(step), self.match)


class TappedDisk:
    """A disk that asks a tap before every change; reading and closing need no permission."""

    def __init__(self, disk: Disk, tap: Tap) -> None:
        self._disk, self._tap = disk, tap
        self._paths: dict[int, str] = {}  # of open handles

    def create(self, path: str, mode: int = READABLE) -> int:
        # A file that is not created has no handle to return, so `Skip` allows it.
        self._ask_tap("create", path)
        return self._opened(self._disk.create(path, mode), path)

    def open(self, path: str) -> int:
        return self._opened(self._disk.open(path), path)

    def open_append(self, path: str) -> int:
        return self._opened(self._disk.open_append(path), path)

    def read_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        return self._disk.read_into(handle, buffer, offset)

    def write(self, handle: int, data: Buffer) -> None:
        match self._tap.judge(Step("write", self._paths.get(handle, ""))):
            case Allow():
                self._disk.write(handle, data)
            case Skip():
                pass
            case Refuse(error, part):
                self._disk.write(handle, memoryview(data)[: int(len(data) * part)])
                raise error

    def write_back(self, handle: int, start: int, length: int) -> None:
        self._disk.write_back(handle, start, length)

    def truncate(self, handle: int, size: int) -> None:
        if self._ask_tap("truncate", self._paths.get(handle, "")):
            self._disk.truncate(handle, size)

    def sync(self, handle: int) -> None:
        if self._ask_tap("sync", self._paths.get(handle, "")):
            self._disk.sync(handle)

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        self._disk.close(handle)

    def link(self, old: str, new: str) -> None:
        if self._ask_tap("link", new):
            self._disk.link(old, new)

    def rename(self, old: str, new: str) -> None:
        if self._ask_tap("rename", new):
            self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        if self._ask_tap("remove", path):
            self._disk.remove(path)

    def mkdir(self, path: str) -> None:
        if self._ask_tap("mkdir", path):
            self._disk.mkdir(path)

    def rmdir(self, path: str) -> None:
        if self._ask_tap("rmdir", path):
            self._disk.rmdir(path)

    def sync_dir(self, path: str) -> None:
        if self._ask_tap("sync_dir", path):
            self._disk.sync_dir(path)

    def stat(self, path: str) -> Stat | None:
        return self._disk.stat(path)

    def lstat(self, path: str) -> Stat | None:
        return self._disk.lstat(path)

    def scan(self, path: str) -> list[tuple[str, bool]]:
        return self._disk.scan(path)

    @contextlib.contextmanager
    def lock(self, path: str, timeout_s: float) -> Iterator[None]:
        if self._disk.stat(path) is None:
            self._ask_tap("create", path)
        with self._disk.lock(path, timeout_s):
            yield

    def _ask_tap(self, verb: Verb, path: str) -> bool:
        """Return whether the step is to happen; raise if it is refused."""
        match self._tap.judge(Step(verb, path)):
            case Allow():
                return True
            case Skip():
                return False
            case Refuse(error):
                raise error

    def _opened(self, handle: int, path: str) -> int:
        self._paths[handle] = path
        return handle


class ReadTappedDisk(TappedDisk):
    """A disk that asks a tap before every read; changes need no permission."""

    def __init__(self, disk: Disk, tap: Tap) -> None:
        super().__init__(disk, _AllowAll())
        self._read_tap = tap

    def open(self, path: str) -> int:
        self._check("open", path)
        return super().open(path)

    def read_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        self._check("read", self._paths.get(handle, ""))
        return super().read_into(handle, buffer, offset)

    def stat(self, path: str) -> Stat | None:
        self._check("stat", path)
        return super().stat(path)

    def lstat(self, path: str) -> Stat | None:
        self._check("stat", path)
        return super().lstat(path)

    def scan(self, path: str) -> list[tuple[str, bool]]:
        self._check("scan", path)
        return super().scan(path)

    def _check(self, verb: Verb, path: str) -> None:
        # A read that is skipped has nothing to return, so `Skip` allows it.
        verdict = self._read_tap.judge(Step(verb, path))
        if isinstance(verdict, Refuse):
            raise verdict.error


class _AllowAll:
    def judge(self, step: Step) -> Verdict:
        return ALLOW
