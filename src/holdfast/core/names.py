"""What may be a name: of a run, of a checkpoint folder, of a file inside one.

Rules that hold on every backend, so that a run can be copied from one to another. Each check
returns the rule that is broken, as text, or None.
"""

from __future__ import annotations

NAME_BYTES_MAX = 200  # leaves room below the 255 of file systems for what we add to a name
PATH_BYTES_MAX = 1000  # object stores end at 1024


def broken_name_rule(name: object) -> str | None:
    """Return why `name` cannot be the name of a run or of a checkpoint folder."""
    if not isinstance(name, str):
        return f"a name is a string, this is {type(name).__name__}"
    if not name or name != name.strip():
        return "a name is not empty and has no space at either end"
    if "/" in name or "\\" in name:
        return "a name holds no slash; it is one folder, not a path"
    return _broken_part_rule(name)


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


def _broken_part_rule(part: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    if part in ("", ".", ".."):
        return "no part of it may be empty, '.' or '..'"
    if "\x00" in part:
        return "it holds a NUL character"
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > bytes_max:
        return f"it has {size} bytes, at most {bytes_max} are allowed"
    return None


def shown(name: object) -> str:
    """Return `name` as an error message shows it: quoted, and cut where it is very long."""
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-10:]}"
