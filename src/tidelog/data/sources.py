"""Sources of logs: files and frames become a `Table`, which needs a mapping, or a `RawLog`, which needs none.

Each format is one function, registered under its file endings in `SOURCES` (tables) or `ARRAYS` (no mapping):
tables of text are in `text`, formats of others in `formats`.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from tidelog._files import MANIFEST, NotRegularError, check_regular, open_regular
from tidelog._machine import shortage
from tidelog.data.columns import USUAL_FORM, TextForm
from tidelog.data.dependence import kind_of
from tidelog.data.formats import is_robomimic, raw_archive, raw_d4rl, raw_reagent, raw_robomimic
from tidelog.data.parse import Table, duplicates, first_error_line, spelled, unique
from tidelog.data.raw import Finding, Problem, RawLog, Report, conversion_note, unread_note, unreadable
from tidelog.data.text import (
    DOCUMENTS,
    FIX_MEMORY,
    PACKED,
    SEPARATORS,
    ending_of,
    is_document,
    read_csv,
    read_document,
    read_lines,
    read_objects,
    read_separated,
    read_tsv,
    refuse_large,
    refuse_wide,
)
from tidelog.errors import LogError, nearest

# Name the files of a source: a path, a folder of tables, a glob, or several of these, in the order of their names.

_MAGIC = "*?["
_SHOWN = 8
_EXPECTED = "tables, as files, folders of files, or globs"
_LAKES = {"_delta_log": "Delta Lake", "metadata": "Iceberg"}  # their files hold rows that were deleted


class Files(NamedTuple):
    """The files of a source, sorted, and what belongs in the report about them."""

    paths: tuple[Path, ...]
    source: str  # the source as text
    unread: tuple[str, ...] = ()  # names in a folder or of a glob that are not tables
    repeated: int = 0  # files that were named more than once


def files_of(source: Any, is_table: Callable[[Path], bool]) -> Files | None:
    """The files of a folder of tables, a glob, or a list of paths; None for any other source, such as one file.

    `is_table` tells a table from other files by its name. LogError for a glob that matches nothing, a file that does
    not exist, a folder without tables in a list, and a folder of a table format with its own history.
    """
    if isinstance(source, str | Path):
        found = _expanded(source, is_table)
        return None if found is None else _sorted([found], str(source))
    if not isinstance(source, list | tuple):
        return None
    if not source:
        raise unreadable("no files", "an empty list of files", _EXPECTED, "name at least one file")
    groups = []
    for one in source:
        if not isinstance(one, str | Path):
            fix = "name files; join frames first, for example with polars.concat"
            raise unreadable("several files", f"a {type(one).__name__} in the list of files", _EXPECTED, fix)
        groups.append(_expanded(one, is_table) or _single(Path(one), is_table))
    return _sorted(groups, several_as_text(map(str, source)))


def recorded_source(source: Any, is_table: Callable[[Path], bool]) -> str | list[str] | None:
    """The absolute paths from which a source is read again: a text for one file, a list for several.

    Names that are no files, such as the id of a Minari data set, stay unchanged; None for frames.
    """
    files = files_of(source, is_table)
    if files is not None:
        paths = [str(path.absolute()) for path in files.paths]
        return paths[0] if len(paths) == 1 else paths
    if not isinstance(source, str | Path):
        return None
    return str(Path(source).absolute()) if os.path.exists(source) else str(source)


def several_as_text(names: Iterable[str]) -> str:
    """The first of several names, and the number of the others."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{listed[0]} and {len(listed) - 1:,} more"


def source_text(origin: Mapping[str, Any]) -> str:
    """The source in the origin of a log, as text."""
    source = origin["source"]
    return several_as_text(map(str, source)) if isinstance(source, list) else str(source)


def _expanded(source: str | Path, is_table: Callable[[Path], bool]) -> tuple[list[Path], list[str]] | None:
    """The tables of a folder or of a glob, and the names that are not tables; None for any other name."""
    path = Path(source)
    if os.path.isdir(path):
        return _folder(path, is_table)
    if os.path.exists(path) or not any(sign in str(source) for sign in _MAGIC):
        return None
    matches = [Path(match) for match in glob.glob(str(source), recursive=True)]
    if not matches:
        fix = "check the pattern; in a shell, quotes around it keep it from being expanded"
        raise unreadable(str(source), "no file matches this glob", "at least one table", fix)
    tables, unread = [], []
    for match in matches:
        inner = _folder(match, is_table) if match.is_dir() else ([match], []) if is_table(match) else None
        tables += inner[0] if inner else []
        unread += inner[1] if inner else [str(match)]
    if not tables:
        found = f"none of the {len(matches):,} names that match is a table, for example {min(unread)}"
        raise unreadable(str(source), found, "at least one table", "correct the ending in the pattern")
    return tables, unread


