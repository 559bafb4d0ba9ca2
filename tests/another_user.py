"""Runs Python as another user of this machine, in a view of its files that the test chooses.

    python -m tests.another_user '{"uid": 12345, …}' -c 'print(1)'

The process gets a mount namespace of its own, so that nothing it mounts is seen by others. An
interpreter below a folder that only root may enter, as root's home is, is made reachable in there.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import requirements

ROOT = Path(requirements.__file__).parents[1]
ALICE, MALLORY = 61001, 61002  # uids that nobody has
_CLONE_NEWNS = 0x20000
_BIND, _PRIVATE, _RECURSIVE, _READ_ONLY, _REMOUNT = 4096, 1 << 18, 16384, 1, 32
_DETACH = 2
_X_OTH = 0o001


def needs_root() -> None:
    """Skip a test where nobody can become another user."""
    if sys.platform != "linux":
        pytest.skip("mount namespaces are Linux's")
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this root may not make mount namespaces")


def command_as(uid: int, *arguments: str, **view: Any) -> list[str]:
    """Return the command that runs Python with `arguments` as the user `uid`.

    Args:
        view: `hidepid`: how `/proc` is mounted; `read_only`: a folder that cannot be written to.
    """
    return [
        sys.executable,
        "-m",
        "tests.another_user",
        json.dumps({"uid": uid, **view}),
        *arguments,
    ]


def run_as(
    uid: int, *arguments: str, env: Mapping[str, str | None] | None = None, **view: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python as the user `uid`; a variable that is None is taken out of the environment."""
    return subprocess.run(
        command_as(uid, *arguments, **view),
        check=False,
        env=environment(env or {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def environment(changed: Mapping[str, str | None]) -> dict[str, str]:
    """Return this process's environment with some variables changed, or None to be taken out."""
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **changed}
    return {name: value for name, value in given.items() if value is not None}


# ---------------------------------------------------------------------- in the new process


def _main() -> None:
    view, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    _check(_libc().unshare(_CLONE_NEWNS))
    _mount("none", "/", None, _PRIVATE | _RECURSIVE)
    _make_reachable([sys.base_prefix, sys.prefix, str(ROOT), *filter(os.path.isdir, sys.path)])
    if "read_only" in view:
        _mount(view["read_only"], view["read_only"], None, _BIND)
        _mount("none", view["read_only"], None, _BIND | _REMOUNT | _READ_ONLY)
    if "hidepid" in view:
        _mount("proc", "/proc", "proc", 0, f"hidepid={view['hidepid']}")
    os.setgroups([])
    os.setgid(view["uid"])
    os.setuid(view["uid"])
    os.execv(sys.executable, [sys.executable, *arguments])


def _make_reachable(paths: list[str]) -> None:
    """Let everybody come to these folders: put them into an open copy of what is closed above."""
    behind: dict[str, list[str]] = {}
    for path in map(os.path.realpath, paths):
        above = [str(parent) for parent in reversed(Path(path).parents)]
        for parent in above:
            if not os.stat(parent).st_mode & _X_OTH:
                behind.setdefault(parent, []).append(path)
                break
    for closed, inside in behind.items():
        wanted = [path for path in inside if not any(path.startswith(f"{one}/") for one in inside)]
        kept = {path: tempfile.mkdtemp(dir="/tmp") for path in dict.fromkeys(wanted)}
        for path, folder in kept.items():
            _mount(path, folder, None, _BIND)
        _mount("none", closed, "tmpfs", 0, "mode=755")
        for path, folder in kept.items():
            os.makedirs(path, mode=0o755)
            _mount(folder, path, None, _BIND)
            _check(_libc().umount2(folder.encode(), _DETACH))
            os.rmdir(folder)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    encoded = (text and text.encode() for text in (source, target, kind))
    _check(_libc().mount(*encoded, flags, options.encode()))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    _main()
