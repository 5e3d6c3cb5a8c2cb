"""Parse one column of a table into numbers, codes, flags, masks, times or images; list the rows that do not parse.

No row is dropped: an unreadable value becomes a placeholder, and its row is listed in the `Column`.
"""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Column, Finding
from tidelog.input_files import open_regular
from tidelog.memory import shortage
from tidelog.types import OTHER

MISSING_WORDS = ("", "na", "n/a", "null", "none")
_TRUE = ("1", "1.0", "true", "t", "yes", "y")
_FALSE = ("0", "0.0", "false", "f", "no", "n")
_PART = r"[^,;\s\[\]()]+"  # of a list in text
_MODES = ("L", "RGB", "RGBA")  # of images
FORMATS = ("PNG", "JPEG")  # other formats start programs (EPS) or have rarely used decoders
MOST_PIXELS = 1 << 25  # of one image; 7680 x 4320 fits
_CONVERTED = {"1": "L", "LA": "RGBA", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}


def narrow(series: pl.Series) -> Column:
    """Like `number`, rounded to 32 bits if numeric; numbers that are too large become infinite."""
    return number(series.cast(pl.Float32) if series.dtype.is_numeric() else series)


def plain(series: pl.Series) -> pl.Series:
    """Convert a column to a type that the functions below read: durations to seconds, other types to text."""
    kind = series.dtype
    inner = kind.inner if isinstance(kind, pl.List | pl.Array) else kind
    if isinstance(kind, pl.Duration):
        return (series.dt.total_microseconds() / 1e6).rename(series.name)
    if kind in (pl.Int128, pl.UInt128):
        return series.cast(pl.Float64)
    if inner == pl.Object or (isinstance(inner, pl.List | pl.Array | pl.Struct | pl.Duration)) or inner == pl.Binary:
        return spelled(series)
    return series


def spelled(series: pl.Series) -> pl.Series:
    """Every cell as Python writes it; bytes are decoded as UTF-8 with replacements."""
    cells = series.to_list()
    words = (cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells)
    return pl.Series(series.name, [None if cell is None else word for cell, word in zip(cells, words, strict=True)],
                     pl.String)  # fmt: skip


def number(series: pl.Series) -> Column:
    """Numbers [N], or [N, D] from a column of lists."""
    if isinstance(series.dtype, pl.List | pl.Array):
        return _lists(series)
    if series.dtype.is_numeric() or series.dtype == pl.Null:
        missing = _where(series.is_null())
        wide = series.dtype.is_decimal() or (len(missing) and not series.dtype.is_float())
        values = (series.cast(pl.Float64) if wide else series).fill_null(0).to_numpy()
        return Column(series.name, values, missing=missing)
    text = _text(series)
    absent = _absent(text)
    numbers = _truth(text) if _is_true_false(text, absent) else text.cast(pl.Float64, strict=False)
    return _column(series.name, numbers, absent, text)


def as_lists(series: pl.Series) -> pl.Series:
    """Lists of numbers [N] from text such as `[0.1, -0.2]` or `[[1 2]]` in every cell; any other column as it is."""
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return series
    first = _text(series.head(_SAMPLE))
    first = first.filter(~_absent(first))
    if len(first) and first[0][:1] not in ("[", "("):
        return series
    text = _text(series)
    absent = _absent(text)
    present = text.filter(~absent)
    if not len(present) or not present.str.contains(r"^[\[(].*[\])]$").all():
        return series
    numbers = present.str.extract_all(_PART).cast(pl.List(pl.Float64), strict=False)
    if numbers.explode().null_count() > int((numbers.list.len() == 0).sum()):
        return series  # other text in brackets
    every = text.str.extract_all(_PART).cast(pl.List(pl.Float64), strict=False)
    return pl.select(pl.when(~absent).then(every)).to_series().rename(series.name)


def is_empty(series: pl.Series) -> pl.Series:
    """[N] bool: rows without a value: null, NaN, an empty list, empty text, or a word such as `na` among numbers."""
    if isinstance(series.dtype, pl.List):
        return series.is_null() | (series.list.len() == 0).fill_null(False)
    if isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        text = _text(series)
        return text.is_null() | (text == "").fill_null(False) if is_categorical(series) else _absent(text)
    return series.is_null() | (series.is_nan() if series.dtype.is_float() else False)


