"""Read image files, named by a column of a table, as arrays of one size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding
from tidelog.data.parsing import column as parse

_SUPPORTED = ("L", "RGB", "RGBA")
_CONVERTED = {"1": "L", "LA": "RGBA", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}


def read_pictures(many: list[pl.Series], folder: Path) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """Read columns of file names (absolute, or relative to `folder`) as columns [N, H, W, C] uint8, with findings.

    Greyscale images have one channel, colour images three, colour images with transparency four.
    """
    named = parse.categories(*many)
    opened = [_opened(folder / word) for word in named[0].words or ()]
    shapes = Counter(picture.shape for picture in opened if not isinstance(picture, str))
    shape = shapes.most_common(1)[0][0] if shapes else (1, 1, 1)
    fits = [not isinstance(picture, str) and picture.shape == shape for picture in opened]
    pictures = np.zeros((max(len(opened), 1), *shape), np.uint8)
    for place, picture in enumerate(opened):
        if fits[place]:
            pictures[place] = picture
    found = [problem for column in named for problem in _wrong(column, opened, shape)]
    return [Column(column.name, pictures[column.values], missing=column.missing) for column in named], found


def _opened(path: Path) -> Values | str:
    """[H, W, C] uint8, or an error message."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            mode = picture.mode if picture.mode in _SUPPORTED else _CONVERTED.get(picture.mode)
            if mode is None:
                return f"{path}: image mode {picture.mode} is not supported"
            values = np.asarray(picture.convert(mode))
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"{path}: {error}"
    return values[..., None] if values.ndim == 2 else values


def _wrong(column: Column, opened: list[Values | str], shape: tuple[int, ...]) -> list[tuple[str, Finding]]:
    """Find rows whose image cannot be read, and rows whose image size differs from most."""
    unreadable = np.asarray([isinstance(picture, str) for picture in opened], bool)
    other_size = np.asarray([not isinstance(picture, str) and picture.shape != shape for picture in opened], bool)
    problems = []
    for check, marked, expected, advice in (
        ("unreadable picture", unreadable, "an image file", "use names that are absolute or relative to the table"),
        ("changing shapes", other_size, f"images of {_size(shape)}, like most", "resize all images to one size"),
    ):
        at = np.setdiff1d(np.flatnonzero(marked[column.values]) if len(marked) else [], column.missing).astype(int)
        if len(at):
            first = opened[column.values[at[0]]]
            found = first if isinstance(first, str) else f"images of {_size(first.shape)}"
            problems.append((check, Finding(column.name, at, found, expected, advice)))
    return problems


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
