"""Records changed by an enemy, under everything that only looks: nothing runs, breaks or hides.

Ten thousand changes of every kind of record we keep, most of them sealed again, so that checksums
hold. Each is met by two of the ways to look. A case that fails prints its number, and `problem_of`
plays it again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.control.metrics.writer import MetricRows
from holdfast.control.record.open_run import OpenStudy, OpenTrainingRun, open_run
from holdfast.control.record.run_view import look
from holdfast.control.study.archive import write_archive
from holdfast.control.study.reader import NoJudge, rebuild
from holdfast.core.run.history import KIND
from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.core.study.trial import Trial
from holdfast.errors import Damaged, HoldfastError
from holdfast.storage.locate import child, open_store
from holdfast.train import Result
from holdfast.train.restore.record import StoredTrainer
from holdfast.train.restore.restore import can_restore
from holdfast.tune import ExperimentAnalysis, Tuner
from holdfast.tune.results.study_view import inspect_study
from holdfast.tune.schedulers import AsyncHyperBandScheduler
from holdfast.tune.stopper import CombinedStopper, Stopper, TimeoutStopper, stopper_of
from tests.faults.records import mutations
from tests.records import OPENED, Event, added, finished, rewrite, started, study_at_rest
from tests.records import result as reported
from tests.runs import commit_to, save_files

COUNT, CHUNK = 10_000, 2_500
CPU_S = 20  # of one case; none takes a tenth of a second
MEMORY_BYTES = 300 << 20

FAILED: Event = (
    "trial_exited",
    {
        "id": "a3", "attempt": 1, "how": "",
        "exit": {"kind": "raised", "rank": 0, "node": "a", "error": "ValueError: x", "trace": "t"},
    },
)  # fmt: skip


# ---------------------------------------------------------------------- what there is to change


def write_run(folder: Path, files: Path) -> None:
    """Write a training run with two checkpoints, metrics, a log and the record of its trainer."""
    store = open_store(folder)
    with OpenTrainingRun.open(store, name=folder.name) as run:
        for event in (
            {"event": "driver_started", "limits": [2, None, None], "backoff_max_s": 1.0},
            {"event": "group_ended", "attempt": 1, "exits": [FAILED[1]["exit"]]},
        ):
            run.note(KIND, event)
        rows = MetricRows(store, run.lease.epoch)
        for step in (1, 2):
            commit_to(run, files, step=step, metrics={"loss": 1.0 / step})
            rows.append(step, 1, {"loss": 1.0 / step}, 1.7e9)
        rows.close()
        run.compact()
        run.append("checkpoint_pinned", {"number": 0, "by": "me"}).wait()
    stored = StoredTrainer(
        trainer="holdfast.train:DataParallelTrainer",
        function={"kind": "import", "module": "tests.runs", "name": "commit", "root": None},
        config={"kind": "plain", "value": {"lr": 0.1}},
    )
    store.put(".holdfast/trainer.json", mutations.sealed(stored.to_record()) + b"\n")
    logs = folder / "logs" / "attempt-1"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").write_text("epoch 1\n")


def write_study(folder: Path, files: Path) -> None:
    """Write a study: a state, an archive, events since, a checkpoint, and the files of a trial."""
    store = open_store(folder)
    with open_run(child(store, "train_a1"), name="train_a1") as run:
        manifest = commit_to(run, files, step=1, metrics={"loss": 0.5})
    committed = {name: getattr(manifest, name) for name in ("number", "directory", "epoch")}
    committed |= {"attempt": 1, "step": 1, "metrics": {"loss": 0.5}, "created": 1.7e9}
    over = Trial("a0", number=0, config={"x": 0}, folder="train_a0", last_result={"loss": 2.0})
    over.status = type(over.status)("TERMINATED")
    scheduler = AsyncHyperBandScheduler(max_t=9)
    stopper: Stopper = stopper_of({"training_iteration": 5})
    scheduler.set_search_properties("loss", "min")
    stopper = CombinedStopper(stopper, TimeoutStopper(1e6))
    judges = {"search": {}, "scheduler": scheduler.get_state(), "stopper": stopper.get_state()}
    state = {
        "trials": [], "finished": [over.to_data()], "counts": {"TERMINATED": 1}, "made": 1,
        "is_search_over": False, "stopping": None, "archives": [], "judges": judges,
        "rooms": {"here": {"CPU": 2.0}}, "last_resources": [{"CPU": 1.0}], "taken": None,
    }  # fmt: skip
    key = write_archive(store, 1, 0, [over])
    events: list[Event] = [
        OPENED,
        ("study_state", state),
        ("trials_archived", {"key": key, "ids": ["a0"]}),
        added("a1", 1), started("a1"), reported("a1", 1, loss=0.5),
        ("trial_checkpoint", {"id": "a1", "what": "checkpoint_committed", "facts": committed}),
        added("a3", 3), started("a3"), FAILED,
        added("a2", 2), started("a2"), reported("a2", 1, loss=1.5), finished("a2"),
    ]  # fmt: skip
    asha = "holdfast.tune.schedulers.async_hyperband:AsyncHyperBandScheduler"
    usual = "holdfast.tune.search.basic_variant:BasicVariantGenerator"
    study_at_rest(
        folder,
        events,
        tune_config={
            "metric": "loss", "mode": "min", "num_samples": 9, "time_budget_s": 1e6,
            "scheduler": mutations.made(asha, max_t=9),
            "search_alg": mutations.made(usual),
        },
        run_config={
            "stop": {"training_iteration": 5},
            "failure_config": {
                "@dataclass": {
                    "class": "holdfast.api.config:FailureConfig", "fields": {"max_failures": 1}
                }
            },
            "checkpoint_config": {
                "@dataclass": {
                    "class": "holdfast.api.config:CheckpointConfig", "fields": {"num_to_keep": 2}
                }
            },
        },
        per_trial={"export_formats": {"@tuple": []}},
        not_kept=["RunConfig.callbacks"],
        saves_at_end=False,
        planned=9,
    )  # fmt: skip
    origin = {"format": 1, "name": "before", "run_id": None, "url": "/lab/before"}
    store.put(".holdfast/origin.json", mutations.sealed(origin) + b"\n")
    write_trial_files(folder / "train_a1")


def write_trial_files(folder: Path) -> None:
    row = {
        "trial_id": "a1",
        "training_iteration": 1,
        "loss": 0.5,
        "done": False,
        "config": {"x": 1},
    }
    save_files(
        folder,
        {
            "params.json": json.dumps({"x": 1, "n": {"y": [1, 2]}}).encode(),
            "result.json": b"".join(json.dumps(row | {"n": n}).encode() + b"\n" for n in range(3)),
            "progress.csv": b"training_iteration,loss\n1,0.5\n",
            "error.txt": b"Failed for good at x\nValueError\n",
            "logs/attempt-1.log": b"epoch 1\n",
        },
    )


@dataclass(frozen=True)
class Lab:
    """A storage path with runs that are changed and runs beside them that are not."""

    root: Path
    files: list[Path]

    def subject(self, file: Path) -> Path:
        return self.root / file.relative_to(self.root).parts[0]


BESIDE = {"good-run", "good-study"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    home = tmp_path_factory.mktemp("records")
    files = save_files(home / "files", {"model": b"weights", "sub/opt": b"o"})
    root = home / "lab"
    write_run(root / "run", files)
    write_study(root / "study", files)
    write_trial_files(root / "bare" / "train_a1")
    shutil.copytree(root / "run", root / "good-run")
    shutil.copytree(root / "study", root / "good-study")
    for name in BESIDE:
        rewrite(root / name / ".holdfast" / "run.json", name=name)
    changed = [
        path
        for name in ("run", "study", "bare")
        for path in sorted((root / name).rglob("*"))
        if path.is_file() and path.suffix in (".json", ".jsonl", ".csv")
    ]
    assert len(changed) > 15
    study = inspect_study(open_store(root / "study"))
    assert (study.run.journal_damage, study.damage, study.unsure) == ([], {}, None)
    assert dict(study.counts) == {"PENDING": 2, "TERMINATED": 2}
    assert look(open_store(root / "run")).journal_damage == []
    return Lab(root, changed)


# ---------------------------------------------------------------------- looking


def command(*arguments: str) -> Callable[[Lab, Path], str]:
    def run(lab: Lab, subject: Path) -> str:
        out, errors = io.StringIO(), io.StringIO()
        named = [argument.format(subject=subject, lab=lab.root) for argument in arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                main(named)
            except SystemExit as ended:
                if ended.code not in (0, 1, 3, None):
                    raise AssertionError(f"{named} exited with {ended.code}") from ended
        return out.getvalue() + errors.getvalue()

    return run


def listed(lab: Lab, subject: Path) -> str:
    text = command("ls", "{lab}", "--json")(lab, subject)
    runs = json.JSONDecoder().raw_decode(text)[0]["runs"]  # what is said of it comes after that
    names = {row["name"] for row in runs}
    assert names >= BESIDE | ({subject.name} - {"bare"}), f"only {names} are listed"
    good = [row for row in runs if row["name"] in BESIDE]
    assert all(row["status"] != "unreadable" for row in good)
    return text


def analysed(lab: Lab, subject: Path) -> str:
    with contextlib.suppress(HoldfastError):
        analysis = ExperimentAnalysis(subject, default_metric="loss", default_mode="min")
        assert len(analysis.results) == len(analysis.result_grid)
        grid = analysis.result_grid
        return repr(grid) + repr(analysis.get_best_trial()) + repr(analysis.get_all_configs())
    return ""


def as_result(lab: Lab, subject: Path) -> str:
    with contextlib.suppress(HoldfastError):
        return repr(Result.from_path(str(subject)))
    return ""


LOOKS: dict[str, Callable[[Lab, Path], str]] = {
    "ls": command("ls", "{lab}"),
    "ls --json": listed,
    "show": command("show", "{subject}"),
    "show --json": command("show", "{subject}", "--json"),
    "show trial": command("show", "{subject}/train_a1"),
    "logs": command("logs", "{subject}"),
    "logs trial": command("logs", "{subject}/train_a1"),
    "verify": command("verify", "{subject}"),
    "verify --json": command("verify", "{subject}", "--json"),
    "verify trial": command("verify", "{subject}/train_a1"),
    "gc": command("gc", "{subject}", "--dry-run"),
    "can_restore": lambda lab, subject: repr(Tuner.can_restore(subject)),
    "can_restore a trainer": lambda lab, subject: repr(can_restore(subject)),
    "analysis": analysed,
    "result": as_result,
}


# ---------------------------------------------------------------------- what must not happen

_FORBIDDEN = {
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link",
    "os.symlink", "os.kill", "shutil.rmtree", "pickle.find_class", "socket.connect", "compile",
    "ctypes.dlopen", "code.__new__",
}  # fmt: skip
_seen: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in _FORBIDDEN:
        if event == "os.kill" and arguments[1] == 0:
            return
        _seen.append(f"{event}{arguments!r:.200}")
    elif (
        event == "open"
        and isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        _seen.append(f"open for writing: {arguments[0]!r:.200}")
    elif event == "open" and str(arguments[0]) in ("/dev/zero", "/etc/passwd"):
        _seen.append(f"open of {arguments[0]}")
    elif event == "import" and str(arguments[0]).startswith("evil_at_rest"):
        _seen.append(f"import of {arguments[0]}")


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Give out a list of what happens meanwhile that a look must not do."""
    global _seen  # noqa: PLW0603  # a hook stays for ever, and must know whether it is wanted
    _seen = []
    try:
        yield _seen
    finally:
        _seen = None