def is_categorical(series: pl.Series) -> bool:
    """Whether no value of a text column parses as a number (or as true and false)."""
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return False
    text = _text(series)
    absent = _absent(text)
    if absent.all() or _is_true_false(text, absent):
        return False
    return bool(text.cast(pl.Float64, strict=False).filter(~absent).is_null().all())


def categories(*many: pl.Series, words: Sequence[str] | None = None) -> list[Column]:
    """Codes [N] of several columns in one vocabulary: `words`, or all their values, sorted.

    Empty text is missing; a value outside a declared vocabulary is unreadable.
    """
    texts = [_text(series) for series in many]
    if words is None:
        vocabulary = pl.concat([text.rename("word") for text in texts]).unique().drop_nulls().sort()
        words = tuple(vocabulary.filter(vocabulary != ""))
    kind = pl.Enum(words)
    columns = []
    for series, text in zip(many, texts, strict=True):
        codes = text.cast(kind, strict=False).to_physical().cast(pl.Int32)
        absent = text.is_null() | (text == "").fill_null(True)
        unreadable = _where(codes.is_null() & ~absent)
        values = codes.fill_null(0).to_numpy()
        shown = _shown(text, unreadable)
        columns.append(Column(series.name, values, tuple(words), _where(absent), unreadable, texts=shown))
    return columns


def join_rare(columns: list[Column], rows: int) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """Join labels in fewer than `rows` rows of the first column to one, `other`, in all; and a note about them.

    A label `other` of the log itself is joined to them. Nothing is joined where no label is rare.
    """
    first, words = columns[0], columns[0].vocabulary or ()
    counts = np.bincount(first.values[first.usable], minlength=len(words))[: len(words)]
    rare = [place for place, word in enumerate(words) if counts[place] < rows and word != OTHER]
    if not rare:
        return columns, []
    kept = sorted({OTHER, *(word for place, word in enumerate(words) if place not in set(rare))})
    code = {word: place for place, word in enumerate(kept)}
    codes = np.asarray([code.get(word, code[OTHER]) for word in words], np.int32)
    codes[rare] = code[OTHER]
    labels = tuple(words[place] for place in rare)
    joined = [replace(one, values=codes[one.values], vocabulary=tuple(kept), rare_labels=labels) for one in columns]
    shown = ", ".join(map(repr, labels[:3])) + (", ..." if len(rare) > 3 else "")
    found = (
        f"{len(rare):,} of {len(words):,} labels in fewer than {rows:,} rows each, {int(counts[rare].sum()):,} rows "
        f"together, are joined to '{OTHER}': {shown}"
    )
    fix = "nothing, if they may be treated alike; labels that the log does not have count as it, too"
    return joined, [("rare labels", Finding(first.name, None, found, f"labels in at least {rows:,} rows", fix))]


def identity(series: pl.Series) -> Column:
    """Episode identifiers: integers if all values are integers, else codes of text."""
    if series.dtype.is_integer():
        missing = _where(series.is_null())
        return Column(series.name, series.fill_null(0).to_numpy().astype(np.int64), missing=missing)
    column = categories(series)[0]
    integers = pl.Series(column.vocabulary or (), dtype=pl.String).cast(pl.Int64, strict=False)
    if integers.null_count() or not column.vocabulary or tuple(integers.cast(pl.String)) != column.vocabulary:
        return column
    return Column(series.name, integers.to_numpy()[column.values], missing=column.missing)


def flag(series: pl.Series) -> Column:
    """Flags [N] float, 0 or 1, from booleans, 0/1, true/false or yes/no."""
    if series.dtype == pl.Boolean or series.dtype.is_integer() or series.dtype.is_float():
        missing = _where(series.is_null())
        return Column(series.name, series.fill_null(0).to_numpy(), missing=missing)
    text = _text(series)
    return _column(series.name, _truth(text), _absent(text), text, "0 or 1, true or false, yes or no")


