"""Import path of `holdfast.tune.search` before Ray 2.0."""

from holdfast.tune.search import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
