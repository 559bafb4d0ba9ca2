"""Trainable classes outside trials: saved, restored, and what is left in folders."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.trainable import Beginning, Trainable, can_load, can_save, make
from holdfast.tune.trainables import class_checkpoints
from holdfast.tune.trainables.class_checkpoints import packed, unpack
from holdfast.tune.trainables.kinds import runnable
from holdfast.tune.trainables.result_fields import ResultFields
from holdfast.worker.job import TrialJob


class Counter(Trainable):
    def _setup(self, config: dict[str, Any]) -> None:
        self.count = config.get("first", 0)

    def _train(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "timesteps_this_iter": 10}

    def _save(self, checkpoint_dir: str) -> str:
        path = os.path.join(checkpoint_dir, "model.ckpt")
        Path(f"{path}.index").write_text(str(self.count))
        return path

    def _restore(self, prefix: str) -> None:
        self.count = int(Path(f"{prefix}.index").read_text())


def test_counters_go_on_where_a_trainable_was_saved(tmp_path: Path) -> None:
    first, second = Counter({}), Counter({"first": 50})
    for _ in range(3):
        first.train()
    first.save(str(tmp_path / "saved"))

    second.restore(str(tmp_path / "saved"))
    result = second.train()

    assert result["count"] == result["training_iteration"] == second.iteration == 4
    assert result["timesteps_total"] == 40
    assert result["iterations_since_restore"] == 1


def test_a_trainable_is_restored_from_the_prefix_that_its_save_returned(tmp_path: Path) -> None:
    first, second = Counter({}), Counter({})
    first.train()
    first.save(str(tmp_path))

    second.restore(str(tmp_path / "model.ckpt"))

    assert second.count == 1


@pytest.mark.parametrize("path", ["nothing", "saved/another.ckpt"])
def test_where_nothing_was_saved_nothing_is_restored(tmp_path: Path, path: str) -> None:
    trainable = Counter({})
    trainable.save(str(tmp_path / "saved"))

    with pytest.raises(ConfigError, match="there is no checkpoint at"):
        trainable.restore(str(tmp_path / path))


def test_a_folder_that_is_saved_to_again_is_what_it_was_saved_as_last(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for returned, loaded in (
        ({"a": 1}, {"a": 1}),
        (None, folder),
        (f"{folder}/model", f"{folder}/model"),
        (folder, folder),
        ({"b": 2}, {"b": 2}),
    ):
        class_checkpoints.store(folder, returned, "Mine")

        assert class_checkpoints.load(folder) == loaded


def test_a_folder_may_be_reached_by_another_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    class_checkpoints.store(str(tmp_path / "link"), str(tmp_path / "real" / "model"), "Mine")

    assert class_checkpoints.load(str(tmp_path / "link")) == str(tmp_path / "link" / "model")


@pytest.mark.parametrize("outside", ["..", "../beside", "/", "model"])
@pytest.mark.req("U-050")
def test_a_path_outside_the_folder_is_refused(
    tmp_path: Path, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one is outside, too: it is relative to where the process is."""
    monkeypatch.chdir("/")
    folder = tmp_path / "folder"
    folder.mkdir()
    returned = outside if outside == "model" else str(folder / outside)

    with pytest.raises(ValueError, match="which is outside of it"):
        class_checkpoints.store(str(folder), returned, "Mine")


def test_a_class_can_be_saved_and_loaded_by_a_method_of_either_era_each() -> None:
    class OnlySaves(Trainable):
        def save_checkpoint(self, checkpoint_dir: str) -> None:
            pass

    class Modern(OnlySaves):
        def load_checkpoint(self, checkpoint: Any) -> None:
            pass

    assert can_save(Counter) and can_save(Modern)
    assert can_load(Counter) and can_load(Modern)
    assert can_save(OnlySaves) and not can_load(OnlySaves)
    assert not can_save(Trainable) and not can_load(Trainable)


# ---------------------------------------------------------------------- made


def made(kind: type[Trainable], **more: Any) -> Any:
    """Return an object of a class as a trial has it."""
    config = more.pop("config", {"lr": 0.1})
    return make(Beginning(kind, config, TrialJob(trial_id="t1", name="t1"), **more))


