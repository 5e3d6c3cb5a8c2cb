"""Check the sizes that an Arrow file declares, because Polars reserves them, and one it cannot have ends the process.

Metadata are FlatBuffers; only the fields of File.fbs and Message.fbs that give places and sizes are read, and no data.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tidelog.input_files import open_regular

MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # of the union MessageHeader
_BLOCK = np.dtype([("at", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_BUFFER = np.dtype([("at", "<i8"), ("length", "<i8")])
_NOT_PACKED = -1  # the declared size of a buffer that is stored as it is


def largest_batch(path: Path) -> int:
    """Return the bytes of the largest batch of an Arrow file or stream after unpacking, 0 where nothing is packed.

    OSError if places and sizes contradict each other or the size of the file.
    """
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size < 8:
            raise OSError("the file is too short to be Arrow")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            messages = _of_file(data) if data[: len(MAGIC)] == MAGIC else _of_stream(data)
            try:
                return max((_unpacked(data, metadata, body) for metadata, body in messages), default=0)
            except (struct.error, ValueError) as error:
                raise OSError(f"the Arrow metadata are damaged ({error})") from error


def _of_file(data: mmap.mmap) -> Iterator[tuple[bytes, range]]:
    """The metadata and the place of the body of each batch that the footer lists."""
    end = len(data) - 10
    size = int.from_bytes(data[end : end + 4], "little", signed=True)
    if data[-len(MAGIC) :] != MAGIC or not 0 < size <= end - 8:
        raise OSError("the file is truncated or not Arrow: its last bytes are not a footer and ARROW1")
    footer = _Table.root(data[end - size : end])
    blocks = np.concatenate([footer.structs(number, _BLOCK) for number in (2, 3)])
    blocks = blocks[np.argsort(blocks["at"], kind="stable")]
    last = 8
    for at, metadata, _, body in blocks.tolist():
        if at < last or metadata < 8 or body < 0 or at + metadata + body > end - size:
            raise OSError(f"an Arrow batch of {metadata} and {body} bytes at {at} is outside of its place")
        last = at + metadata + body
        prefix = 8 if int.from_bytes(data[at : at + 4], "little") == _CONTINUATION else 4
        yield data[at + prefix : at + metadata], range(at + metadata, last)


def _of_stream(data: mmap.mmap) -> Iterator[tuple[bytes, range]]:
    """The metadata and the place of the body of each message, until the end of the stream."""
    at = 0
    while at + 4 <= len(data):
        prefix = 8 if int.from_bytes(data[at : at + 4], "little") == _CONTINUATION else 4
        size = int.from_bytes(data[at + prefix - 4 : at + prefix], "little", signed=True)
        if size == 0:
            return
        start = at + prefix + size
        if size < 0 or start > len(data):
            raise OSError(f"an Arrow message of {size} bytes at {at} exceeds the file")
        metadata = data[at + prefix : start]
        length = _Table.root(metadata).number(3, "<q")
        if not 0 <= length <= len(data) - start:
            raise OSError(f"an Arrow message at {at} declares a body of {length} bytes, {len(data) - start} are left")
        at = start + length
        yield metadata, range(start, at)


def _unpacked(data: mmap.mmap, metadata: bytes, body: range) -> int:
    """The bytes that the packed buffers of one message take."""
    message = _Table.root(metadata)
    kind = message.number(1, "<B")
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0
    batch = message.table(2)
    batch = batch.table(1) if batch is not None and kind == _DICTIONARY_BATCH else batch
    if batch is None:
        raise OSError("an Arrow message has no batch")
    nodes, buffers = batch.structs(1, _NODE), batch.structs(2, _BUFFER)
    if batch.number(0, "<q") < 0 or ((nodes["nulls"] < 0) | (nodes["nulls"] > nodes["length"])).any():
        raise OSError("an Arrow batch declares a negative number of rows, or more nulls than rows")
    total, packed = 0, batch.table(3) is not None
    for at, length in buffers.tolist():
        if at < 0 or length < 0 or at + length > len(body):
            raise OSError(f"an Arrow buffer of {length} bytes at {at} exceeds its batch of {len(body)}")
        if packed and length:
            (size,) = struct.unpack("<q", data[body.start + at : body.start + at + min(length, 8)])
            if size < _NOT_PACKED:
                raise OSError(f"a packed Arrow buffer declares {size} bytes")
            total += max(size, 0)
    return total


class _Table:
    """A table of a FlatBuffer; struct.error or ValueError where a place is outside of it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        """The number in a field; 0 where it is absent."""
        at = self._place(field)
        return 0 if at is None else self._read(form, at)

    def table(self, field: int) -> _Table | None:
        at = self._place(field)
        return None if at is None else _Table(self._data, at + self._read("<I", at))

    def structs(self, field: int, kind: np.dtype[np.void]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """The structures of a vector; none where it is absent."""
        at = self._place(field)
        if at is None:
            return np.zeros(0, kind)
        start = at + self._read("<I", at)
        return np.frombuffer(self._data, kind, self._read("<I", start), start + 4)

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        offset = self._read("<H", self._fields + entry) if entry < self._read("<H", self._fields) else 0
        return self._at + offset if offset else None

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError(f"place {at}")
        return int(struct.unpack_from(form, self._data, at)[0])
