"""The bytes of a file, compressed or not, within the memory that is available."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO

from tidelog.data.core.registry import unreadable
from tidelog.errors import install
from tidelog.input_files import read_regular
from tidelog.memory import available_memory, in_units, shortage

BOM = b"\xef\xbb\xbf"
MOST_COLUMNS = 10_000
CELL = 24  # bytes of memory of one cell, beside its text
FIX_MEMORY = "split the file, read a part of it, or use a machine with more memory"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_AT_ONCE = 1 << 22  # decompressed bytes


def _only_member(stream: BinaryIO) -> Any:
    """The one file of a zip archive; ValueError for several."""
    archive = zipfile.ZipFile(stream)
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise ValueError(f"{len(names)} files in the archive, expected one")
    return archive.open(names[0])


def _zstandard(stream: BinaryIO) -> Any:
    """A stream of Zstandard; ModuleNotFoundError where no module reads it (Python below 3.14 needs zstandard)."""
    for module, name in (("compression.zstd", "ZstdFile"), ("zstandard", "ZstdDecompressor")):
        try:
            opened = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        return opened(stream) if name == "ZstdFile" else opened().stream_reader(stream, read_across_frames=True)
    raise ModuleNotFoundError("there is no module that reads .zst")


PACKED: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zip": _only_member,
    ".zst": _zstandard,
}
DAMAGED = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


def ending_of(path: str | Path, known: Iterable[str]) -> str | None:
    """The longest known ending of a path; None if there is none."""
    name = Path(path).name.lower()
    return max((ending for ending in known if name.endswith(ending)), key=len, default=None)


def read_bytes(path: Path, expected: str) -> bytes:
    """Read the text of a file, decompressed and without a byte order mark.

    LogError if it is truncated, empty or in UTF-16.
    """
    try:
        data = read_regular(path)
    except OSError as error:
        raise unreadable(path, str(error), expected, "check the path") from error
    unpack = PACKED.get(path.suffix.lower())
    if unpack is not None:
        try:
            with unpack(io.BytesIO(data)) as stream:
                data = _unpacked(path, stream, expected)
        except ModuleNotFoundError as error:
            raise unreadable(path, str(error), expected, install("zst")) from error
        except Exception as error:  # ZstdError is of a module that may be absent
            if not isinstance(error, DAMAGED) and type(error).__name__ != "ZstdError":
                raise
            raise unreadable(path, f"the compressed file is truncated or damaged ({error})", expected) from error
    if data.startswith(_WIDE_BOMS):
        raise unreadable(path, "text in UTF-16", expected, "save the file as UTF-8")
    data = data.removeprefix(BOM)
    if not data.strip():
        raise unreadable(path, "an empty file", expected)
    return data


def _unpacked(path: Path, stream: IO[bytes], expected: str) -> bytes:
    """The contents of a compressed stream; LogError once they take half of the memory that was available."""
    free = available_memory()
    most = None if free is None else free // 2
    content = bytearray()
    while part := stream.read(_AT_ONCE):
        content += part
        if most is not None and len(content) > most:
            found = f"more than {in_units(most)} of decompressed text; {in_units(free or 0)} of memory are available"
            raise unreadable(path, found, expected, FIX_MEMORY)
    return bytes(content)


def refuse_wide(path: Path, columns: int) -> None:
    """Raise LogError for a table of too many columns, which would take memory and time for each."""
    if columns > MOST_COLUMNS:
        fix = "keep a feature vector as one column of lists, or in an npz file"
        raise unreadable(path, f"{columns:,} columns", f"at most {MOST_COLUMNS:,}", fix)


def refuse_large(path: Path, size: int, expected: str) -> None:
    """Raise LogError if this many bytes are more than the memory that is available."""
    problem = shortage(size)
    if problem is not None:
        raise unreadable(path, problem, expected, FIX_MEMORY)