class Noting(Trainable):
    def setup(self, config: dict[str, Any], data: str = "none") -> None:
        self.seen: list[Any] = [("setup", config["lr"], self.trial_id, data)]


class Today(Noting):
    def __init__(self, config: Any = None, logger_creator: Any = None, storage: Any = None) -> None:
        super().__init__(config, logger_creator, storage)
        self.seen.append(("init", config, logger_creator, storage))


class Earlier(Noting):
    def __init__(self, config: dict[str, Any], logger_creator: Any = None) -> None:
        super().__init__(config, logger_creator)
        self.seen.append(("init", config, logger_creator))


class Anything(Noting):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen.append(("init", args, kwargs))


class Positional(Noting):
    def __init__(self, settings: dict[str, Any], /) -> None:
        super().__init__(settings)
        self.seen.append(("init", settings))


class SaysNothing(Noting):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.seen.append(("init", config))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Today, ({"lr": 0.1}, None, None)),
        (Earlier, ({"lr": 0.1}, None)),
        (Anything, ((), {"config": {"lr": 0.1}})),
        (Positional, ({"lr": 0.1},)),
        (SaysNothing, ({"lr": 0.1},)),
    ],
)
def test_a_class_may_have_a_constructor_of_its_own(
    kind: type[Noting], given: tuple[Any, ...]
) -> None:
    """Those of Ray call `setup`, in which a trial knows itself already."""
    trainable = made(kind)

    assert trainable.seen == [("setup", 0.1, "t1", "none"), ("init", *given)]
    assert trainable.config == {"lr": 0.1}


def test_what_a_constructor_passes_on_is_the_config() -> None:
    class Adds(Noting):
        def __init__(self, config: dict[str, Any], **more: Any) -> None:
            super().__init__({**config, "lr": config["lr"] / 10}, **more)

    assert made(Adds).seen == [("setup", pytest.approx(0.01), "t1", "none")]


def test_parameters_reach_the_setup_behind_a_constructor() -> None:
    assert made(Today, parameters={"data": "much"}).seen[0] == ("setup", 0.1, "t1", "much")