def moment(series: pl.Series, date_format: str | None = None) -> Column:
    """Times [N]: numbers unchanged, ISO dates and datetimes as datetime64[us] in UTC.

    With a `date_format` (of `strptime`), every text has that format.
    """
    if date_format is not None and not series.dtype.is_temporal():
        text = _text(series)
        moments = text.str.strptime(pl.Datetime("us"), date_format, strict=False)
        absent = _absent(text)
        unreadable = _where(moments.is_null() & ~absent)
        values, shown = moments.fill_null(strategy="zero").to_numpy(), _shown(text, unreadable)
        expects = f"a time as {date_format}"
        return Column(series.name, values, None, _where(absent), unreadable, texts=shown, expects=expects)
    if series.dtype.is_numeric():
        return number(series)
    text = _text(series)
    absent = _absent(text)
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.filter(~absent).is_not_null().any():
        return _column(series.name, numbers, absent, text)
    return _dates(series, text, absent)


def date_formats(series: pl.Series) -> list[str]:
    """The formats other than ISO that all times of a column of text have; several where the values fit them all."""
    cells = _text(series)
    cells = cells.filter(~_absent(cells)).unique()
    if not len(cells) or not cells.str.contains(_DATE).all():
        return []
    sample = cells.head(_SAMPLE)
    return [
        form
        for day in _DAYS
        for form in (day, *(f"{day}{between}{clock}" for between in (" ", "T") for clock in _CLOCKS))
        if not sample.str.strptime(pl.Datetime("us"), form, strict=False).has_nulls()
        and not cells.str.strptime(pl.Datetime("us"), form, strict=False).has_nulls()
    ]


_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]\d{1,2}:\d\d(:\d\d)?)?$"
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_CLOCKS = ("%H:%M", "%H:%M:%S")
_SAMPLE = 1_000


def mask(many: list[pl.Series]) -> Column:
    """Allowed actions [N, A] float, 0 or 1, from one column per action or one column of lists."""
    if len(many) > 1:
        columns = [flag(series) for series in many]
        name = f"{columns[0].name} .. {columns[-1].name}"
        values = np.stack([column.values for column in columns], axis=1)
        missing = np.unique(np.concatenate([column.missing for column in columns]))
        unreadable = np.unique(np.concatenate([column.unreadable for column in columns]))
        texts = tuple(text for column in columns for text in column.texts)
        return Column(name, values, None, missing, unreadable, texts=texts, expects=columns[0].expects)
    series = many[0]
    if not isinstance(series.dtype, pl.List | pl.Array):
        text = _text(series)
        tokens = text.str.extract_all(_PART)
        series = pl.select(pl.when(~_absent(text)).then(tokens)).to_series().rename(series.name)
    return _lists(series, flags=True)


def mask_tokens(many: Sequence[pl.Series]) -> pl.Series | None:
    """The names of allowed actions in one mask column, as lists [N]; None for flags, and for several columns.

    Names are mostly no flags; numbers are names only if the lists differ in length.
    """
    if len(many) != 1:
        return None
    series = many[0]
    if isinstance(series.dtype, pl.List | pl.Array):
        lists = series.cast(pl.List(series.dtype.inner)) if isinstance(series.dtype, pl.Array) else series
        inner = lists.explode()
        if inner.dtype.is_float() and inner.drop_nulls().is_finite().all() and (inner.drop_nulls() % 1 == 0).all():
            lists = lists.cast(pl.List(pl.Int64))
        lists = lists.cast(pl.List(pl.String))
    else:
        text = _text(series)
        tokens = text.str.extract_all(_PART).explode().drop_nulls().str.to_lowercase()
        if tokens.is_in([*_TRUE, *_FALSE]).all():
            return None
        bare = text.str.strip_chars("[]()").str.replace_all(r"""["']""", "")
        parts = bare.str.replace_all(r"[;|]", ",").str.split(",")
        lists = pl.select(pl.when(~_absent(text)).then(parts)).to_series()
        lists = lists.list.eval(pl.element().str.strip_chars()).rename(series.name)
    words = lists.explode().drop_nulls()
    words = words.filter(words != "")
    flags = words.str.to_lowercase().is_in([*_TRUE, *_FALSE])
    numbers = words.cast(pl.Float64, strict=False).is_not_null()
    few = len(words) == 0 or bool(flags.all()) or int((flags | numbers).sum()) * 2 > len(words)
    return lists if not few or (len(words) and numbers.all() and not flags.all() and _uneven(lists)) else None


def _uneven(lists: pl.Series) -> bool:
    return lists.drop_nulls().list.len().n_unique() > 1


