"""Reports of a worker: passes metrics on, and saves checkpoints, at once or in the background.

The reports of a rank are numbered, and a checkpoint belongs to a number. The number goes up even
if the save fails, so all ranks stay in step.
"""

from __future__ import annotations

import enum
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from holdfast.checkpoint import Checkpoint
from holdfast.checkpoint.checkpoint import location_of
from holdfast.checkpoint.commit import Slot, deliver, deliver_taken, prepare_taken
from holdfast.core.checkpoint.manifest import Part
from holdfast.core.names import broken_path_rule, shown
from holdfast.errors import ConfigError, HoldfastBug, HoldfastError, NotSaved, RanksDisagree
from holdfast.storage.base import Store
from holdfast.storage.foreign.arrow import filesystem_path
from holdfast.storage.transfer import upload_files
from holdfast.wire import (
    Committed,
    Delivered,
    NotDelivered,
    Placed,
    Refused,
    Reported,
    Resend,
    Resent,
    Slotted,
)
from holdfast.worker.conversation import Conversation
from holdfast.worker.metrics import UNSENDABLE, must_be_sendable, plain_metrics
from holdfast.worker.spool import Spool

Upload = Callable[[Checkpoint, str], Checkpoint]
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TESTS = os.path.join(_OURS, "testing", "")  # programs in it count as user code
WAITING_MAX = 1  # saves that may wait behind the one under way; with more, `report` blocks


class Mode(enum.Enum):
    """When the files of a checkpoint reach storage."""

    NOW = "now"  # before `report` returns
    LATER = "later"  # while training goes on
    ALREADY = "already"  # the user's own code has put them there


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """How to save a report's checkpoint.

    Attributes:
        directory: The name of its folder, None for a number.
        upload: The user's function to store it, given the checkpoint and the name of its folder.
        deletes: Whether to delete the folder it comes from.
        validation: How to validate it, None not to.
    """

    checkpoint: Checkpoint
    directory: str | None = None
    mode: Mode = Mode.NOW
    upload: Upload | None = None
    deletes: bool = False
    validation: Mapping[str, Any] | None = None


