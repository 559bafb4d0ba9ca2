"""`DataConfig`: which datasets are split among the ranks; and the part that each rank gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast.core.names import shown
from holdfast.errors import ConfigError, HoldfastBug

if TYPE_CHECKING:
    from holdfast.data.dataset import Dataset
    from holdfast.data.iterator import DataIterator


@dataclass(frozen=True)
class DataConfig:
    """Which datasets are split among the ranks.

    Attributes:
        datasets_to_split: "all", or a list of names; each rank gets all rows of the others.
        execution_options: Of Ray Data; has no effect here.
        enable_shard_locality: Of Ray Data; has no effect here.
        equal: Whether each rank gets the same number of rows in an epoch. Then the last rows, fewer
            than there are ranks, are left out; else some ranks get one row more than others.
    """

    datasets_to_split: Literal["all"] | Sequence[str] = "all"
    execution_options: Any = None
    enable_shard_locality: bool = True
    equal: bool = True

    def __post_init__(self) -> None:
        lines, hint = [], None
        names = self.datasets_to_split
        if isinstance(names, str):
            if names != "all":
                lines.append(f"datasets_to_split={names!r}: must be 'all' or a list of names")
                hint = f"datasets_to_split=[{names!r}]"
        elif not isinstance(names, list | tuple) or not all(
            isinstance(name, str) for name in names
        ):
            lines.append(f"datasets_to_split={shown(names)}: must be 'all' or a list of names")
        lines += [
            f"{name}={shown(given)}: must be True or False"
            for name in ("enable_shard_locality", "equal")
            if not isinstance(given := getattr(self, name), bool)
        ]
        if lines:
            listed = "".join(f"\n  - {line}" for line in lines)
            raise ConfigError(f"DataConfig cannot work:{listed}", hint=hint)

    def splits(self, name: str) -> bool:
        """Return whether the dataset `name` is split among the ranks."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split


def evaluated(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]], config: DataConfig | None = None
) -> dict[str, Dataset]:
    """Return the datasets of one attempt: functions are called now.

    The driver does this once per attempt, and not each rank: a function may shuffle without a seed,
    and the ranks must get parts of the same dataset.
    """
    if not isinstance(datasets, Mapping):
        raise ConfigError(
            f"datasets={shown(datasets)}: must be a dict of names and datasets",
            hint='datasets={"train": …}',
        )
    if config is not None and config.datasets_to_split != "all":
        for name in config.datasets_to_split:
            if name not in datasets:
                names = ", ".join(map(repr, datasets)) or "none"
                raise ConfigError(f"datasets_to_split names {name!r}: the datasets are {names}")
    return {name: _evaluated(name, given) for name, given in datasets.items()}


def shards(
    datasets: Mapping[str, Dataset], config: DataConfig | None, world_size: int, rank: int
) -> dict[str, DataIterator]:
    """Return the part of one rank of each dataset that `evaluated` returned.

    See `DataConfig` for which datasets are split, and how evenly.
    """
    from holdfast.data.dataset import Dataset, named, shard

    config = config or DataConfig()
    for name, dataset in datasets.items():
        if not isinstance(dataset, Dataset):
            raise HoldfastBug(f"datasets[{name!r}] must be evaluated first, once for all ranks")
    return {
        name: shard(named(dataset, name), world_size, rank, equal=config.equal)
        if config.splits(name)
        else shard(named(dataset, name), 1, 0)
        for name, dataset in datasets.items()
    }


def check_shares(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]], config: DataConfig | None, ranks: int
) -> None:
    """Raise if it is known already that a rank would get no row of a dataset.

    The size of other datasets is known once a function is called, or once a filter was applied.
    """
    from holdfast.data.dataset import Dataset

    config = config or DataConfig()
    for name, dataset in datasets.items():
        if ranks == 1 or not isinstance(dataset, Dataset) or not config.splits(name):
            continue
        rows = dataset.plan.length()
        if rows is not None and rows < ranks:
            others = ", ".join(f'"{other}"' for other in datasets if other != name)
            raise ConfigError(
                f"datasets[{name!r}] has {rows} rows for {ranks} ranks: each needs at least one",
                hint="use fewer workers, or give every rank all rows:"
                f" DataConfig(datasets_to_split=[{others}])",
            )


def shared(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]],
) -> dict[str, Dataset | Callable[[], Dataset]]:
    """Return the datasets with rows in memory moved to shared memory; functions stay."""
    from holdfast.data.dataset import Dataset
    from holdfast.data.dataset import shared as shared_dataset

    return {
        name: shared_dataset(dataset) if isinstance(dataset, Dataset) else dataset
        for name, dataset in datasets.items()
    }


def must_be_dataset(name: str, given: object, what: str = "is") -> None:
    """Raise if `given` is not a dataset; `what` tells how it was obtained."""
    from holdfast.data.dataset import Dataset

    if not isinstance(given, Dataset):
        raise ConfigError(
            f"datasets[{name!r}] {what} {type(given).__module__}.{type(given).__qualname__}: it"
            " must be a Dataset of holdfast.data, or a function that returns one",
            hint="make one with holdfast.data.from_items, from_pandas, from_torch, read_parquet …",
        )


def _evaluated(name: str, given: Any) -> Dataset:
    from holdfast.data.dataset import Dataset

    is_function = callable(given) and not isinstance(given, Dataset)
    dataset: Dataset = given() if is_function else given
    must_be_dataset(name, dataset, "was made as" if is_function else "is")
    return dataset