@pytest.fixture(scope="module", autouse=True)
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    sys.addaudithook(_watch)
    home = tmp_path_factory.mktemp("modules")
    (home / "evil_at_rest.py").write_text("class Scheduler: ...\n")
    sys.path.insert(0, str(home))
    yield
    sys.path.remove(str(home))


@pytest.fixture(autouse=True)
def cpu_limit() -> Iterator[Callable[[], None]]:
    def too_long(*_: object) -> None:
        raise TimeoutError("it takes too long")

    before = signal.signal(signal.SIGVTALRM, too_long)

    def begin() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)

    yield begin
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def change(file: Path, chance: random.Random) -> bytes:
    """Return a file of records with one of them changed."""
    data = file.read_bytes()
    if ".holdfast" not in file.parts:
        if file.name == "result.json":
            *lines, _ = data.split(b"\n")
            place = chance.randrange(len(lines))
            lines[place] = mutations.mutated_json(lines[place], chance)
            return b"\n".join(lines) + b"\n"
        if file.suffix == ".csv":
            return mutations.scratched(data, chance)
        return mutations.mutated_json(data, chance)
    lines = data.removesuffix(b"\n").split(b"\n")
    place = chance.randrange(len(lines))
    if file.parent.name == "journal" and chance.random() < 0.9:
        place = chance.randrange(min(1, len(lines) - 1), len(lines))  # a header rests on few things
    lines[place] = mutations.mutated_line(lines[place], chance)
    return b"\n".join(lines) + b"\n"


