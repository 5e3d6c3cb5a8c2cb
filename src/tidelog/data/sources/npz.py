"""Arrays in an npz file, named as in `Log.from_arrays`."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypeVar

import numpy as np

from tidelog.data.core.raw import RawLog
from tidelog.data.parsing.arrays import ROLES, from_arrays
from tidelog.data.sources.content import unreadable
from tidelog.errors import nearest

T = TypeVar("T")
_BROKEN = (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError)
_DAMAGED = (struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError, SyntaxError, TokenError)
_LEAVES = ("observation", "next_observation")


def raw_npz(path: str | Path) -> RawLog:
    """Read named arrays, `observation/<leaf>` for several leaves; LogError for other files or unknown names."""
    arrays = load(Path(path))
    unknown = [name for name in arrays if name.split("/")[0] not in ROLES]
    if unknown:
        names = "; ".join(f"'{name}' ({nearest(name, ROLES)})" for name in unknown)
        raise unreadable(
            path, f"arrays {names}", f"arrays named {', '.join(ROLES)}", "rename them", "unknown mapping key"
        )
    if "action" not in arrays or not any(name.split("/")[0] == "observation" for name in arrays):
        raise unreadable(
            path, f"arrays {', '.join(arrays)}", "observation and action", "add or rename", "missing column"
        )
    arguments: dict[str, Any] = {"reward": None, **{name: value for name, value in arrays.items() if "/" not in name}}
    for role in _LEAVES:
        leaves = {name.partition("/")[2]: value for name, value in arrays.items() if name.startswith(f"{role}/")}
        arguments |= {role: leaves} if leaves else {}
    for name in ("actions", "bounds"):
        arguments |= {name: arrays[name].tolist()} if name in arrays else {}
    return from_arrays(str(path), **arguments)


def names_in(path: Path) -> list[str]:
    """The names of an archive's arrays; LogError if the file is not an archive."""
    return _read(path, lambda archive: list(archive.files))


def load(path: Path) -> dict[str, Any]:
    """Load all arrays of an archive; LogError if the file is not an archive, or contains pickled objects."""
    return _read(path, lambda archive: {name: archive[name] for name in archive.files})


def _read(path: Path, take: Callable[[Any], T]) -> T:
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise ValueError("one array instead of an archive")
            return take(archive)
    except (*_BROKEN, *_DAMAGED) as error:
        raise unreadable(path, str(error).split("\n")[0], "an npz file", "save it again") from error
