"""Arrays in an npz file, named as in `Log.from_arrays`."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.arrays import ROLES, from_arrays
from tidelog.data.raw import RawLog
from tidelog.data.registry import refusal
from tidelog.errors import LogError, nearest

_BROKEN = (OSError, ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError)
_DAMAGED = (struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_LEAVES = ("observation", "next_observation")


def raw_npz(path: str | Path) -> RawLog:
    """Named arrays, `observation/<leaf>` for several leaves; LogError for no npz file or for misnamed arrays."""
    arrays = _load(Path(path))
    unknown = [name for name in arrays if name.split("/")[0] not in ROLES]
    if unknown:
        said = "; ".join(f"'{name}' ({nearest(name, ROLES)})" for name in unknown)
        raise _refused(path, "unknown mapping key", f"arrays {said}", f"arrays named {', '.join(ROLES)}", "rename them")
    if "action" not in arrays or not any(name.split("/")[0] == "observation" for name in arrays):
        raise _refused(path, "missing column", f"arrays {', '.join(arrays)}", "observation and action", "add or rename")
    given: dict[str, Any] = {"reward": None, **{name: value for name, value in arrays.items() if "/" not in name}}
    for role in _LEAVES:
        leaves = {name.partition("/")[2]: value for name, value in arrays.items() if name.startswith(f"{role}/")}
        given |= {role: leaves} if leaves else {}
    for name in ("actions", "bounds"):
        given |= {name: arrays[name].tolist()} if name in arrays else {}
    return from_arrays(str(path), **given)


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise ValueError("one array instead of an archive")
            return {name: archive[name] for name in archive.files}
    except (*_BROKEN, *_DAMAGED) as error:
        raise _refused(path, "unreadable file", str(error).split("\n")[0], "an npz file", "save it again") from error


def _refused(path: str | Path, name: str, found: str, expected: str, advice: str) -> LogError:
    report = refusal(str(path), name, found, expected, advice)
    return LogError(report.text(), report)
