"""Rules for the names of runs, checkpoint folders and the files inside them.

They hold on every backend, so that a run can be copied from one to another. Each check returns the
rule that is broken, as text, or None.
"""

from __future__ import annotations

import re

NAME_BYTES_MAX = 200  # leaves room below the 255 of file systems for what we add to a name
PATH_BYTES_MAX = 1000  # object stores end at 1024
# Characters that some filesystem, shell or URI cannot have in a name, and lone surrogates.
_UNSAFE = re.compile(r'[/()<>:"|?*\\\s\x00-\x1f\x7f\ud800-\udfff]')


def broken_name_rule(name: object, bytes_max: int | None = NAME_BYTES_MAX) -> str | None:
    """Return why `name` cannot be the name of a run or of a checkpoint folder.

    With `bytes_max=None` a name may have any length.
    """
    if not isinstance(name, str):
        return f"a name is a string, this is {type(name).__name__}"
    if not name or name != name.strip():
        return "a name is not empty and has no space at either end"
    if "/" in name or "\\" in name:
        return "a name holds no slash; it is one folder, not a path"
    return _broken_part_rule(name, bytes_max)


def broken_path_rule(path: object) -> str | None:
    """Return why `path` cannot be a file's path inside a checkpoint."""
    if not isinstance(path, str):
        return f"a path is a string, this is {type(path).__name__}"
    if not path:
        return "a path is not empty"
    if path.startswith("/"):
        return "a path is relative"
    if len(path.encode(errors="surrogatepass")) > PATH_BYTES_MAX:
        return f"a path has at most {PATH_BYTES_MAX} bytes"
    for part in path.split("/"):
        if broken := _broken_part_rule(part, bytes_max=255):
            return broken
    return None


def broken_folder_rule(name: str) -> str | None:
    """Return why a folder cannot have this name on some disk."""
    return "it holds a slash" if "/" in name else _broken_part_rule(name, bytes_max=255)


def _broken_part_rule(part: str, bytes_max: int | None) -> str | None:
    if part in ("", ".", ".."):
        return "no part of it may be empty, '.' or '..'"
    if "\x00" in part:
        return "it holds a NUL character"
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if bytes_max is not None and size > bytes_max:
        return f"it has {size} bytes, at most {bytes_max} are allowed"
    return None


def safe_name(text: str) -> str:
    """Return `text` with `_` for every character that is unsafe in the name of a folder.

    A leading dot is replaced too, so that the folder is neither hidden nor `..`.
    """
    return _UNSAFE.sub("_", text).replace(".", "_", text.startswith("."))


def cut_name(text: str, bytes_max: int) -> str:
    """Return the beginning of `text` that fits into `bytes_max` bytes, in whole characters."""
    return text.encode()[: max(bytes_max, 0)].decode(errors="ignore")


def shown(name: object) -> str:
    """Return `name` as an error message shows it: quoted, and cut if it is very long."""
    return cut_short(repr(name))


def cut_short(text: str) -> str:
    """Return `text` cut in the middle to what an error message has room for."""
    return text if len(text) <= 80 else f"{text[:60]}…{text[-10:]}"