def _folder(folder: Path, is_table: Callable[[Path], bool]) -> tuple[list[Path], list[str]] | None:
    """The tables directly in a folder, and its other names; None for a saved log, a run or a folder without tables."""
    if (folder / MANIFEST).exists() or (folder / "run.json").exists():
        return None
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise unreadable(
            str(folder), str(error), "a folder of tables", "check the permissions of the folder"
        ) from error
    for name, lake in _LAKES.items():
        if (folder / name).is_dir() and (name == "_delta_log" or any((folder / name).glob("*.metadata.json"))):
            fix = "read it with polars (scan_delta, scan_iceberg) and pass the frame, or export it as plain files"
            found = f"a table of {lake}, whose files also hold deleted rows"
            raise unreadable(str(folder), found, "a folder of plain tables", fix)
    entries = [entry for entry in entries if not entry.name.startswith((".", "_"))]  # such as _SUCCESS
    tables = [entry for entry in entries if entry.is_file() and is_table(entry)]
    if tables:
        return tables, [str(entry) for entry in entries if entry not in tables]
    below = sorted(path for depth in ("*/*", "*/*/*", "*/*/*/*") for path in folder.glob(depth))
    deeper = [path for path in below if path.is_file() and is_table(path)]
    if deeper:
        tops: dict[str, list[Path]] = {}
        for path in deeper:
            tops.setdefault(path.relative_to(folder).parts[0], []).append(path)
        each = {name: sum(path.stat().st_size for path in paths) for name, paths in tops.items()}
        largest = max(each, key=lambda name: each[name])
        pattern = str(folder / largest / "**" / f"*{tops[largest][0].suffix}")
        listed = ", ".join(f"{len(paths):,} in {name}" for name, paths in list(tops.items())[:_SHOWN])
        found = f"no table directly in the folder, but below it: {listed}" + (", ..." if len(tops) > _SHOWN else "")
        fix = f"name the files of one table with a glob, such as '{pattern}'"
        raise unreadable(str(folder), found, "a folder of tables", fix)
    return None


def _single(path: Path, is_table: Callable[[Path], bool]) -> tuple[list[Path], list[str]]:
    """One name of a list; LogError unless it is a table that exists."""
    if not os.path.exists(path):
        raise unreadable(str(path), "the file does not exist", "a table", "check the path")
    if not is_table(path) or path.is_dir():
        fix = "name only tables; join logs in memory with tidelog.concat"
        raise unreadable(str(path), "not a table, in a list of several files", _EXPECTED, fix)
    return [path], []


def _sorted(groups: Iterable[tuple[list[Path], list[str]]], source: str) -> Files:
    """All files once, in the order of their names."""
    paths: dict[Path, Path] = {}
    unread: set[str] = set()
    count = 0
    for tables, others in groups:
        count += len(tables)
        unread |= set(others)
        for path in tables:
            paths.setdefault(path.resolve(), path)
    ordered = sorted(paths.values(), key=os.path.abspath)  # the same from any folder
    return Files(tuple(ordered), source, tuple(sorted(unread)), count - len(paths))


# Read a table: text, JSON, Parquet and Arrow files by their endings, and frames in memory.

Reader: TypeAlias = Callable[[Path, Sequence[str] | None], Table]  # (path, column names or None for all) -> table
_NUMBER = 8  # bytes of memory of one cell
_ARROW_FILE = b"ARROW1"  # at the start of an Arrow file; a stream has no such mark


