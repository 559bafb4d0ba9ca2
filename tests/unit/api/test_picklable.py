from __future__ import annotations

import functools
import linecache
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api import picklable
from holdfast.api.picklable import must_travel
from holdfast.errors import ConfigError

SCRIPT = """\
import functools, threading
lock = threading.Lock()
class Model:
    shared = None
    def __init__(self):
        self.weights = [1.0]
        self.inner = {"guard": threading.Lock()}
    def fit(self, config):
        return self.weights
    def __call__(self):
        return self.weights
def step():
    return lock
def uses_global():
    return lock
def calls_step():
    def inner():
        return step()
    return inner()
def main():
    handle = threading.Lock()
    model = Model()
    def captures():
        return handle
    def captures_object():
        return model
    return captures, captures_object, lambda: handle
def defaults(config, guard=lock): ...
def defaults_by_name(config, *, guard=lock): ...
def two(guard, config): ...
def wrapper(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner
wrapped = wrapper(uses_global)
class WithSlots:
    __slots__ = ("guard",)
slotted = WithSlots()
slotted.guard = lock
def uses_slots():
    return slotted
class Holder:
    guard = lock
def uses_class():
    return Holder
def fine(config):
    return len(config)
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """Return what a script defines; its functions travel by value, as those of `__main__` do."""
    name = "a_script.py"
    linecache.cache[name] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), name)
    defined: dict[str, Any] = {"__name__": "a_script"}
    exec(compile(SCRIPT, name, "exec"), defined)
    return defined


Chosen = Callable[[dict[str, Any]], Callable[..., Any]]

CULPRITS: dict[str, tuple[Chosen, str]] = {
    "captured": (
        lambda script: script["main"]()[0],
        (
            "the training function `captures` cannot be sent to workers: the variable `handle`"
            " it uses (a _thread.lock, captured from the enclosing function `main` at"
            " a_script.py:21) cannot be pickled"
        ),
    ),
    "captured by a lambda": (
        lambda script: script["main"]()[2],
        (
            "the variable `handle` it uses (a _thread.lock, captured from the enclosing"
            " function `main` at a_script.py:21)"
        ),
    ),
    "inside an object": (
        lambda script: script["main"]()[1],
        (
            "the variable `model` it uses (an a_script.Model, captured from the enclosing"
            " function `main` at a_script.py:22) cannot be pickled: its `.inner['guard']` is a"
            " _thread.lock"
        ),
    ),
    "global": (
        lambda script: script["uses_global"],
        "the variable `lock` it uses (a _thread.lock, a global set at a_script.py:2)",
    ),
    "global of another function": (
        lambda script: script["calls_step"],
        (
            "`calls_step` cannot be sent to workers: the variable `lock` that `step` uses (a"
            " _thread.lock, a global set at a_script.py:2)"
        ),
    ),
    "behind a decorator": (
        lambda script: script["wrapped"],
        "the variable `lock` it uses (a _thread.lock, a global set at a_script.py:2)",
    ),
    "default": (
        lambda script: script["defaults"],
        "the variable `guard` it uses (a _thread.lock, the default of an argument)",
    ),
    "default by name": (
        lambda script: script["defaults_by_name"],
        "the variable `guard` it uses (a _thread.lock, the default of an argument)",
    ),
    "partial": (
        lambda script: functools.partial(script["two"], script["lock"]),
        "the variable `guard` it uses (a _thread.lock, an argument given by functools.partial)",
    ),
    "partial by name": (
        lambda script: functools.partial(script["two"], guard=script["lock"]),
        "the variable `guard` it uses (a _thread.lock, an argument given by functools.partial)",
    ),
    "method": (
        lambda script: script["Model"]().fit,
        (
            "the variable `self` it uses (an a_script.Model, the object that `Model.fit` is a"
            " method of) cannot be pickled: its `.inner['guard']` is a _thread.lock"
        ),
    ),
    "instance": (
        lambda script: script["Model"](),
        "`Model` cannot be sent to workers: its `.inner['guard']` (a _thread.lock) cannot be",
    ),
    "slots": (
        lambda script: script["uses_slots"],
        (
            "the variable `slotted` it uses (an a_script.WithSlots, a global set at"
            " a_script.py:39) cannot be pickled: its `.guard` is a _thread.lock"
        ),
    ),
    "class": (
        lambda script: script["uses_class"],
        (
            "the variable `Holder` it uses (a class, a global set at a_script.py:43) cannot be"
            " pickled: its `.guard` is a _thread.lock"
        ),
    ),
}


@pytest.mark.parametrize("case", CULPRITS)
def test_the_variable_that_cannot_travel_is_named_with_its_origin(
    case: str, script: dict[str, Any]
) -> None:
    choose, message = CULPRITS[case]

    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        must_travel(choose(script), None)

    assert "inside the training function" in str(refused.value.hint)
    assert refused.value.__cause__ is not None


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"lock": threading.Lock()}, "train_loop_config['lock'] (a _thread.lock)"),
        ({"a": [1, (2, threading.Lock())]}, "train_loop_config['a'][1][1] (a _thread.lock)"),
        ({"log": open}, None),
        ({"rows": (row for row in range(2))}, "train_loop_config['rows'] (a generator)"),
    ],
)
def test_the_item_of_the_config_that_cannot_travel_is_named(
    config: dict[str, Any], path: str | None, script: dict[str, Any]
) -> None:
    if path is None:
        must_travel(script["fine"], config)
        return

    with pytest.raises(ConfigError, match=re.escape(f"{path} cannot be pickled")):
        must_travel(script["fine"], config)


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("I stay here")


def test_an_object_that_refuses_by_itself_is_named(script: dict[str, Any]) -> None:
    mine = Refuses()

    with pytest.raises(ConfigError, match="the variable `mine` it uses") as refused:
        must_travel(lambda: mine, None)

    assert "I stay here" in str(refused.value.__cause__)


def test_things_that_hold_each_other_are_no_endless_search() -> None:
    cycle: dict[str, Any] = {"lock": threading.Lock()}
    cycle["itself"] = cycle

    with pytest.raises(ConfigError, match="the variable `cycle` it uses"):
        must_travel(lambda: cycle, None)


def test_a_function_of_a_module_travels_by_name_whatever_it_uses() -> None:
    must_travel(test_things_that_hold_each_other_are_no_endless_search, {"lr": 0.1})


def test_what_is_very_large_is_warned_of_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picklable, "LARGE_BYTES", 1 << 20)
    small, table = [1], bytes(3 << 20)

    with pytest.warns(UserWarning, match="3 MB of them `table`") as caught:
        must_travel(lambda: (small, table), {"lr": 0.1})

    assert caught[0].filename == __file__


def test_a_large_item_of_the_config_is_warned_of_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picklable, "LARGE_BYTES", 1 << 20)

    with pytest.warns(UserWarning, match=re.escape("`train_loop_config['rows']`")):
        must_travel(lambda config: None, {"rows": bytes(2 << 20)})