class Reporter:
    """Makes the reports of one worker.

    Attributes:
        fill: Called with the metrics of every report; returns the metrics to send.
        then: Called with the number of every report, once its checkpoint is durable.
    """

    def __init__(
        self,
        conversation: Conversation,
        store: Callable[[], Store],
        *,
        run_id: str,
        attempt: int,
        rank: int,
        has_peers: bool,
        reports_before: int,
        newest: Checkpoint | None,
    ) -> None:
        self._conversation, self._open_store = conversation, store
        self._run_id, self._attempt, self._rank = run_id, attempt, rank
        self._has_peers = has_peers
        self.count = reports_before
        self.newest = newest
        self._counting = threading.Lock()
        self._spool: Spool | None = None
        self._announced = 0  # the report that was announced to be saved
        self._waiting: queue.Queue[tuple[int, Save, str] | None]  # set with the first save
        self._uploader: threading.Thread | None = None
        self._failed: list[HoldfastError] = []
        self.fill: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.then: Callable[[int], None] | None = None

    def report(self, metrics: Mapping[str, Any], save: Save | None = None) -> None:
        """Send metrics, and save a checkpoint as `save` says.

        Raises if the save fails, in the background with the next report; either way this report
        was made, and the next one works as usual.
        """
        plain = plain_metrics(metrics)
        if self.fill is not None:
            plain = self.fill(plain)
        placed = None
        if save is not None:
            self._must_be_savable(save)
            if save.mode is Mode.ALREADY:
                placed = self._place_in_run(save.checkpoint)
        with self._counting:
            index = self.count + 1
            try:
                self._conversation.say(_reported(index, plain, save, placed, self._line()))
            except UNSENDABLE:
                must_be_sendable(plain)
                raise
            self.count = index  # only now: metrics that could not be sent were not reported
        if save is None:
            pass
        elif save.mode is Mode.LATER:
            self._begin_saving(index, save)
        else:
            self._save(index, save)
        self._raise_failure()
        if self.then is not None:
            self.then(index)

    def _line(self) -> str:
        """Return the line of user code that reports, which shows if ranks are out of step."""
        return calling_line(sys._getframe(2)) if self._has_peers else ""  # noqa: SLF001

    def announce_save(self) -> None:
        """Announce that `save_made` follows the last report, so that the driver can prepare."""
        self._announced = self.count
        self._conversation.say(Reported(self.count, {}, saves=True))

    def save_made(self, make: Callable[[str], None]) -> None:
        """Save what `make` writes into a folder as the checkpoint of the last report.

        The folder is in the spool, so no byte is copied, and what a killed process leaves there is
        removed.
        """
        index, spool = self.count, self._own_spool()
        folder = spool.new(index)
        try:
            if self._announced != index:
                self.announce_save()
            try:
                make(folder)
                self._save_taken(index, None, folder)
            except NotSaved:
                raise  # the driver knows
            except BaseException as error:
                self._conversation.say(NotDelivered(index, self._failure(error)))
                raise
        finally:
            spool.drop(folder)

    def _own_spool(self) -> Spool:
        if self._spool is None:
            self._spool = Spool(self._open_store(), self._run_id, self._attempt, self._rank)
        return self._spool

    def drain(self) -> None:
        """Return once every checkpoint handed over is durable; raise if one could not be saved."""
        if self._uploader is not None:
            self._waiting.put(None)
            self._uploader.join()
            self._uploader = None
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failed:
            raise self._failed.pop(0)

    # ------------------------------------------------------------------ saving now

    def _save(self, index: int, save: Save) -> None:
        slot = self._slot(index)
        try:
            if save.mode is Mode.ALREADY:
                self._say_placed(index, save.checkpoint)
                self._await_commit(index, slot, None)
            elif save.upload is not None:
                self._upload(index, slot, save.upload, save.checkpoint)
            else:
                with save.checkpoint.as_directory() as folder:
                    part = deliver(self._open_store(), slot, self._rank, folder)
                    self._say_delivered(index, part)
                    self._await_commit(index, slot, folder)
        except NotSaved:
            raise  # the driver knows
        except BaseException as error:
            # Whatever the error, the driver must not wait for this part any longer.
            self._conversation.say(NotDelivered(index, self._failure(error)))
            raise
        if save.deletes:
            with save.checkpoint.as_directory() as folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, index: int, slot: Slot, upload: Upload, checkpoint: Checkpoint) -> None:
        stored: object = upload(checkpoint, slot.directory)
        if not isinstance(stored, Checkpoint):
            raise ConfigError(
                f"checkpoint_upload_fn returned {stored!r}, which is not a Checkpoint",
                hint="return Checkpoint(path) with the path it was uploaded to",
            )
        self._say_placed(index, stored)
        self._await_commit(index, slot, None)

    def _slot(self, index: int) -> Slot:
        match self._conversation.answer("report", index):
            case Slotted(_, number, directory, epoch, attempt):
                return Slot(number, directory, epoch, attempt)
            case Refused() as refused:
                raise _refusal(refused)
            case message:
                raise HoldfastBug(f"{message!r} is no answer to a report")

    def _say_delivered(self, index: int, part: Part) -> None:
        files = [(entry.path, entry.size, entry.digest) for entry in part.files]
        self._conversation.say(Delivered(index, files, list(part.folders)))

    def _say_placed(self, index: int, checkpoint: Checkpoint) -> None:
        self._conversation.say(Placed(index, self._place_in_run(checkpoint)))

    def _place_in_run(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint's folder relative to the run's; raise if it is not below it."""
        store = self._open_store()
        home, path = filesystem_path(store.url), location_of(checkpoint)
        if store.local is not None:
            home, path = os.path.realpath(home), os.path.realpath(path)
        inside = path.removeprefix(home.rstrip("/") + "/").strip("/")
        if not inside or inside == path.strip("/"):
            raise ConfigError(
                f"the checkpoint at {checkpoint.path} is not below the run's folder {home}",
                hint="store it at the path of"
                " get_context().get_storage().build_checkpoint_path_from_name(…), and pass the"
                " filesystem if that is not this machine's disk",
            )
        return inside

    def _await_commit(self, index: int, slot: Slot, folder: str | None) -> None:
        """Wait until the checkpoint is durable, sending files again that other ranks overwrote."""
        while True:
            match self._conversation.answer("report", index):
                case Committed(_, directory):
                    self.newest = Checkpoint.in_run(self._open_store(), directory)
                    return
                case Refused() as refused:
                    raise _refusal(refused)
                case Resend(_, paths) if folder is not None:
                    upload_files(self._open_store(), folder, slot.directory, paths)
                    self._conversation.say(Resent(index))
                case message:
                    raise HoldfastBug(f"{message!r} is no answer to a delivery")

    # ------------------------------------------------------------------ saving later

    def _begin_saving(self, index: int, save: Save) -> None:
        try:
            with save.checkpoint.as_directory() as folder:
                taken = self._own_spool().take(folder, index, moves=save.deletes)
        except BaseException as error:
            self._conversation.say(NotDelivered(index, self._failure(error)))
            raise
        if self._uploader is None:
            self._waiting = queue.Queue(WAITING_MAX)
            self._uploader = threading.Thread(
                target=self._upload_waiting, name="holdfast-uploader", daemon=True
            )
            self._uploader.start()
        self._waiting.put((index, save, taken))

    def _upload_waiting(self) -> None:
        assert self._spool is not None
        while (waiting := self._waiting.get()) is not None:
            index, save, folder = waiting
            try:
                self._save_taken(index, save.upload, folder)
            except NotSaved as error:
                self._failed.append(error)
            except BaseException as error:  # noqa: BLE001  # a user's upload may raise anything
                self._conversation.say(NotDelivered(index, self._failure(error)))
                self._failed.append(_wrapped(error))
            finally:
                self._spool.drop(folder)

    def _save_taken(self, index: int, upload: Upload | None, folder: str) -> None:
        if upload is not None:
            slot = self._slot(index)
            self._upload(index, slot, upload, Checkpoint.from_directory(folder))
            return
        store = self._open_store()
        prepared = prepare_taken(store, folder)  # while the driver gives out a slot
        slot = self._slot(index)
        part = deliver_taken(store, slot, self._rank, folder, prepared)
        self._say_delivered(index, part)
        self._await_commit(index, slot, folder)

    def _failure(self, error: BaseException) -> str:
        """Return the message with which the other ranks raise, too; see `is_aftermath`."""
        return f"rank {self._rank}: {': '.join(filter(None, [type(error).__name__, str(error)]))}"

    def _must_be_savable(self, save: Save) -> None:
        if not isinstance(save.checkpoint, Checkpoint):
            raise ConfigError(
                f"checkpoint={save.checkpoint!r} is not a Checkpoint",
                hint="use Checkpoint.from_directory(folder)",
            )
        if save.directory is not None and (rule := broken_path_rule(save.directory)):
            raise ConfigError(
                f"checkpoint_dir_name={shown(save.directory)}: {rule}",
                hint="choose another name, or leave it out and let the checkpoint be numbered",
            )
        local = self._open_store().local
        if not save.deletes or local is None:
            return
        folder = os.path.realpath(location_of(save.checkpoint))
        if f"{os.path.realpath(local.root)}/".startswith(f"{folder}/"):
            raise ConfigError(
                f"the checkpoint folder {folder} cannot be deleted: it contains the run itself",
                hint="save to a folder of its own, or keep it: "
                "delete_local_checkpoint_after_upload=False",
            )


def calling_line(frame: FrameType | None) -> str:
    """Return the innermost line outside this package, such as `/lab/train.py:31`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) or file.startswith(_TESTS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _reported(
    index: int, metrics: dict[str, Any], save: Save | None, placed: str | None, line: str
) -> Reported:
    if save is None:
        return Reported(index, metrics, line=line)
    return Reported(
        index,
        metrics,
        saves=True,
        directory=save.directory if placed is None else None,
        validation=None if save.validation is None else dict(save.validation),
        line=line,
        placed=placed,
    )


def _refusal(refused: Refused) -> NotSaved:
    if not refused.out_of_step:
        return NotSaved(refused.error)
    return RanksDisagree(
        refused.error,
        hint="let all ranks that save make the same reports in the same order",
    )


def _wrapped(error: BaseException) -> HoldfastError:
    """Return an error of the upload thread as one to raise in user code."""
    if isinstance(error, HoldfastError):
        return error
    wrapped = NotSaved(f"a checkpoint could not be uploaded: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
