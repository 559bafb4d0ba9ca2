"""The least that runs trials in processes and forgets none: fork, pipes, a line synced per event.

No search, no scheduler, no files for people, no retries: what no system with processes of its own
and durable transitions can go below, unless it lets trials share a sync.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from marks import mark

OPTIONS = json.loads(sys.argv[1])
FOLDER = OPTIONS["folder"]
LINES = f"{FOLDER}/lines"
AT_ONCE = os.cpu_count() or 1
DONE = "done"
END = "end"


class Worker:
    """A forked process that does one trial after the other, and the pipes to and from it."""

    def __init__(self) -> None:
        theirs, orders = os.pipe()
        heard, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(orders)
            work(os.fdopen(theirs), said)
            os._exit(0)
        os.close(theirs)
        os.close(said)
        self._orders, self._heard = orders, os.fdopen(heard)

    def fileno(self) -> int:
        return self._heard.fileno()

    def tell(self, word: str) -> None:
        os.write(self._orders, f"{word}\n".encode())

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._heard.readline())
        return heard

    def end(self) -> None:
        """Return when it has ended; one that does several trials is told to first."""
        if OPTIONS["reuses"]:
            self.tell(END)  # its pipe does not close: workers forked later hold it open, too
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        self._heard.close()


def work(orders: Any, said: int) -> None:
    """In a worker: do one trial, or one after the other until told to end."""
    while (line := orders.readline().strip()) not in {"", END}:
        number = int(line)
        for step in range(1, OPTIONS.get("steps", 0) + 1):
            save(f"{FOLDER}/{number}", step)
            say(said, trial=number, what=step, loss=0.25)
            orders.readline()  # the step is durable, and judged
        say(said, trial=number, what=DONE, loss=0.25)
        if not OPTIONS["reuses"]:
            return


def say(said: int, **facts: Any) -> None:
    os.write(said, json.dumps(facts).encode() + b"\n")


def save(folder: str, step: int) -> None:
    os.makedirs(f"{folder}/.new")
    with open(f"{folder}/.new/state.json", "w") as file:
        json.dump({"count": step}, file)
        file.flush()
        os.fsync(file.fileno())
    sync(f"{folder}/.new")
    os.rename(f"{folder}/.new", f"{folder}/checkpoint_{step:06d}")
    sync(folder)


def sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def run(count: int) -> None:
    """Have as many trials done, as many at once as there are cores."""
    log = os.open(LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def note(**facts: Any) -> None:
        os.write(log, json.dumps(facts).encode() + b"\n")
        os.fdatasync(log)

    idle: list[Worker] = []
    busy: list[Worker] = []
    left = iter(range(count))
    over = 0
    while over < count:
        while len(busy) < AT_ONCE and (number := next(left, None)) is not None:
            note(trial=number, what="started")
            worker = idle.pop() if idle else Worker()
            worker.tell(str(number))
            busy.append(worker)
        for worker in select.select(busy, [], [])[0]:
            heard = worker.hear()
            note(**heard)
            if heard["what"] != DONE:
                worker.tell("go on")
                continue
            over += 1
            busy.remove(worker)
            if OPTIONS["reuses"]:
                idle.append(worker)
            else:
                worker.end()
    for worker in idle:
        worker.end()


def restore() -> None:
    """Read what was written down, and go on with the first trial that is not over."""
    with open(LINES) as lines:
        over = {said["trial"] for said in map(json.loads, lines) if said["what"] == DONE}
    assert len(over) == OPTIONS["over"]
    if os.fork() == 0:
        mark(FOLDER, "resumed", step=0)
        os._exit(0)
    os.wait()


def main() -> None:
    if OPTIONS.get("restores"):
        restore()
        return
    begun = time.time()
    run(OPTIONS.get("over") or OPTIONS["count"])
    mark(FOLDER, "over", begun=begun, ended=time.time())
    mark(FOLDER, "ready")


if __name__ == "__main__":
    main()
