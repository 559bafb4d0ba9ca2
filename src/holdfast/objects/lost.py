"""What is raised where an object is not to be had."""

from __future__ import annotations

from holdfast.errors import HoldfastError


class ObjectLost(HoldfastError):
    """The object of a reference is not there any more, or not for this process."""

    code = "HF800"
