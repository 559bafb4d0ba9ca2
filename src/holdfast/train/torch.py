"""Training with PyTorch: the public path of `holdfast.frameworks.torch`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.frameworks.torch import *  # noqa: F403
else:
    from holdfast.lazy_exports import exports_of

    __all__, __getattr__, __dir__ = exports_of("holdfast.frameworks.torch", under=__name__)
