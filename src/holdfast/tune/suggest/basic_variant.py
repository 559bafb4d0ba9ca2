"""The path of before 2.0; see `holdfast.tune.search`."""

from holdfast.tune.search import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
