"""What is raised where an object is not to be had."""

from __future__ import annotations

from holdfast.exceptions import ObjectLostError


class ObjectLost(ObjectLostError):
    """The object of a reference is not there any more, or not for this process."""

    code = "HF800"
