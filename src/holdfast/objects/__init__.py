"""Objects that processes of one machine share: put once, read by all without a copy for each.

An object lies in memory that the process that put it holds open, under no name in any file system:
when that process ends, however it ends, nothing is left. Others reach it through that process, so
it makes no difference whether they were started before or after.

How long an object is there: as long as an `ObjectRef` to it is alive in the process that put it.
References elsewhere do not count; keep yours while others work with theirs. A study keeps those in
its `param_space`, a trainer those in its config. What a process has got it keeps, whatever
happens to the owner.
"""

from holdfast.objects.memory import ObjectLost
from holdfast.objects.refs import ObjectRef, get, put

__all__ = ["ObjectLost", "ObjectRef", "get", "put"]