def test_setup_may_change_the_config_it_is_given() -> None:
    class Pops(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            config.pop("lr")
            config["nested"]["deep"] = 2

    config = {"lr": 0.1, "nested": {"deep": 1}}

    assert made(Pops, config=config).config == config == {"lr": 0.1, "nested": {"deep": 1}}


def test_a_trainable_inside_another_is_not_taken_for_the_trial() -> None:
    class Outer(Noting):
        def __init__(self, config: dict[str, Any]) -> None:
            self.inner = Today({"lr": 7.0})
            super().__init__(config)
            self.other = Today({"lr": 8.0})

    trainable = made(Outer)

    assert trainable.seen == [("setup", 0.1, "t1", "none")]
    assert [nested.seen[0][1:3] for nested in (trainable.inner, trainable.other)] == [
        (7.0, "default"),
        (8.0, "default"),
    ]


def test_a_class_may_answer_for_attributes_that_it_does_not_have() -> None:
    class Wrapper(Trainable):
        """Passes on to a model whatever it does not know itself, as wrappers do."""

        def setup(self, config: dict[str, Any]) -> None:
            self.inner = {"lr": config["lr"]}

        def __getattr__(self, name: str) -> Any:
            return vars(self)["inner"].get(name)

        def __setattr__(self, name: str, value: Any) -> None:
            assert not name.startswith("_beginning")
            super().__setattr__(name, value)

        def step(self) -> dict[str, Any]:
            return {"lr": self.lr}

    trial = made(Wrapper)

    assert trial.trial_id == "t1"
    assert trial.train()["lr"] == 0.1


def test_a_constructor_that_calls_nobody_is_told_what_it_lacks() -> None:
    class Alone(Noting):
        def __init__(self, config: dict[str, Any]) -> None:
            self.mine = config

    with pytest.raises(ConfigError, match=r"Alone\.__init__\(\) did not call") as caught:
        made(Alone)

    assert "super().__init__(config)" in str(caught.value)
    assert made(Today).config == {"lr": 0.1}, "nothing is left of the one that failed"


def test_a_constructor_that_wants_what_nobody_gives_is_refused_at_the_start() -> None:
    class Wants(Noting):
        def __init__(self, config: dict[str, Any], data: Any) -> None:
            super().__init__(config)

    with pytest.raises(ConfigError, match="missing a required argument: 'data'"):
        runnable(Wants)


def test_outside_a_trial_setup_is_called_without_a_config_as_well() -> None:
    class Usual(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.seen = config

    assert Usual().seen == {}


# ---------------------------------------------------------------------- counted


def test_steps_of_this_process_are_counted_beside_those_of_all() -> None:
    counts = {"training_iteration": 5, "timesteps_total": 50}
    filling = ResultFields(trial=TrialJob(trial_id="t", name="t", last_result=counts))
    filling.fill({"timesteps_this_iter": 3})

    result = filling.fill({"timesteps_this_iter": 4})

    assert (result["training_iteration"], result["iterations_since_restore"]) == (7, 2)
    assert (result["timesteps_total"], result["timesteps_since_restore"]) == (57, 7)


def test_how_busy_the_machine_is_is_told_if_the_config_wants_it() -> None:
    assert "perf" not in ResultFields({}).fill({})

    usage = ResultFields({"log_sys_usage": True}).fill({})["perf"]

    assert usage.keys() == {"cpu_util_percent", "ram_util_percent"}
    assert 0 < usage["ram_util_percent"] <= 100


def test_steps_are_done_together_until_there_are_enough_of_them() -> None:
    class Ending(Counter):
        def _train(self) -> dict[str, Any]:
            return {**super()._train(), "done": self.count == 5}

    trainable = Ending({})

    assert [result["count"] for result in trainable.train_buffered(60.0, 3)] == [1, 2, 3]
    assert [result["count"] for result in trainable.train_buffered(60.0)] == [4, 5]
    assert len(trainable.train_buffered(0.0)) == 1


def test_a_trainable_is_saved_to_an_object_and_restored_from_it() -> None:
    first, second = Counter({}), Counter({})
    first.train()

    second.restore_from_object(first.save_to_object())

    assert second.count == second.iteration == 1


def test_a_trainable_travels_as_an_object_where_tarfile_knows_no_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11.0 to 3.11.3, as Debian 12 has it."""
    leave_out_filters(monkeypatch)
    first, second = Counter({}), Counter({})
    first.train()

    second.restore_from_object(first.save_to_object())

    assert second.count == second.iteration == 1


def leave_out_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    extractall = tarfile.TarFile.extractall

    def older(archive: tarfile.TarFile, path: str = ".") -> None:
        extractall(archive, path, filter="fully_trusted")

    monkeypatch.delattr(tarfile, "data_filter")
    monkeypatch.setattr(tarfile.TarFile, "extractall", older)


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/absolute")],
        [entry("../above")],
        [entry("folder/../../above")],
        [entry("pipe", tarfile.FIFOTYPE)],
        [entry("link", tarfile.SYMTYPE, "/etc/passwd")],
        [entry("link", tarfile.SYMTYPE, "../above")],
        [entry("hard", tarfile.LNKTYPE, "../above")],
        [entry("here", tarfile.SYMTYPE, "."), entry("link", tarfile.SYMTYPE, "here/..")],
        [entry("here", tarfile.SYMTYPE, "."), entry("here/link", tarfile.SYMTYPE, "../above")],
    ],
)
def test_an_archive_that_leads_outside_its_folder_is_refused_by_any_python(
    entries: list[tarfile.TarInfo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_filters(monkeypatch)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry)

    with pytest.raises(ConfigError, match="is not a file inside its folder"):
        unpack(buffer.getvalue(), str(tmp_path / "folder"))
    assert [*tmp_path.iterdir()] == []


def test_links_inside_a_folder_are_kept_by_any_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_filters(monkeypatch)
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "model.pt").write_text("weights")
    (source / "deep" / "latest.pt").symlink_to("../model.pt")

    unpack(packed(str(source)), str(target))

    assert (target / "deep" / "latest.pt").read_text() == "weights"


def test_what_was_saved_is_deleted_however_it_is_named(tmp_path: Path) -> None:
    trainable = Counter({})
    folder = tmp_path / "saved"
    for named in (folder, folder / "model.ckpt", trainable.save(str(folder))):
        trainable.save(str(folder))
        trainable.delete_checkpoint(named)
        assert not folder.exists()
        trainable.delete_checkpoint(named)  # which is gone
