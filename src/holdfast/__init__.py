"""Fault-tolerant training runs and hyperparameter searches.

Public submodules and the names below are loaded when first used, so `import holdfast` is quick and
imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast import checkpoint as checkpoint
    from holdfast import errors as errors
    from holdfast.checkpoint import Checkpoint as Checkpoint
    from holdfast.engine.selection import init as init
    from holdfast.engine.selection import is_initialized as is_initialized
    from holdfast.engine.selection import shutdown as shutdown
    from holdfast.objects import ObjectRef as ObjectRef
    from holdfast.objects import get as get
    from holdfast.objects import put as put
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.checkpoint": "Checkpoint",
        "holdfast.engine.selection": "init is_initialized shutdown",
        "holdfast.objects": "ObjectRef get put",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
    __all__ += ["__version__"]
