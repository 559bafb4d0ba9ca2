from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast.api.signature import name_of, takes_config
from holdfast.errors import ConfigError


def with_config(config: dict[str, Any]) -> None: ...


def without_config() -> None: ...


def with_default(config: dict[str, Any], lr: float = 0.1) -> None: ...


def with_any(*args: Any, **kwargs: Any) -> None: ...


def with_two(config: dict[str, Any], rank: int) -> None: ...


def by_name(*, lr: float) -> None: ...


async def waiting(config: dict[str, Any]) -> None: ...


def yielding() -> Iterator[int]:
    yield 1


async def yielding_later() -> AsyncIterator[int]:
    yield 1


class Loop:
    def __call__(self, config: dict[str, Any]) -> None: ...

    def method(self) -> None: ...

    @classmethod
    def of_class(cls, config: dict[str, Any]) -> None: ...


class WaitingLoop:
    async def __call__(self) -> None: ...


class YieldingLoop:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (with_config, True),
        (without_config, False),
        (with_default, True),
        (with_any, False),
        (lambda: None, False),
        (lambda config: None, True),
        (Loop(), True),
        (Loop().method, False),
        (Loop.of_class, True),
        (functools.partial(with_two, rank=3), True),
        (functools.partial(with_two, {}, 3), False),
        (functools.partial(by_name, lr=1.0), False),
    ],
)
def test_whatever_can_be_called_can_be_a_training_function(
    function: Callable[..., Any], takes: bool
) -> None:
    assert takes_config(function) is takes


def test_what_a_decorator_returns_gets_a_config_if_there_is_one() -> None:
    assert takes_config(with_any, is_given=True)
    assert takes_config(with_config, is_given=True)
    assert not takes_config(without_config, is_given=True)


REFUSED: dict[str, tuple[Any, str]] = {
    "text": ("train", "train_loop_per_worker='train' is not a function, this is str"),
    "the result of a call": (None, "train_loop_per_worker=None is not a function"),
    "two arguments": (with_two, "`with_two` requires 2 arguments (config, rank)"),
    "by name": (by_name, "`by_name` requires lr by name"),
    "a builtin": (max, "cannot tell which arguments `max` takes"),
    "async": (waiting, "`waiting` is `async def`: calling it runs nothing"),
    "async in a partial": (functools.partial(waiting, {}), "`waiting` is `async def`"),
    "async in a class": (WaitingLoop(), "`WaitingLoop` is `async def`"),
    "async generator": (yielding_later, "`yielding_later` is `async def`"),
    "generator": (yielding, "`yielding` is a generator, because it has a `yield`"),
    "generator in a class": (YieldingLoop(), "`YieldingLoop` is a generator"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_train_is_refused_with_a_way_out(case: str) -> None:
    function, message = REFUSED[case]

    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        takes_config(function)

    assert refused.value.hint


def test_a_nested_function_goes_by_its_own_name() -> None:
    def inner() -> None: ...

    assert name_of(inner) == "inner"
    assert name_of(functools.partial(inner)) == "inner"
    assert name_of(Loop().method) == "Loop.method"
    assert name_of(Loop()) == "Loop"