def named_mask(name: str, lists: pl.Series, words: Sequence[str]) -> Column:
    """Allowed actions [N, A], 0 or 1, from lists of the names of allowed actions; `words` [A] are all names."""
    values = np.stack([lists.list.contains(word).fill_null(False).to_numpy() for word in words], axis=1)
    known = lists.list.eval(pl.element().is_in([*words, ""])).list.all().fill_null(True)
    unreadable = _where(~known)
    shown = tuple(", ".join(lists[int(row)].to_list()) for row in unreadable[:3])
    expects = f"names of actions: {', '.join(words[:8])}"
    return Column(
        name, values.astype(np.float64), None, _where(lists.is_null()), unreadable, texts=shown, expects=expects
    )


def read_images(many: list[pl.Series]) -> tuple[list[Column], list[tuple[str, Finding]]]:
    """Read columns of paths as columns [N, H, W, C] uint8, with findings.

    All images have the most common size. Greyscale images have one channel, colour images three, colour images with
    transparency four.
    """
    named = categories(*many)
    opened = _pictures(named[0].vocabulary or (), sum(map(len, many)))
    shapes = Counter(image.shape for image in opened if not isinstance(image, str))
    shape = shapes.most_common(1)[0][0] if shapes else (1, 1, 1)
    images = np.zeros((max(len(opened), 1), *shape), np.uint8)
    unreadable, other_size = np.zeros((2, len(opened)), bool)
    for place, image in enumerate(opened):
        if isinstance(image, str):
            unreadable[place] = True
        elif image.shape != shape:
            other_size[place] = True
        else:
            images[place] = image
    problems = (
        ("unreadable image", unreadable, "a PNG or JPEG file", "use names that are absolute or relative to the table"),
        ("changing shapes", other_size, f"images of {_size(shape)}, like most", "resize all images to one size"),
    )
    findings = []
    wrong: dict[str, list[Values]] = {column.name: [np.zeros(0, np.int64)] for column in named}
    for column in named:
        for check, marked, expected, fix in problems:
            at = np.setdiff1d(np.flatnonzero(marked[column.values]) if len(marked) else [], column.missing).astype(int)
            if len(at):
                first = opened[column.values[at[0]]]
                found = first if isinstance(first, str) else f"images of {_size(first.shape)}"
                findings.append((check, Finding(column.name, at, found, expected, fix)))
                wrong[column.name].append(at)
    columns = [
        Column(one.name, images[one.values], missing=one.missing, reported=np.concatenate(wrong[one.name]))
        for one in named
    ]
    return columns, findings


