from __future__ import annotations

import json
import logging
import random
import threading
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigError
from holdfast.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    Searcher,
    SearchPlan,
    create_searcher,
)
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.hyperopt import HyperOptSearch
from holdfast.tune.search.sample import uniform


class Climber(Searcher):
    """A user's: remembers in attributes of all sorts."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__("loss", "min")
        self.best = (start, float("inf"))
        self.generator = random.Random(5)
        self.open: dict[str, float] = {}
        self.seen: set[str] = set()
        self.last: deque[int] = deque([1])
        self.by_number = {1: ("a", "b")}
        self.function = len
        self.space = {"x": uniform(0, 1)}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        x = self.best[0] + self.generator.gauss(0, 1)
        self.open[trial_id] = x
        return {"x": x}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.seen.add(trial_id)
        if result and result["loss"] < self.best[1]:
            self.best = (self.open.pop(trial_id), result["loss"])


class Saved(Searcher):
    """A user's that keeps something no JSON can hold, and saves itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.count = 0

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.count += 1
        return {"x": self.count}

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(bytes([255, self.count]))

    def restore(self, checkpoint_path: str) -> None:
        self.count = Path(checkpoint_path).read_bytes()[1]


class Forgetful(Searcher):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.list = [object()]

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {}


def copied(searcher: Searcher, other: Searcher) -> Searcher:
    other.set_state(json.loads(json.dumps(searcher.get_state())))
    return other


@pytest.mark.req("U-078")
def test_a_searcher_of_the_user_goes_on_without_a_line_about_state() -> None:
    searcher = Climber()
    for number in range(5):
        x = searcher.suggest(f"t{number}")["x"]
        searcher.on_trial_complete(f"t{number}", {"loss": (x - 3) ** 2})
    restored = copied(searcher, Climber())

    assert isinstance(restored, Climber)
    assert [searcher.suggest("a"), searcher.suggest("b")] == [
        restored.suggest("a"),
        restored.suggest("b"),
    ]
    assert restored.seen == searcher.seen and type(restored.seen) is set
    assert (restored.by_number, restored.last, restored.best) == (
        searcher.by_number,
        searcher.last,
        searcher.best,
    )


def test_a_searcher_that_saves_itself_is_kept_by_its_own_file() -> None:
    searcher = Saved()
    searcher.suggest("a")
    searcher.suggest("b")

    assert copied(searcher, Saved()).suggest("c") == {"x": 3}


@pytest.mark.req("U-078")
def test_a_searcher_that_cannot_be_kept_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"self\.lock") as caught:
        SearchPlan(Forgetful(), {})

    assert "self.list" in str(caught.value)
    assert "get_state" in str(caught.value)


def test_a_users_state_that_is_not_data_is_refused_at_the_start() -> None:
    class Own(Climber):
        def get_state(self) -> dict[str, Any]:
            return {"model": object()}

    with pytest.raises(ConfigError, match="model"):
        SearchPlan(ConcurrencyLimiter(Own(), 2), {})


def test_generators_of_numpy_are_kept() -> None:
    class Drawing(Climber):
        def __init__(self) -> None:
            super().__init__()
            self.new = np.random.default_rng()
            self.old = np.random.RandomState()

        def suggest(self, trial_id: str) -> dict[str, Any]:
            return {"x": float(self.new.random()), "y": float(self.old.rand())}

    searcher = Drawing()
    searcher.suggest("a")
    restored = copied(searcher, Drawing())

    assert [searcher.suggest("b") for _ in range(3)] == [restored.suggest("b") for _ in range(3)]


def test_a_searcher_that_suggests_something_else_causes_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    searcher = Climber()
    with caplog.at_level(logging.WARNING):
        searcher.recall("a", {"x": 99.0, "constant": 1})
        searcher.recall("b", {"x": 99.0, "constant": 1})

    assert len(caplog.records) == 1
    assert "99.0" in caplog.text


def test_an_equal_suggestion_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    expected = Climber().suggest("a")
    with caplog.at_level(logging.WARNING):
        Climber().recall("a", {**expected, "constant": 1})

    assert not caplog.records