def problem_of(lab: Lab, number: int) -> str | None:
    """Return what is wrong with how one change is met, None if nothing is."""
    chance = random.Random(number)
    file = chance.choice(lab.files)
    original = file.read_bytes()
    bad = change(file, chance)
    looks = chance.sample(sorted(LOOKS), 2)
    file.write_bytes(bad)
    try:
        for look in looks:
            with watched() as happened:
                try:
                    text = LOOKS[look](lab, lab.subject(file))
                except BaseException:  # noqa: BLE001  # the case is told
                    return f"{look} of {file}:\n{bad[:1500]!r}\n{traceback.format_exc()}"
            if happened:
                return f"{look} of {file}: {happened[:5]}\n{bad[:1500]!r}"
            is_text = look.split()[0] in ("ls", "show", "logs", "verify", "gc")
            if is_text and "Traceback" in text:
                return f"{look} of {file} printed a traceback:\n{text[-3000:]}"
            if is_text and not all(one.isprintable() or one == "\n" for one in text):
                return f"{look} of {file} printed control characters: {text!r:.1000}"
    finally:
        file.write_bytes(original)
    return None


@pytest.mark.filterwarnings("ignore::UserWarning")  # that an archive is damaged is told as one
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_changed_records_run_nothing_break_nothing_and_hide_nothing(
    first: int, lab: Lab, cpu_limit: Callable[[], None]
) -> None:
    for one_look in LOOKS.values():  # so that all is loaded that a look may need
        for name in ("run", "study", "bare"):
            one_look(lab, lab.root / name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for number in range(first, first + CHUNK):
        cpu_limit()
        problem = problem_of(lab, number)
        assert problem is None, f"problem_of(lab, {number}): {problem}"

    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MEMORY_BYTES, f"{grown} kB more at the most"


DRIVEN = 600


def drive(folder: Path) -> None:
    """Become the driver of what is in a folder, and take in all that is known of it."""
    with open_run(open_store(folder), beats=False) as run:
        if isinstance(run, OpenStudy):
            nobody = NoJudge()
            rebuild(Study(Judges(nobody, nobody, nobody), Rules()), run.tail)


@pytest.mark.parametrize("name", ["run", "study"])
def test_a_driver_that_meets_changed_records_works_or_says_what_is_wrong(
    name: str, lab: Lab, tmp_path: Path
) -> None:
    said = 0
    for number in range(DRIVEN):
        chance = random.Random(number)
        folder = Path(shutil.copytree(lab.root / name, tmp_path / str(number)))
        file = chance.choice(sorted((folder / ".holdfast").rglob("*.jsonl")))
        file.write_bytes(change(file, chance))
        try:
            drive(folder)
        except HoldfastError:
            said += 1
        except Exception as error:
            raise AssertionError(f"{name} {number}: {file.read_bytes()[:1500]!r}") from error
        shutil.rmtree(folder)

    assert 0 < said < DRIVEN / 5, "most of what is changed costs a record and no more"


def test_a_sealed_record_that_nobody_writes_is_named(lab: Lab, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(lab.root / "run", tmp_path / "run"))
    with open_run(open_store(folder)) as run:
        run.journal.append("checkpoint_begun", {"directory": "checkpoint_000009"}).wait()

    with pytest.raises(Damaged, match=r"'checkpoint_begun' that is sealed, but .*number") as caught:
        open_run(open_store(folder))

    assert "resume_from_checkpoint" in str(caught.value)
    with pytest.raises(Damaged):  # the lease was given back, and nothing was written
        open_run(open_store(folder))


@pytest.mark.parametrize("name", ["show", "ls"])
def test_a_changed_record_is_met_by_a_process_of_its_own_as_well(
    name: str, lab: Lab, tmp_path: Path
) -> None:
    """What this process has loaded long ago, a new one may load because of a record."""
    root = Path(shutil.copytree(lab.root, tmp_path / "lab"))
    for number, attack in enumerate(mutations.ATTACKS):
        folder = Path(shutil.copytree(root / "good-study", root / f"attack-{number:02d}"))
        said = {"scheduler": attack, "search_alg": attack, "metric": "loss", "mode": "min"}
        record = json.loads((folder / ".holdfast" / "study.json").read_bytes())
        record |= {"tune_config": said, "run_config": {"stop": attack, "failure_config": attack}}
        record.pop("~")
        (folder / ".holdfast" / "study.json").write_bytes(mutations.sealed(record) + b"\n")
    at = root if name == "ls" else root / "attack-00"

    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", name, str(at)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("attack-") == (len(mutations.ATTACKS) if name == "ls" else 3)
    assert not (tmp_path / "canary-was-run").exists()


if __name__ == "__main__":
    FIRST, COUNT = map(int, sys.argv[1:3])
    sys.exit(pytest.main(["-n", "0", "-p", "no:randomly", "-x", "-k", "ten_thousand", __file__]))
