"""Objects that the processes of one machine share: put once, read by all without copying.

An object is in memory that the process that put it holds open, without a name in any filesystem:
when that process ends, in whatever way, nothing is left. Other processes reach it through its
owner, so it makes no difference whether they were started before or after.

An object exists as long as an `ObjectRef` to it is alive in the process that put it. References in
other processes do not count, so keep yours while others work with theirs. A study keeps those in
its `param_space`, a trainer those in its config. A value that a process has read stays valid
there, whatever happens to the owner.
"""

from holdfast.objects.memory import ObjectLost
from holdfast.objects.refs import ObjectRef, get, put

__all__ = ["ObjectLost", "ObjectRef", "get", "put"]