def one_table(source: Any, columns: Sequence[str] | None = None, form: TextForm = USUAL_FORM) -> Table:
    """Read a table from one path, a Polars frame or a pandas frame; LogError if it cannot be read.

    Without a header, the columns of separated text are `column_1`, `column_2`, ... With a separator, a file with an
    unknown ending is separated text.
    """
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        frame = source.collect() if isinstance(source, pl.LazyFrame) else source
        return Table.of(frame, "the frame")
    kind = type(source)
    if kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame":  # without importing pandas
        labels = [str(label) for label in source.columns]
        series = [_pandas_series(label, source.iloc[:, place]) for place, label in enumerate(unique(labels))]
        return Table.of(pl.DataFrame(series), "the frame", labels)
    if not isinstance(source, str | Path):
        raise _not_a_table(
            repr(kind.__name__), "neither a path nor a frame", "pass a path, or a Polars or pandas frame"
        )
    path = Path(source)
    ending = ending_of(path, SOURCES)
    try:
        if (path / MANIFEST).is_file():
            raise _not_a_table(str(path), "a saved log, which needs no mapping", "use tidelog.open_log")
        if ending is None and form.separator is None:
            unknown = "".join(path.suffixes[-2:]) or path.name
            known = f"{nearest(unknown, SOURCES)}; tidelog.read_npz and read_minari read arrays"
            fix = f"for text, set separator in the mapping; {known}"
            raise _not_a_table(str(path), f"an unknown file ending: '{unknown}'", fix)
        if not os.path.exists(path):
            remote = re.match(r"([a-z0-9]{2,}):/", str(source))
            fix = f"download it first: paths of {remote[1]}: are not read" if remote else "check the path"
            raise _not_a_table(str(source), "the file does not exist", fix)
        problem = shortage(check_regular(path).st_size)
        if problem is not None:
            raise _not_a_table(str(path), problem, FIX_MEMORY)
        reader = read_csv if ending is None else SOURCES[ending]
        refused = _unfit_setting(form, reader)
        if refused is not None:
            setting, found = refused
            raise _not_a_table(str(path), found, f"drop {setting} from the mapping")
        if form.explode is not None:
            table = read_objects(path, explode=form.explode, document=reader is read_document)
        else:
            usual = SEPARATORS.get(ending or "", ",")
            table = reader(path, columns) if form == USUAL_FORM else read_separated(path, usual, form)
    except NotRegularError as error:
        raise _not_a_table(str(path), str(error), "name a regular file") from error
    except (OSError, EOFError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _not_a_table(str(path), first_error_line(error), "export or copy the file again") from error
    return table


def _unfit_setting(form: TextForm, reader: Reader) -> tuple[str, str] | None:
    """The first setting that a file of this kind cannot have, and what was found; None if all fit."""
    is_text = reader in (read_csv, read_tsv)
    settings = (
        ("header", not form.header and not is_text, "header = false for a file with names"),
        ("separator", form.separator is not None and not is_text, "a separator for a file that is no text"),
        ("decimal", form.decimal != "." and not is_text, "a decimal comma for a file that is no text"),
        ("explode", form.explode is not None and reader not in _OF_JSON, "explode for a file that is not JSON"),
    )
    return next(((setting, found) for setting, unfit, found in settings if unfit), None)


def _not_a_table(source: str, found: str, fix: str) -> LogError:
    return unreadable(source, found, f"a table: {ENDINGS_TEXT}, or a frame", fix)


def _pandas_series(label: str, column: Any) -> pl.Series:
    """The same column in Polars; missing values of any pandas type become null."""
    if str(column.dtype).startswith("datetime64"):
        naive = column if column.dt.tz is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(label, naive.to_numpy().astype("datetime64[us]"))
    if column.dtype.kind in "biuf" and not hasattr(column.dtype, "na_value"):
        return pl.Series(label, column.to_numpy())
    empty = column.isna().to_numpy()
    values = [None if absent else value for value, absent in zip(column.tolist(), empty, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float, bool}:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(label, values, strict=False)


def read_parquet(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of a Parquet file, one at a time."""
    return _selected(pl.scan_parquet(path, low_memory=True), path, columns)


def read_arrow(path: Path, columns: Sequence[str] | None) -> Table:
    """Read the named columns of an Arrow file (Feather) or stream."""
    with open_regular(path) as stream:
        whole = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
    return _selected(pl.scan_ipc(path) if whole else pl.read_ipc_stream(path).lazy(), path, columns)


def _selected(frame: pl.LazyFrame, path: Path, columns: Sequence[str] | None) -> Table:
    """The named columns, and those named like clusters, or else the first column; LogError if they do not fit."""
    present = frame.collect_schema().names()
    refuse_wide(path, len(present))
    named = set(present if columns is None else columns)
    used = [name for name in present if name in named or kind_of(name) is not None] or present[:1]
    rows = int(frame.select(pl.len()).collect().item())
    refuse_large(path, _NUMBER * rows * len(used), "a table that fits into memory")
    return Table.of(frame.select(used), str(path), present)


_OF_TEXT: dict[str, Reader] = {
    ".csv": read_csv, ".tsv": read_tsv, ".jsonl": read_lines, ".ndjson": read_lines, ".dsjson": read_lines,
}  # fmt: skip
_OF_JSON = (read_lines, read_document)
SOURCES: dict[str, Reader] = {
    **_OF_TEXT,
    **{f"{ending}{packed}": reader for ending, reader in _OF_TEXT.items() for packed in PACKED},
    **dict.fromkeys(DOCUMENTS, read_document),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
}
TEXT_ENDINGS = tuple(SEPARATORS)
ENDINGS_TEXT = (
    f"{', '.join([*_OF_TEXT, DOCUMENTS[0]])} (each also {', '.join(PACKED)}), "
    f"{', '.join(ending for ending in SOURCES if ending.count('.') == 1 and ending not in (*_OF_TEXT, DOCUMENTS[0]))}"
)


# Read a table from one source or from several files: one table, whose rows keep their file and their number in it.

# of values with types of their own, not of a schema
_LINES = tuple(ending for ending, reader in SOURCES.items() if reader in (read_lines, read_document))


def is_table_file(path: str | Path) -> bool:
    """Whether a name ends like a table; a .json file also begins like a document with a list of objects."""
    ending = ending_of(path, SOURCES)
    return ending is not None and (ending not in DOCUMENTS or is_document(Path(path)))


def table_of(
    source: Any,
    columns: Sequence[str] | None = None,
    form: TextForm = USUAL_FORM,
    needed: Sequence[str] | None = None,
) -> Table:
    """Read a table from a frame, a file, a folder of files, a glob, or a list of these; LogError if it cannot be read.

    Several files are read in the order of their names. A column that one of them lacks, or that has types that do not
    fit together, is in `Table.uneven`; LogError for different tables, unless each has all `needed` columns (default:
    `columns`). Without a header, columns of separated text are `column_1`, `column_2`, ...
    """
    files = files_of(source, is_table_file)
    if files is None:
        return one_table(source, columns, form)
    notes = unread_note(files.unread)
    if len(files.paths) == 1:
        table = one_table(files.paths[0], columns, form)
        return replace(table, found=[*table.found, *notes])
    again = f"; {files.repeated:,} named twice are read once" if files.repeated else ""
    listed = ", ".join(map(str, files.paths[:_SHOWN])) + (", ..." if len(files.paths) > _SHOWN else "")
    found = f"{len(files.paths):,} files, in the order of their names{again}: {listed}"
    fix = "nothing, if this order is right where no step or time orders the rows"
    notes.append(("several files", Finding(None, None, found, "a log", fix)))
    parts = _read(files.paths, columns, files.source, form)
    _refuse_different(parts, files.source, columns if needed is None else needed)
    return joined(parts, files.source, notes)


def table_with(source: Any, columns: Sequence[str]) -> Table:
    """Read a table in which these columns are named; text without a header has `column_1`, `column_2`, ...

    Text is read without a header where these names say so and its first line does not have them.
    """
    table = table_of(source, columns)
    numbered = all(re.fullmatch(r"column_[1-9]\d*", name) for name in columns)
    is_text = all(one.source.lower().endswith(TEXT_ENDINGS) for one in table.parts or (table,))
    if numbered and is_text and not set(columns) & set(table.columns):
        return table_of(source, columns, TextForm(header=False))
    return table


def _read(paths: Sequence[Path], columns: Sequence[str] | None, source: str, form: TextForm) -> list[Table]:
    """The table of every file; LogError with the problems of all files that cannot be read."""
    tables: list[Table] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            tables.append(one_table(path, columns, form))
        except LogError as error:
            report: Report = error.report
            problems += [
                replace(
                    one, files=(str(path),) * len(one.rows), found=one.found if one.rows else f"{path}: {one.found}"
                )
                for one in report.problems
            ]
    if problems:
        whole = Report(source, 0, tuple(problems))
        raise LogError(whole.text(), report=whole)
    return tables


def _refuse_different(parts: Sequence[Table], source: str, needed: Sequence[str] | None) -> None:
    """LogError if files are different tables: less than half of their columns are in all of them, or none is needed.

    Files to which a column was added are one table; so are all files that have the needed columns.
    """
    groups: dict[frozenset[str], list[Table]] = {}
    for part in parts:
        if part.rows:
            groups.setdefault(frozenset(part.columns), []).append(part)
    if len(groups) < 2 or all(_lacks_names(part) for part in parts):
        return
    common, every = frozenset.intersection(*groups), frozenset.union(*groups)
    if 2 * len(common) >= len(every) or (needed and common.issuperset(needed)):
        return
    wanted = frozenset(needed or ())
    ordered = sorted(groups.items(), key=lambda one: (-len(one[0] & wanted), -sum(part.rows for part in one[1])))
    found = "; ".join(f"{_listed(files)} with {_first(files[0].columns)}" for _, files in ordered[:_SHOWN])
    found = f"{len(groups):,} different tables: {found}" + ("; ..." if len(groups) > _SHOWN else "")
    columns, chosen = ordered[0]
    others = [part for part in parts if part not in chosen]
    why = "which has the columns that are named" if wanted and columns >= wanted else "which has the most rows"
    fix = f"name the files of one table, such as {_pattern(chosen, others)}, {why}"
    raise unreadable(source, found, "files with the same columns", fix, "files differ")


def _lacks_names(part: Table) -> bool:
    """Whether the first line of a text file holds a number, as one without a header does."""
    numbers = pl.Series(part.columns, dtype=pl.String).cast(pl.Float64, strict=False)
    return part.source.lower().endswith(TEXT_ENDINGS) and numbers.null_count() < len(numbers)


def _listed(files: Sequence[Table]) -> str:
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{files[0].source}{more} ({sum(part.rows for part in files):,} rows)"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _pattern(files: Sequence[Table], others: Sequence[Table]) -> str:
    """A path or a glob that names these files and none of the others, or the paths of the first files."""
    paths, left = ([Path(part.source) for part in some] for some in (files, others))
    if len(paths) == 1:
        return shlex.quote(str(paths[0]))
    top, ending = Path(os.path.commonpath([path.parent for path in paths])), ending_of(paths[0], SOURCES)
    prefix = re.match(r"\D*", paths[0].name.removesuffix(str(ending)))
    for pattern in (f"*{ending}", f"**/*{ending}", f"{prefix[0] if prefix else ''}*{ending}"):
        matched = set(top.glob(pattern))
        if matched.issuperset(paths) and matched.isdisjoint(left):
            return shlex.quote(str(top / pattern))
    return " ".join(shlex.quote(str(path)) for path in paths[:_SHOWN]) + (" ..." if len(paths) > _SHOWN else "")


def joined(parts: Sequence[Table], source: str, notes: Sequence[tuple[str, Finding]] = ()) -> Table:
    """One table of the rows of all parts, in their order."""
    schemas = [part.data.collect_schema() for part in parts]
    names = list(dict.fromkeys(name for schema in schemas for name in schema))
    kinds: dict[str, pl.DataType] = {}
    uneven: dict[str, str] = {}
    for name in names:
        kind, difference = _common(name, parts, [schema.get(name) for schema in schemas])
        kinds[name] = kind
        if difference is not None:
            uneven[name] = difference
    frames = [_as(part.data, schema, kinds) for part, schema in zip(parts, schemas, strict=True)]
    eager = [frame for frame in frames if isinstance(frame, pl.DataFrame)]
    data = pl.concat(eager) if len(eager) == len(frames) else pl.concat([frame.lazy() for frame in frames])
    own = [
        (check, finding._replace(found=f"{part.source}: {finding.found}"))
        for part in parts
        for check, finding in part.found
    ]
    if uneven:
        what = "; ".join(list(uneven.values())[:_SHOWN]) + ("; ..." if len(uneven) > _SHOWN else "")
        fix = "nothing, if the mapping does not need these columns"
        own.append(conversion_note(f"columns that differ between files, not read: {what}", "the same columns", fix))
    numbers = np.concatenate([part.numbers for part in parts])
    has_lines = all(part.has_lines for part in parts)
    header = list(dict.fromkeys(name for part in parts for name in part.columns))
    header += sorted({str(one.column) for part in parts for _, one in duplicates(part.columns)})  # twice in one file
    return Table(source, data, numbers, header, has_lines, [*notes, *own], tuple(parts), uneven)


def _common(name: str, parts: Sequence[Table], kinds: Sequence[pl.DataType | None]) -> tuple[pl.DataType, str | None]:
    """The type of a column in the whole table, and how the files differ if there is none that fits all."""
    present = [(part, kind) for part, kind in zip(parts, kinds, strict=True) if kind is not None]
    lacking = [part for part, kind in zip(parts, kinds, strict=True) if kind is None and part.rows]
    different = list(dict.fromkeys(kind for part, kind in present if kind != pl.Null and part.rows))
    kind = _widest(different or [present[0][1]], all(part.source.lower().endswith(_LINES) for part, _ in present))
    if lacking:
        others = f" and {len(lacking) - 1:,} more files" if len(lacking) > 1 else ""
        where = next(part.source for part, _ in present)
        return kind or pl.String(), f"no column '{name}' in {lacking[0].source}{others}; {where} has it"
    if kind is None:
        first, second = ((one, next(part.source for part, kind in present if kind == one)) for one in different[:2])
        return pl.String(), f"{first[0]} in {first[1]}, but {second[0]} in {second[1]}"
    return kind, None


def _widest(kinds: Sequence[pl.DataType], of_lines: bool) -> pl.DataType | None:
    """The type that holds all of these exactly: text, or the widest whole numbers or fractions; None without one.

    In JSON lines whole numbers and fractions are one type, as within one file.
    """
    if len(kinds) == 1:
        return kinds[0]
    if all(isinstance(kind, pl.String | pl.Categorical | pl.Enum) for kind in kinds):
        return pl.String()
    if of_lines and all(kind.is_numeric() for kind in kinds):
        return pl.Float64()
    if all(kind.is_float() for kind in kinds):
        return pl.Float64()
    if all(kind.is_signed_integer() for kind in kinds) or all(kind.is_unsigned_integer() for kind in kinds):
        return max(kinds, key=lambda kind: int(str(kind).lstrip("UInt")))
    return None


def _as(data: pl.DataFrame | pl.LazyFrame, schema: pl.Schema, kinds: dict[str, pl.DataType]) -> Any:
    """The columns of all files in one order and with their common types; nulls where this file has none."""
    columns = (
        pl.lit(None, kind).alias(name) if name not in schema else _cast(name, schema[name], kind)
        for name, kind in kinds.items()
    )
    return data.with_columns(columns).select(list(kinds))


def _cast(name: str, kind: pl.DataType, target: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if kind == target:
        return column
    nested = isinstance(kind, pl.List | pl.Array | pl.Struct | pl.Object | pl.Binary)
    return column.map_batches(spelled, return_dtype=pl.String()) if nested else column.cast(target, strict=False)


# Sources of logs: files and frames become a `Table` (which needs a mapping), or a `RawLog` (which needs none).
#
# `tables` reads table files and frames: `separated_text` and `json_objects` from `file_bytes`. `several` joins the
# tables of several files, which `files` names, `arrays` reads npz, D4RL and OGBench, `robomimic` its HDF5 files,
# `reagent` reads ReAgent's JSON, `minari` reads Minari data sets. Each format is one function, registered under its
# file endings in `SOURCES` (tables) or `ARRAYS` (no mapping).

__all__ = ["ARRAYS", "ENDINGS_TEXT", "SOURCES", "Reader", "ending_of", "is_table_file", "table_of", "table_with"]


def raw_hdf5(path: Path) -> RawLog:
    """Read demonstrations of robomimic, or else the arrays of D4RL."""
    return raw_robomimic(path) if is_robomimic(path) else raw_d4rl(path)


ARRAYS: dict[str, Callable[[Path], RawLog]] = {
    ".npz": raw_archive,
    ".hdf5": raw_hdf5,
    ".h5": raw_hdf5,
    ".json": raw_reagent,
    ".json.gz": raw_reagent,
    ".json.bz2": raw_reagent,
}