def test_a_searcher_is_saved_to_a_file_and_a_folder(tmp_path: Path) -> None:
    searcher = Climber()
    searcher.suggest("a")
    searcher.save(str(tmp_path / "state"))
    searcher.save_to_dir(str(tmp_path), "now")
    by_file, by_folder = Climber(), Climber()
    by_file.restore(str(tmp_path / "state"))
    by_folder.restore_from_dir(str(tmp_path))

    assert searcher.suggest("b") == by_file.suggest("b") == by_folder.suggest("b")
    with pytest.raises(FileNotFoundError):
        searcher.restore_from_dir(str(tmp_path.parent / tmp_path.name / ".."))


def test_a_limiter_holds_back_and_forgets_no_trial() -> None:
    limiter = ConcurrencyLimiter(Climber(), 2)
    limiter.suggest("a")
    limiter.suggest("b")
    assert limiter.suggest("c") is None

    limiter.on_trial_complete("a", error=True)
    limiter.suggest("c")
    limiter.on_revive("a")
    other = copied(limiter, ConcurrencyLimiter(Climber(), 2))

    assert isinstance(other, ConcurrencyLimiter)
    assert other.live_trials == ["b", "c", "a"]
    other.on_trial_complete("a", {"loss": 0.5})
    assert "a" in other.searcher.seen  # type: ignore[attr-defined]
    other.on_trial_complete("z", {"loss": 9.0})
    assert "z" in other.searcher.seen  # type: ignore[attr-defined]


def test_a_batch_is_reported_when_all_of_it_has_ended() -> None:
    limiter = ConcurrencyLimiter(Climber(), 2, batch=True)
    limiter.suggest("a")
    limiter.suggest("b")
    limiter.on_trial_complete("b", {"loss": 1.0})
    assert limiter.suggest("c") is None
    other = copied(limiter, ConcurrencyLimiter(Climber(), 2, batch=True))
    inner = other.searcher  # type: ignore[attr-defined]

    assert inner.seen == set()
    other.on_trial_complete("a", {"loss": 2.0})
    assert inner.seen == {"a", "b"}
    assert isinstance(other.suggest("c"), dict)


def test_a_searcher_that_limits_itself_is_left_to_it() -> None:
    searcher = TuneBOHB({"x": uniform(0, 1)}, metric="loss", mode="min")
    limiter = ConcurrencyLimiter(searcher, 1)
    limiter.suggest("a")
    assert limiter.suggest("b") is None

    limiter.on_pause("a")

    assert isinstance(limiter.suggest("b"), dict)


def test_a_repeater_repeats_and_tells_the_mean_of_what_came() -> None:
    repeater = Repeater(Climber(), repeat=3)
    first = [repeater.suggest(name) for name in "abc"]
    assert [config["__trial_index__"] for config in first] == [0, 1, 2]  # type: ignore[index]
    assert len({config["x"] for config in first}) == 1  # type: ignore[index]
    inner = repeater.searcher
    assert isinstance(inner, Climber)

    repeater.on_trial_complete("a", {"loss": 1.0})
    repeater.on_trial_complete("b", {"loss": float("nan")})
    assert inner.best[1] == float("inf")
    repeater.on_trial_complete("c", {"loss": 3.0})

    assert inner.best[1] == 2.0


def test_a_repeater_whose_trials_all_failed_says_so() -> None:
    repeater = Repeater(Climber(), repeat=2)
    repeater.suggest("a")
    repeater.suggest("b")
    repeater.on_trial_complete("a", error=True)
    repeater.on_trial_complete("b", error=True)

    assert repeater.searcher.seen == {"a"}  # type: ignore[attr-defined]
    assert repeater.searcher.best == (0.0, float("inf"))  # type: ignore[attr-defined]


