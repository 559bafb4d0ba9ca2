"""Which datasets of a trainer are dealt out to its ranks, and the parts each rank gets."""

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
        datasets_to_split: "all", or the names of those that are; each rank gets all rows of others.
        execution_options: Of Ray Data; decides nothing here.
        enable_shard_locality: Of Ray Data; decides nothing here.
        equal: Whether each rank gets equally many rows of an epoch, and the last few rows, fewer
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
        elif not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
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
        """Return whether the dataset `name` is dealt out to the ranks."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split


def evaluated(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]], config: DataConfig | None = None
) -> dict[str, Dataset]:
    """Return the datasets of one attempt: those given as functions are called now.

    Done once for each attempt, by the driver, and not by each rank: a function may shuffle without
    a seed, and the ranks must get parts of one and the same dataset.
    """
    if not isinstance(datasets, Mapping):
        raise ConfigError(
            f"datasets={shown(datasets)}: must be a dict of names and datasets",
            hint='datasets={"train": …}',
        )
    if config is not None and config.datasets_to_split != "all":
        for name in config.datasets_to_split:
            if name not in datasets:
                known = ", ".join(map(repr, datasets)) or "none"
                raise ConfigError(f"datasets_to_split names {name!r}: the datasets are {known}")
    return {name: _evaluated(name, given) for name, given in datasets.items()}


def shards(
    datasets: Mapping[str, Dataset], config: DataConfig | None, world_size: int, rank: int
) -> dict[str, DataIterator]:
    """Return what one rank gets of each dataset that `evaluated` returned.

    Each rank of a split dataset has the same number of rows, unless they need not be equal; of
    others it has all.
    """
    from holdfast.data.dataset import Dataset, named, shard

    config = config or DataConfig()
    for name, dataset in datasets.items():
        if not isinstance(dataset, Dataset):
            raise HoldfastBug(f"datasets[{name!r}] is to be evaluated first, once for all ranks")
    return {
        name: shard(named(dataset, name), world_size, rank, equal=config.equal)
        if config.splits(name)
        else shard(named(dataset, name), 1, 0)
        for name, dataset in datasets.items()
    }


def check_shares(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]], config: DataConfig | None, ranks: int
) -> None:
    """Raise if it is known already that some of so many ranks would get no row of a dataset.

    What a function makes is known when it is called; what a filter leaves, when it is read.
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
                f"datasets[{name!r}] has {rows} rows for {ranks} ranks: each needs one at least",
                hint="use fewer workers, or give every rank all rows:"
                f" DataConfig(datasets_to_split=[{others}])",
            )


def shared(
    datasets: Mapping[str, Dataset | Callable[[], Dataset]],
) -> dict[str, Dataset | Callable[[], Dataset]]:
    """Return the datasets with what is in memory there once for all processes; functions stay."""
    from holdfast.data.dataset import Dataset
    from holdfast.data.dataset import shared as shared_dataset

    return {
        name: shared_dataset(dataset) if isinstance(dataset, Dataset) else dataset
        for name, dataset in datasets.items()
    }


def must_be_dataset(name: str, given: object, what: str = "is") -> None:
    """Raise if what was given, or made, by that name is not a dataset."""
    from holdfast.data.dataset import Dataset

    if not isinstance(given, Dataset):
        raise ConfigError(
            f"datasets[{name!r}] {what} {type(given).__module__}.{type(given).__qualname__}: it"
            " must be a Dataset of holdfast.data, or a function that returns one",
            hint="make one with holdfast.data.from_items, from_pandas, from_torch, read_parquet …",
        )


def _evaluated(name: str, given: Any) -> Dataset:
    from holdfast.data.dataset import Dataset

    is_made = callable(given) and not isinstance(given, Dataset)
    made: Dataset = given() if is_made else given
    must_be_dataset(name, made, "was made as" if is_made else "is")
    return made
