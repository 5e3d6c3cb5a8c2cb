"""Files that come from outside: only regular files are opened, and JSON is read without surprises.

A FIFO would block its reader, and a device has no end; links to regular files are followed.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


class NotRegularError(OSError):
    """The path is a FIFO, a socket, a device or a folder."""


def check_regular(path: str | Path) -> os.stat_result:
    """Return the status of a regular file, through links; OSError if it is missing or of another kind."""
    status = os.stat(path)
    refuse_other(path, status)
    return status


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; OSError if it is missing or of another kind, without waiting for one."""
    check_regular(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        refuse_other(path, os.fstat(handle))  # the path may be another file by now
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """Read a regular file of at most `most` bytes; OSError as `open_regular`, or if the file is larger."""
    with open_regular(path) as stream:
        content = stream.read() if most is None else stream.read(most + 1)
        if most is not None and len(content) > most:
            size = os.fstat(stream.fileno()).st_size
            raise OSError(f"{path} has {size:,} bytes: expected at most {most:,}")
        return content


def read_text(path: str | Path, most: int | None = None) -> str:
    """Read a regular file of UTF-8 text, with or without a byte order mark; OSError or UnicodeDecodeError."""
    return read_regular(path, most).decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError for damaged text, a repeated key, or values that are nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("the values are nested too deeply") from None


def parse_saved(text: str | bytes, *, nan: bool = False) -> Any:
    """Parse JSON that tidelog wrote: as `parse_json`, and ValueError for numbers that tidelog does not write.

    These are whole numbers beyond 64 bits, and NaN and infinite numbers unless `nan`.
    """
    waiting = [values := parse_json(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif type(value) is int and not -(2**63) <= value < 2**64:
            raise ValueError("a whole number is beyond 64 bits")
        elif type(value) is float and not nan and not math.isfinite(value):
            raise ValueError(f"the number {value} is not finite")
    return values


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:60]!r} is repeated in one object")
    return entries


def refuse_other(path: str | Path, status: os.stat_result) -> None:
    """Raise NotRegularError unless the status is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(f"{path} is {kind_of(status.st_mode)}: expected a regular file")


def kind_of(mode: int) -> str:
    """Return what a path is that is no regular file, by its mode."""
    return _KINDS.get(stat.S_IFMT(mode), "not a file")