def test_searchers_are_made_by_name() -> None:
    assert isinstance(create_searcher("random"), BasicVariantGenerator)
    assert isinstance(create_searcher("bohb", seed=1), TuneBOHB)
    with pytest.warns(UserWarning, match="has no argument depth"):
        assert isinstance(create_searcher("hyperopt", depth=3, gamma=0.3), HyperOptSearch)
    with pytest.raises(ConfigError, match="'optuna'"):
        create_searcher("nevergrad")
    with pytest.raises(ConfigError, match="no searcher"):
        create_searcher("magic")


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="min"):
        Searcher("loss", "smallest")
    with pytest.raises(ConfigError, match="2 metrics"):
        Searcher(["a", "b"], ["min"])
    with pytest.raises(ConfigError, match="max_concurrent"):
        ConcurrencyLimiter(Climber(), 0)
    with pytest.raises(ConfigError, match="not a searcher"):
        ConcurrencyLimiter("optuna", 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="repeat"):
        Repeater(Climber(), 0)
    with pytest.raises(ConfigError, match="bohb_config"):
        TuneBOHB(bohb_config={"speed": 3})
    with pytest.raises(ConfigError, match="random_state"):
        BasicVariantGenerator(random_state="seven")


class Memory(Searcher):
    """Suggests by containers whose exact type matters: what it has seen of the last three."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.last: deque[int] = deque(maxlen=3)
        self.all: deque[int] = deque()
        self.counts: Counter[int] = Counter()
        self.by_rest: defaultdict[int, list[int]] = defaultdict(list)
        self.nested: defaultdict[str, Any] = defaultdict(dict, {"a": defaultdict(int, {"b": 1})})
        self.plain: defaultdict[str, Any] = defaultdict(None, {"a": 1})
        self.order: OrderedDict[str, int] = OrderedDict()
        self.small = np.float32(0.1)
        self.grid = np.arange(6, dtype="int16").reshape(2, 3)
        self.texts = np.array(["", "ab"])
        self.empty = np.str_("")
        self.folders: dict[Any, Any] = {Path("a"): (Path("b/c"), [Path("d")])}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        number = sum(self.last) + self.counts[len(self.all)] + len(self.by_rest[len(self.all) % 2])
        self.small += np.float32(0.1)
        self.grid[0, 0] += 1
        self.order[trial_id] = number
        self.order.move_to_end(next(iter(self.order)))
        self.nested[trial_id]["b"] = self.nested["a"]["c"]
        depth = len(self.folders[Path("a")][0].parts)
        return {"x": number + depth + float(self.small) + int(self.grid.sum())}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        seen = len(self.all) + 1
        self.last.append(seen)
        self.all.append(seen)
        self.counts[seen] += 2
        self.by_rest[seen % 2].append(seen)


def test_a_searcher_decides_the_same_though_its_state_was_written_down_in_between() -> None:
    straight, restored = Memory(), Memory()

    def play(number: int, searcher: Searcher) -> Any:
        config = searcher.suggest(f"t{number}")
        searcher.on_trial_complete(f"t{number}", {"loss": 1.0})
        return config

    for number in range(12):
        restored = copied(restored, Memory())  # type: ignore[assignment]
        assert play(number, straight) == play(number, restored)

    for name, value in vars(straight).items():
        other = getattr(restored, name)
        assert type(other) is type(value) and repr(other) == repr(value), name
    assert (restored.last.maxlen, restored.all.maxlen) == (3, None)
    assert restored.plain.default_factory is None


class OwnDict(dict[str, Any]):
    pass


class OwnRandom(random.Random):
    pass


def held_by_itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@pytest.mark.parametrize(
    "value",
    [
        OwnDict(),
        pytest.param(defaultdict(lambda: 7), id="default of a function"),
        pytest.param(defaultdict(OwnDict), id="default of a class"),
        OwnRandom(1),
        random.SystemRandom(),
        UserDict(),
        np.array([object()]),
        np.zeros(2).view(np.recarray),
        held_by_itself(),
        {"deep": [OwnDict()]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_as_it_was_is_refused_at_the_start(value: Any) -> None:
    searcher = Memory()
    searcher.all = value

    with pytest.raises(ConfigError, match=r"self\.all"):
        SearchPlan(searcher, {"x": 1})
