"""What trials need: one mapping of resources per process, reserved as one unit or not at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import is_number
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.errors import NotRunnable

Bundle = dict[str, float]
_NAMES = {"cpu": "CPU", "gpu": "GPU", "extra_cpu": "CPU", "extra_gpu": "GPU"}
ATTRIBUTE = "_resources"  # where `with_resources` leaves its word, as Ray has it


class PlacementGroupFactory:
    """What a trial needs: a bundle for the trainable's own process, then one for each other.

    Args:
        bundles: Amounts by resource. If the first is empty, the trainable itself needs nothing.
        strategy: How bundles may be spread over nodes.
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *_: Any, **__: Any
    ) -> None:
        if not bundles or not all(isinstance(one, Mapping) for one in bundles):
            raise ConfigError(
                f"bundles={shown(bundles)}: a list of at least one dictionary of resources",
                hint="PlacementGroupFactory([{'CPU': 1}])",
            )
        self.bundles = [bundle_of(one) for one in bundles]
        self.strategy = strategy

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the trainable itself needs nothing."""
        return not any(self.bundles[0].values())

    @property
    def required_resources(self) -> Bundle:
        """The sum of all bundles."""
        found: Bundle = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                found[name] = found.get(name, 0.0) + amount
        return found

    def __call__(self) -> PlacementGroupFactory:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self.bundles == other.bundles

    def __hash__(self) -> int:
        return hash(tuple(tuple(sorted(bundle.items())) for bundle in self.bundles))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles}, strategy={self.strategy!r})"


def bundle_of(resources: Mapping[str, Any]) -> Bundle:
    """Return amounts by resource, under the names that nodes have for them."""
    found: Bundle = {}
    for name, amount in resources.items():
        if name in ("custom_resources", "resources") and isinstance(amount, Mapping):
            found |= bundle_of(amount)
            continue
        if not is_number(amount) or amount < 0:
            raise ConfigError(
                f"{name}={shown(amount)}: a trial needs a number of it, 0 or more",
                hint="resources={'cpu': 1, 'gpu': 0.5}",
            )
        known = _NAMES.get(name, name)
        found[known] = found.get(known, 0.0) + float(amount)
    return {name: amount for name, amount in found.items() if amount}


def bundles_of(wanted: Any, config: Mapping[str, Any]) -> list[Bundle]:
    """Return what a trial with `config` reserves; `wanted` in any of the forms users have."""
    if callable(wanted) and not isinstance(wanted, PlacementGroupFactory):
        wanted = wanted(dict(config))
    match wanted:
        case None:
            return [{"CPU": 1.0}]
        case PlacementGroupFactory():
            return [dict(bundle) for bundle in wanted.bundles]
        case Mapping():
            return [bundle_of(wanted)]
        case list() if all(isinstance(one, Mapping) for one in wanted):
            return [bundle_of(one) for one in wanted]
        case _:
            raise ConfigError(
                f"resources={shown(wanted)}: a dictionary, a PlacementGroupFactory, or a function"
                " of the config that returns one",
                hint="tune.with_resources(trainable, {'cpu': 2})",
            )


def with_resources(trainable: Any, resources: Any) -> Any:
    """Return a trainable whose trials reserve `resources`.

    Args:
        trainable: A function or a class.
        resources: A dictionary, a `PlacementGroupFactory`, or a function of the config.
    """
    if not callable(resources):
        bundles_of(resources, {})  # what is wrong with it is told now
    if isinstance(trainable, type):
        return type(trainable.__name__, (trainable,), {ATTRIBUTE: staticmethod(_keep(resources))})
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a class that can be run")

    @functools.wraps(trainable)
    def with_needs(config: dict[str, Any], **more: Any) -> Any:
        return trainable(config, **more)

    setattr(with_needs, ATTRIBUTE, resources)
    return with_needs


def _keep(resources: Any) -> Callable[..., Any]:
    return resources if callable(resources) else lambda _: resources
