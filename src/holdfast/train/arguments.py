"""Checks of the arguments of trainers, and the record of which were given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from holdfast.api.assignment import own_copy
from holdfast.api.checks import this_is
from holdfast.api.deprecated import warn_deprecated
from holdfast.core.names import shown
from holdfast.data.config import must_be_dataset
from holdfast.errors import ConfigError

T = TypeVar("T")


def config_or_default(given: T | None, name: str, kind: type[T]) -> T:
    """Return a copy of the given config, or the default one for None."""
    if given is None:
        return kind()
    must_be_instance(given, name, kind)
    return own_copy(given)


def must_be_instance(given: object, name: str, kind: type[Any]) -> None:
    """Raise `ConfigError` if an argument is not an instance of `kind`."""
    if not isinstance(given, kind):
        raise ConfigError(
            f"{name}={shown(given)}: must be a {kind.__name__} of Holdfast, {this_is(given)}",
            hint=f"write {name}={kind.__name__}(…)",
        )


def dictionary(given: Any, name: str) -> dict[str, Any]:
    """Return a copy of a dictionary, an empty one for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name}={shown(given)}: must be a dictionary, {this_is(given)}")
    return dict(given)


def named_datasets(given: Any) -> dict[str, Any]:
    """Return a copy of the datasets by name; raise if a name or a dataset is none."""
    datasets: dict[Any, Any] = dictionary(given, "datasets")
    for name, dataset in datasets.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"datasets has the key {shown(name)}: the name of a dataset is a string",
                hint='datasets={"train": …}',
            )
        if not callable(dataset):  # a function's result is checked when it is called
            must_be_dataset(name, dataset)
    return datasets


def warn_of_deprecated(kind: str, metadata: object, checkpoint: object) -> None:
    """Warn of the deprecated arguments that were given."""
    if metadata is not None:
        warn_deprecated(f"{kind}(metadata=…) is deprecated: pass it inside train_loop_config")
    if checkpoint is not None:
        warn_deprecated(
            f"{kind}(resume_from_checkpoint=…) is deprecated: pass the checkpoint inside"
            " train_loop_config, and load it if get_checkpoint() is None"
        )


def given_arguments(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return, by name, the arguments of a method call that are not None, without `self`."""
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs).arguments
    given: dict[str, Any] = {}
    for name, value in list(bound.items())[1:]:
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            given |= value
        elif value is not None:
            given[name] = value
    return given


def show_constructor(kind: type[Any]) -> None:
    """Make `help` and editors show the signature of `__init__`, not the `*args` of `__new__`."""
    own = inspect.signature(kind.__init__)
    parameters = list(own.parameters.values())[1:]
    kind.__signature__ = own.replace(parameters=parameters, return_annotation=own.empty)
