"""Read arrays in NumPy's format after a check of their header: sizes first, then memory."""

from __future__ import annotations

import math
import warnings
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from tidelog.data.core.order import Values

_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_KINDS = "biufcSUMm"
_AT_ONCE = 1 << 24
_MALFORMED = (SyntaxError, TokenError, RecursionError, MemoryError, OverflowError, TypeError, Warning)


def read_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, column order and type of an array of `size` bytes with its header.

    ValueError for a damaged header, for objects and records, and for an array of another size.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the .npy format: expected 1.0 or 2.0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shape, columns_first, kind = _HEADERS[version](stream)
    except _MALFORMED as error:
        raise ValueError(f"the header is damaged ({type(error).__name__}: {error})") from error
    if kind.kind not in _KINDS or not kind.itemsize:
        raise ValueError(f"values of type {kind}: expected numbers, flags, text or times")
    held, declared = size - stream.tell(), math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or declared != held:
        raise ValueError(f"the header declares {list(shape)} {kind} = {declared:,} bytes, the file holds {held:,}")
    return shape, columns_first, kind


def holds_objects(stream: IO[bytes]) -> bool:
    """Whether an array in NumPy's format holds Python objects, by its header alone."""
    try:
        version = np.lib.format.read_magic(stream)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return version in _HEADERS and _HEADERS[version](stream)[2].hasobject
    except (ValueError, *_MALFORMED):
        return False


def read_array(stream: IO[bytes], size: int) -> Values:
    """Read an array of `size` bytes with its header; ValueError as `read_header`, or if the contents end early."""
    shape, columns_first, kind = read_header(stream, size)
    flat = np.empty(math.prod(shape), kind)
    content = flat.view(np.uint8)
    at = 0
    while at < len(content):
        part = stream.read(min(_AT_ONCE, len(content) - at))
        if not part:
            raise ValueError(f"the contents end after {at:,} of {len(content):,} bytes")
        content[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)
