"""Read the bytes of a text file: decompressed, without a byte order mark."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

from tidelog.data.core.registry import refusal
from tidelog.errors import LogError

_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}


def content(path: Path, expected: str) -> bytes:
    """Read the file's text; LogError if it is truncated, empty or in UTF-16."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, str(error), expected, "check the path") from error
    unpack = _PACKED.get(path.suffix.lower())
    if unpack is not None:
        try:
            data = unpack(data)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise unreadable(path, f"the compressed file is truncated or damaged ({error})", expected) from error
    if data.startswith(_WIDE_BOMS):
        raise unreadable(path, "text in UTF-16", expected, "save the file as UTF-8")
    data = data.removeprefix(_BOM)
    if not data.strip():
        raise unreadable(path, "an empty file", expected)
    return data


def unreadable(
    path: str | Path, found: str, expected: str, advice: str = "export or copy the file again", name: str | None = None
) -> LogError:
    """Build the error for an unreadable file."""
    report = refusal(str(path), name or "unreadable file", found, expected, advice)
    return LogError(report.text(), report)