def _picture(path: Path, decode: bool) -> Values | tuple[int, ...] | str:
    """[H, W, C] uint8, or only its shape unless `decode`; or an error message."""
    from PIL import Image, UnidentifiedImageError

    try:
        with (
            warnings.catch_warnings(),
            open_regular(path) as stream,
        ):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(stream, formats=FORMATS) as image:
                mode = image.mode if image.mode in _MODES else _CONVERTED.get(image.mode)
                if mode is None:
                    return f"{path}: image mode {image.mode} is not supported"
                if image.width * image.height > MOST_PIXELS:
                    return f"{path}: {image.width:,} x {image.height:,} pixels, at most {MOST_PIXELS:,}"
                if not decode:
                    return (image.height, image.width, len(mode))
                values = np.asarray(image.convert(mode))
    except UnidentifiedImageError:
        return f"{path}: neither {' nor '.join(FORMATS)}"
    except (OSError, SyntaxError, ValueError, EOFError, OverflowError, MemoryError, struct.error, zlib.error,
            Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # fmt: skip
        return f"{path}: {error}"
    return values[..., None] if values.ndim == 2 else values


def _pictures(paths: Sequence[str], rows: int) -> list[Values | str]:
    """[H, W, C] uint8 of each file, or an error message; nothing is decoded if `rows` of them do not fit."""
    shapes = [_picture(Path(path), False) for path in paths]
    sizes = [math.prod(shape) for shape in shapes if isinstance(shape, tuple)]
    problem = shortage(2 * sum(sizes) + rows * max(sizes, default=0))
    if problem is not None:
        return [shape if isinstance(shape, str) else f"{path}: {problem}"
                for path, shape in zip(paths, shapes, strict=True)]  # fmt: skip
    opened = (shape if isinstance(shape, str) else _picture(Path(path), True)
              for path, shape in zip(paths, shapes, strict=True))  # fmt: skip
    return [image for image in opened if not isinstance(image, tuple)]


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _lists(series: pl.Series, flags: bool = False) -> Column:
    """Lists of equal length as [N, D]; rows whose list differs in length from most are `odd`."""
    series = series.cast(pl.List(series.dtype.inner)) if isinstance(series.dtype, pl.Array) else series
    lengths = series.list.len()
    absent = series.is_null()
    usual = lengths.filter(~absent).mode().sort()
    size = int(usual[0]) if len(usual) else 0
    odd = (lengths != size).fill_null(False) & ~absent
    if size == 0:
        return Column(series.name, np.zeros((len(series), 0)), None, _where(absent), odd=_where(~absent))
    padded = pl.select(pl.when(lengths == size).then(series)).to_series()
    flat = padded.drop_nulls().explode().rename(series.name)
    inner = flag(flat) if flags else number(flat)
    values = np.full((len(series), size), np.nan)
    rows = _where(lengths == size)
    values[rows] = inner.values.reshape(-1, size)
    unreadable = rows[np.unique(inner.unreadable // size)]
    missing = np.union1d(_where(absent), rows[np.unique(inner.missing // size)])
    expects = f"{size} flags (0 or 1)" if flags else f"{size} numbers"
    return Column(series.name, values, None, missing, unreadable, _where(odd), inner.texts, expects)


def _dates(series: pl.Series, text: pl.Series, absent: pl.Series) -> Column:
    if isinstance(series.dtype, pl.Datetime | pl.Date):
        moments = series.cast(pl.Datetime("us"))
    else:
        iso = text.str.replace(r"^(\d{4}-\d\d-\d\d)$", "${1}T00:00:00").str.replace(" ", "T", literal=True)
        iso = iso.str.replace(r"Z$", "+00:00").str.replace(r"([+-]\d\d)$", "${1}:00")
        iso = iso.str.replace(r"^(.*T\d\d:\d\d)(|[+-]\d\d:?\d\d)$", "${1}:00${2}")
        iso = pl.select(
            pl.when(iso.str.contains(r"T.*[+-]\d\d:?\d\d$")).then(iso).otherwise(iso + "+00:00")
        ).to_series()
        moments = iso.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", strict=False, time_unit="us").dt.replace_time_zone(None)
    unreadable = _where(moments.is_null() & ~absent)
    values = moments.fill_null(strategy="zero").to_numpy()
    shown = _shown(text, unreadable)
    return Column(series.name, values, None, _where(absent), unreadable, texts=shown, expects="an ISO date or a number")


def _text(series: pl.Series) -> pl.Series:
    """The column as stripped text; 2.0 becomes 2, which makes all sources agree."""
    if series.dtype.is_float():
        series = series.fill_nan(None)
        whole = series.cast(pl.Int64, strict=False)
        if (whole.cast(series.dtype) == series).fill_null(series.is_null()).all():
            series = whole
    return series.cast(pl.String).str.strip_chars()


def _absent(text: pl.Series) -> pl.Series:
    return text.is_null() | text.str.to_lowercase().is_in(MISSING_WORDS).fill_null(False)


def _is_true_false(text: pl.Series, absent: pl.Series) -> bool:
    lowered = text.filter(~absent).str.to_lowercase()
    return len(lowered) > 0 and bool(lowered.is_in(["true", "false"]).all())


def _truth(text: pl.Series) -> pl.Series:
    lowered = text.str.to_lowercase()
    yes, no = lowered.is_in(_TRUE), lowered.is_in(_FALSE)
    return pl.select(pl.when(yes).then(1.0).when(no).then(0.0)).to_series()


def _column(name: str, values: pl.Series, absent: pl.Series, text: pl.Series, expects: str = "a number") -> Column:
    unreadable = _where(values.is_null() & ~absent)
    numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
    return Column(name, numbers, None, _where(absent), unreadable, texts=_shown(text, unreadable), expects=expects)


def _shown(text: pl.Series, rows: Values) -> tuple[str, ...]:
    return tuple(str(text[int(row)]) for row in rows[:3])


def _where(mask: pl.Series) -> Values:
    return np.flatnonzero(mask.to_numpy())
