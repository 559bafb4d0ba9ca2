"""Datasets for training on one machine: split among ranks, and resumable within an epoch.

A name below is loaded when it is first used: trainers import this package, and few need all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.data.config import DataConfig as DataConfig
    from holdfast.data.creation import from_arrow as from_arrow
    from holdfast.data.creation import from_huggingface as from_huggingface
    from holdfast.data.creation import from_items as from_items
    from holdfast.data.creation import from_numpy as from_numpy
    from holdfast.data.creation import from_pandas as from_pandas
    from holdfast.data.creation import from_torch as from_torch
    from holdfast.data.creation import range as range  # noqa: A004  # Ray's name for it
    from holdfast.data.creation import read_csv as read_csv
    from holdfast.data.creation import read_json as read_json
    from holdfast.data.creation import read_parquet as read_parquet
    from holdfast.data.dataset import Dataset as Dataset
    from holdfast.data.iterator import DataIterator as DataIterator
    from holdfast.data.reading import Schema as Schema
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.data.config": "DataConfig",
        "holdfast.data.creation": (
            "from_arrow from_huggingface from_items from_numpy from_pandas from_torch range "
            "read_csv read_json read_parquet"
        ),
        "holdfast.data.dataset": "Dataset",
        "holdfast.data.iterator": "DataIterator",
        "holdfast.data.reading": "Schema",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
