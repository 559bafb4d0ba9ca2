"""Training with PyTorch: the names of `holdfast.frameworks.torch`, where users look for them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.frameworks.torch import *  # noqa: F403
else:
    from holdfast.lazy_exports import exports_of

    __all__, __getattr__, __dir__ = exports_of("holdfast.frameworks.torch", under=__name__)
