"""Read any source into a validated log, or into a report of every problem; convert a log to another format."""

from __future__ import annotations

import glob
import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from tidelog._files import MANIFEST, NotRegularError, check_regular, delete, not_written, write_files
from tidelog._machine import shortage
from tidelog._text import shorten
from tidelog.data.columns import USUAL_FORM, Columns, TextForm, UnknownKeyError
from tidelog.data.export import save_npz, to_parquet
from tidelog.data.formats import (
    ARRAYS,
    DOCUMENTS,
    ENDINGS_TEXT,
    FORMATS,
    LINE_ENDINGS,
    TABLES,
    TEXT,
    TEXT_ENDINGS,
    UNFIT,
    ending_of,
    is_document,
    raw_minari,
)
from tidelog.data.log import Log
from tidelog.data.parse import (
    ParsedTable,
    duplicates,
    finest,
    first_error_line,
    from_table,
    rows_to_read,
    spelled,
    unique,
    write_csv,
)
from tidelog.data.raw import (
    FIX_MEMORY,
    Check,
    Finding,
    Problem,
    RawLog,
    Report,
    conversion_note,
    examine,
    findings,
    report_of,
    several_as_text,
    unread_note,
    unreadable,
)
from tidelog.errors import ConfigError, LogError, nearest

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


def files_of(source: Any) -> Files | None:
    """The files of a folder of tables, a glob, or a list of paths; None for any other source, such as one file.

    LogError for a glob that matches nothing, a file that does
    not exist, a folder without tables in a list, and a folder of a table format with its own history.
    """
    if isinstance(source, str | Path):
        found = _expanded(source)
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
        group = _expanded(one)
        if group is None and not os.path.exists(one):
            raise unreadable(one, "the file does not exist", "a table", "check the path")
        if group is None and (not is_table_file(one) or os.path.isdir(one)):
            fix = "name only tables; join logs in memory with tidelog.Log.concat"
            raise unreadable(one, "not a table, in a list of several files", _EXPECTED, fix)
        groups.append(group or ([Path(one)], []))
    return _sorted(groups, several_as_text(map(str, source)))


def recorded_source(source: Any) -> str | list[str] | None:
    """The absolute paths from which a source is read again: a text for one file, a list for several.

    Names that are no files, such as the id of a Minari data set, stay unchanged; None for frames.
    """
    files = source if isinstance(source, Files) else files_of(source)
    if files is not None:
        paths = [str(path.absolute()) for path in files.paths]
        return paths[0] if len(paths) == 1 else paths
    if not isinstance(source, str | Path):
        return None
    return str(Path(source).absolute()) if os.path.exists(source) else str(source)


def _expanded(source: str | Path) -> tuple[list[Path], list[str]] | None:
    """The tables of a folder or of a glob, and the names that are not tables; None for any other name."""
    path = Path(source)
    if os.path.isdir(path):
        return _folder(path)
    if os.path.exists(path) or not any(sign in str(source) for sign in _MAGIC):
        return None
    matches = [Path(match) for match in glob.glob(str(source), recursive=True)]
    if not matches:
        fix = "check the pattern; in a shell, quotes around it keep it from being expanded"
        raise unreadable(str(source), "no file matches this glob", "at least one table", fix)
    tables, unread = [], []
    for match in matches:
        inner = _folder(match) if match.is_dir() else ([match], []) if _holds_rows(match) else None
        tables += inner[0] if inner else []
        unread += inner[1] if inner else [str(match)]
    if not tables:
        found = f"none of the {len(matches):,} names that match is a table, for example {min(unread)}"
        raise unreadable(str(source), found, "at least one table", "correct the ending in the pattern")
    return tables, unread


def _folder(folder: Path) -> tuple[list[Path], list[str]] | None:
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
    tables = [entry for entry in entries if entry.is_file() and _holds_rows(entry)]
    if tables:
        return tables, [str(entry) for entry in entries if entry not in tables]
    below = sorted(path for depth in ("*/*", "*/*/*", "*/*/*/*") for path in folder.glob(depth))
    deeper = [path for path in below if path.is_file() and _holds_rows(path)]
    if deeper:
        tops: dict[str, list[Path]] = {}
        for path in deeper:
            tops.setdefault(path.relative_to(folder).parts[0], []).append(path)
        each = {name: sum(path.stat().st_size for path in paths) for name, paths in tops.items()}
        largest = max(each, key=lambda name: each[name])
        pattern = str(folder / largest / "**" / f"*{tops[largest][0].suffix}")
        counts = shorten((f"{len(paths):,} in {name}" for name, paths in tops.items()), _SHOWN)
        found = f"no table directly in the folder, but below it: {counts}"
        fix = f"name the files of one table with a glob, such as '{pattern}'"
        raise unreadable(str(folder), found, "a folder of tables", fix)
    return None


def _holds_rows(path: Path) -> bool:
    """Whether a name ends like a table; a .json file also begins like a document, as it may be a mapping."""
    return is_table_file(path) and (ending_of(path, DOCUMENTS) is None or is_document(path))


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


def one_table(source: Any, columns: Sequence[str] | None = None, form: TextForm = USUAL_FORM) -> ParsedTable:
    """Read a table from one path, a Polars frame or a pandas frame; LogError if it cannot be read.

    Without a header, the columns of separated text are `column_1`, `column_2`, ... With a separator, a file with an
    unknown ending is separated text.
    """
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        frame = source.collect() if isinstance(source, pl.LazyFrame) else source
        return ParsedTable.of(frame, "the frame")
    kind = type(source)
    if kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame":  # without importing pandas
        labels = [str(label) for label in source.columns]
        series = [_pandas_series(label, source.iloc[:, position]) for position, label in enumerate(unique(labels))]
        return ParsedTable.of(pl.DataFrame(series), "the frame", labels)
    if not isinstance(source, str | Path):
        raise _not_a_table(
            repr(kind.__name__), "neither a path nor a frame", "pass a path, or a Polars or pandas frame"
        )
    path = Path(source)
    ending = ending_of(path, TABLES)
    try:
        if (path / MANIFEST).is_file():
            raise _not_a_table(str(path), "a saved log, which needs no mapping", "use tl.Log.load")
        if ending is None and form.separator is None:
            unknown = "".join(path.suffixes[-2:]) or path.name
            guess = nearest(unknown, TABLES)
            near = f"; {guess}" if guess.startswith("did") else ""
            fix = f"for text, set separator in the mapping; files of arrays need no mapping{near}"
            raise _not_a_table(str(path), f"an unknown file ending: '{unknown}'", fix)
        if not os.path.exists(path):
            remote = re.match(r"([a-z0-9]{2,}):/", str(source))
            fix = f"download it first: paths of {remote[1]}: are not read" if remote else "check the path"
            raise _not_a_table(str(source), "the file does not exist", fix)
        problem = shortage(check_regular(path).st_size)
        if problem is not None:
            raise _not_a_table(str(path), problem, FIX_MEMORY)
        table = TEXT if ending is None else TABLES[ending]
        for setting, found in UNFIT.items():
            if setting not in table.settings and getattr(form, setting) != getattr(USUAL_FORM, setting):
                raise _not_a_table(str(path), found, f"drop {setting} from the mapping")
        return table.read(path, columns, form)
    except NotRegularError as error:
        raise _not_a_table(str(path), str(error), "name a regular file") from error
    except (OSError, EOFError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _not_a_table(str(path), first_error_line(error), "export or copy the file again") from error


def _not_a_table(source: str, found: str, fix: str) -> LogError:
    return unreadable(source, found, f"a table: {ENDINGS_TEXT}, or a frame", fix)


def _pandas_series(label: str, column: Any) -> pl.Series:
    """The same column in Polars; missing values of any pandas type become null."""
    if str(column.dtype).startswith("datetime64"):
        naive = column if column.dt.tz is None else column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(label, finest(naive.to_numpy()))
    if column.dtype.kind in "biuf" and not hasattr(column.dtype, "na_value"):
        return pl.Series(label, column.to_numpy())
    empty = column.isna().to_numpy()
    values = [None if absent else value for value, absent in zip(column.tolist(), empty, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float, bool}:
        values = [None if value is None else str(value) for value in values]
    return pl.Series(label, values, strict=False)


# Read a table from one source or from several files: one table, whose rows keep their file and their number in it.


def is_table_file(path: str | Path) -> bool:
    """Whether a name ends like a table."""
    return ending_of(path, TABLES) is not None


def table_of(
    source: Any,
    columns: Sequence[str] | None = None,
    form: TextForm = USUAL_FORM,
    needed: Sequence[str] | None = None,
) -> ParsedTable:
    """Read a table from a frame, a file, a folder of files, a glob, or a list of these; LogError if it cannot be read.

    Several files are read in the order of their names. A column that one of them lacks, or that has types that do not
    fit together, is in `Table.uneven`; LogError for different tables, unless each has all `needed` columns (default:
    `columns`). Without a header, columns of separated text are `column_1`, `column_2`, ...
    """
    files = source if isinstance(source, Files) else files_of(source)
    if files is None:
        return one_table(source, columns, form)
    notes = unread_note(files.unread)
    if len(files.paths) == 1:
        table = one_table(files.paths[0], columns, form)
        return replace(table, found=[*table.found, *notes])
    again = f"; {files.repeated:,} named twice are read once" if files.repeated else ""
    found = f"{len(files.paths):,} files, in the order of their names{again}: {shorten(files.paths, _SHOWN)}"
    fix = "nothing, if this order is right where no step or time orders the rows"
    notes.append(("several files", Finding(None, None, found, "a log", fix)))
    parts = _read(files.paths, columns, files.source, form)
    _refuse_different(parts, files.source, columns if needed is None else needed)
    return joined(parts, files.source, notes)


def table_with(source: Any, columns: Sequence[str]) -> ParsedTable:
    """Read a table in which these columns are named; text without a header has `column_1`, `column_2`, ...

    Text is read without a header where these names say so and its first line does not have them.
    """
    table = table_of(source, columns)
    numbered = all(re.fullmatch(r"column_[1-9]\d*", name) for name in columns)
    is_text = all(one.source.lower().endswith(TEXT_ENDINGS) for one in table.parts or (table,))
    if numbered and is_text and not set(columns) & set(table.columns):
        return table_of(source, columns, TextForm(header=False))
    return table


def _read(paths: Sequence[Path], columns: Sequence[str] | None, source: str, form: TextForm) -> list[ParsedTable]:
    """The table of every file; LogError with the problems of all files that cannot be read."""
    tables: list[ParsedTable] = []
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


def _refuse_different(parts: Sequence[ParsedTable], source: str, needed: Sequence[str] | None) -> None:
    """LogError if files are different tables: less than half of their columns are in all of them, or none is needed.

    Files to which a column was added are one table; so are all files that have the needed columns.
    """
    groups: dict[frozenset[str], list[ParsedTable]] = {}
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
    each = []
    for _, files in ordered:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        rows, names = sum(part.rows for part in files), shorten(files[0].columns, _SHOWN)
        each.append(f"{files[0].source}{more} ({rows:,} rows) with {names}")
    found = f"{len(groups):,} different tables: {shorten(each, _SHOWN, '; ')}"
    columns, chosen = ordered[0]
    others = [part for part in parts if part not in chosen]
    why = "which has the columns that are named" if wanted and columns >= wanted else "which has the most rows"
    fix = f"name the files of one table, such as {_pattern(chosen, others)}, {why}"
    raise unreadable(source, found, "files with the same columns", fix, "files differ")


def _lacks_names(part: ParsedTable) -> bool:
    """Whether the first line of a text file holds a number, as one without a header does."""
    numbers = pl.Series(part.columns, dtype=pl.String).cast(pl.Float64, strict=False)
    return part.source.lower().endswith(TEXT_ENDINGS) and numbers.null_count() < len(numbers)


def _pattern(files: Sequence[ParsedTable], others: Sequence[ParsedTable]) -> str:
    """A path or a glob that names these files and none of the others, or the paths of the first files."""
    paths, left = ([Path(part.source) for part in some] for some in (files, others))
    if len(paths) == 1:
        return shlex.quote(str(paths[0]))
    top, ending = Path(os.path.commonpath([path.parent for path in paths])), ending_of(paths[0], TABLES)
    prefix = re.match(r"\D*", paths[0].name.removesuffix(str(ending)))
    for pattern in (f"*{ending}", f"**/*{ending}", f"{prefix[0] if prefix else ''}*{ending}"):
        matched = set(top.glob(pattern))
        if matched.issuperset(paths) and matched.isdisjoint(left):
            return shlex.quote(str(top / pattern))
    return shorten((shlex.quote(str(path)) for path in paths), _SHOWN, " ")


def joined(parts: Sequence[ParsedTable], source: str, notes: Sequence[tuple[str, Finding]] = ()) -> ParsedTable:
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
        fix = "nothing, if the mapping does not need these columns"
        what = f"columns that differ between files, not read: {shorten(uneven.values(), _SHOWN, '; ')}"
        own.append(conversion_note(what, "the same columns", fix))
    numbers = np.concatenate([part.numbers for part in parts])
    has_lines = all(part.has_lines for part in parts)
    header = list(dict.fromkeys(name for part in parts for name in part.columns))
    header += sorted({str(one.column) for part in parts for _, one in duplicates(part.columns)})  # twice in one file
    return ParsedTable(source, data, numbers, header, has_lines, [*notes, *own], tuple(parts), uneven)


def _common(
    name: str, parts: Sequence[ParsedTable], kinds: Sequence[pl.DataType | None]
) -> tuple[pl.DataType, str | None]:
    """The type of a column in the whole table, and how the files differ if there is none that fits all."""
    present = [(part, kind) for part, kind in zip(parts, kinds, strict=True) if kind is not None]
    lacking = [part for part, kind in zip(parts, kinds, strict=True) if kind is None and part.rows]
    different = list(dict.fromkeys(kind for part, kind in present if kind != pl.Null and part.rows))
    kind = _widest(different or [present[0][1]], all(part.source.lower().endswith(LINE_ENDINGS) for part, _ in present))
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
    columns = []
    for name, kind in kinds.items():
        column = pl.col(name)
        if name not in schema:
            column = pl.lit(None, kind).alias(name)
        elif isinstance(schema[name], pl.List | pl.Array | pl.Struct | pl.Object | pl.Binary) and schema[name] != kind:
            column = column.map_batches(spelled, return_dtype=pl.String())
        elif schema[name] != kind:
            column = column.cast(kind, strict=False)
        columns.append(column)
    return data.select(columns)


# Read a log: a table through a mapping, or a source that needs none.

Source: TypeAlias = str | Path | Sequence[str | Path]  # a file, a folder of tables, a glob, or several of these


ADVICE = (
    f"a table ({ENDINGS_TEXT}) with a mapping, a saved log, a file that needs no mapping ({', '.join(ARRAYS)}), "
    "or the id of a Minari data set"
)


def read_log(
    source: Any,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    *,
    format: str | None = None,
    memory_map: bool = False,
) -> Log:
    """Read a log from a table through a mapping, or from a source that needs none; LogError with every problem.

    A table is a path, or a Polars or pandas frame; `columns` is its mapping: an object, or a TOML or JSON file. A
    folder of tables, a glob such as `logs/2026-*/part-*.parquet`, or a list of paths, folders and globs is one log of
    several files, which are read in the order of their names. Without `columns`, the source is a saved log, a file of
    arrays (`.npz`, `.hdf5`), or the id, the folder or the object of a Minari data set. The names in a file of arrays
    say its format; `format` says it where they do not: "npz", "d4rl", "ogbench", "robomimic" or "minari". `memory_map`
    leaves the columns of a saved log on disk. ConfigError for a mapping that is wrong, missing or not needed.

    Example:
        >>> table = pl.DataFrame({"patient": [7, 7, 8], "severity": [3, 2, 4], "dose": [0, 1, 0], "cured": [0, 1, 0]})
        >>> table.write_csv("visits.csv")
        >>> columns = tl.Columns(
        ...     episode="patient", observation=["severity"], action="dose", reward="cured", terminated=True
        ... )
        >>> tl.read_log("visits.csv", columns)
        Log(3 steps, 2 episodes, observation {numeric: Vector}, action Discrete)
        >>> np.savez("walk.npz", observations=np.zeros((5, 3)), actions=np.eye(5)[:, :2], terminals=[0, 0, 1, 0, 1])
        >>> tl.read_log("walk.npz", format="ogbench")
        Log(3 steps, 2 episodes, observation {observation: Vector}, action Continuous)
    """
    if memory_map and not _is_saved(source):
        raise ConfigError(
            f"{_shown(source)} is not a saved log: only saved logs can stay on disk",
            fix=(
                f"save it with `tidelog log convert --data {_quoted(source)} --out NAME.tidelog`, and "
                "--columns FILE for a table"
            ),
        )
    if _is_saved(source) and columns is None and format is None:
        log = Log.load(source, memory_map)
        return log if memory_map else replace(log, origin={"source": recorded_source(source), "columns": None})
    mapping, files = None if columns is None else Columns.of(columns), files_of(source)
    recorded = recorded_source(source if files is None else files)
    origin = None if recorded is None else {"source": recorded, "columns": mapping and asdict(mapping)}
    if origin is not None and format is not None:
        origin["format"] = format
    return replace(Log.from_raw(_raw(source, files, mapping, format)), origin=origin)


def is_table(source: Source) -> bool:
    """Whether a source needs a mapping: a table by its ending, or several tables."""
    return files_of(source) is not None or (isinstance(source, str | Path) and is_table_file(source))


def _is_saved(source: Any) -> bool:
    return isinstance(source, str | Path) and os.path.exists(Path(source) / MANIFEST)


def _raw(source: Any, files: Files | None, columns: Columns | None, format: str | None) -> RawLog:
    """Read a table through its mapping, or a source without one, by its `format` or else by its ending.

    `files` are those of the source, if it is not one file.
    """
    is_path = isinstance(source, str | Path)
    if format is not None:
        if columns is not None:
            raise ConfigError(f'format = "{format}" is not for a table: only tables use a mapping', fix="drop one")
        if format not in FORMATS:
            raise ConfigError(f"format = {format!r}", f"one of {', '.join(FORMATS)}", nearest(format, FORMATS))
        if format != "minari" and not is_path:
            raise ConfigError(f'format = "{format}" of {source!r}', "one file", "name its path")
        return FORMATS[format](source if format == "minari" else Path(source))
    is_table = files is not None or (is_path and is_table_file(source))
    ending = ending_of(source, ARRAYS) if is_path and not is_table else None
    if columns is not None:
        if _is_saved(source) or ending is not None:
            raise ConfigError(f"{source} is not a table: only tables use a mapping", fix="drop the mapping")
        names = [name for used in columns.used().values() for name in used]
        return from_table(table_of(source if files is None else files, names, columns.text_form), columns)
    if ending is not None:
        return ARRAYS[ending](Path(source))
    if is_table:
        raise ConfigError(
            f"{_shown(source)} is a table without a mapping of its columns",
            fix=(
                f"`tidelog log inspect --data {_quoted(source)}` proposes a mapping; write it to a file and "
                "pass --columns FILE"
            ),
        )
    if is_path and os.path.exists(source) and not os.path.isdir(source):
        raise LogError(
            f"{source} has the unknown ending '{Path(source).suffix}'",
            ADVICE,
            "give a table of text the ending .csv, or set `separator` in a mapping",
        )
    return raw_minari(str(source) if is_path else source)


def _shown(source: Source) -> str:
    return str(source) if isinstance(source, str | Path) else " ".join(map(str, source))


def _quoted(source: Source) -> str:
    return shlex.join([str(source)] if isinstance(source, str | Path) else map(str, source))


def validate(
    source: Any, columns: Columns | Mapping[str, Any] | str | Path | None = None, *, format: str | None = None
) -> Report:
    """Validate a source and return the report; does not raise for bad data.

    The arguments are those of `read_log`.
    """
    try:
        if _is_saved(source) and columns is None and format is None:
            return Log.load(source).report
        mapping = None if columns is None else Columns.of(columns)
        raw = _raw(source, files_of(source), mapping, format)
    except ConfigError as error:
        name = "unknown mapping key" if isinstance(error, UnknownKeyError) else "bad mapping"
        expected, fix = error.expected or "a mapping from the log's columns", error.fix or "correct the mapping"
        refused = unreadable(_shown(source) if columns is None else str(columns), error.found, expected, fix, name)
        report: Report = refused.report
        return report
    except LogError as error:
        if error.report is None:  # not a file of logs
            raise
        report = error.report
        return report
    return examine(raw)


def convert(
    source: Source,
    target: str | Path,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    overwrite: bool = False,
) -> str:
    """Read a log from any source and write it to `target`; return a description of the result.

    `target` is a `.parquet` table (plus its mapping), a `.tidelog` folder, or an `.npz` file.
    """
    kind = Path(target).suffix.lower()
    if kind not in TARGETS:
        raise ConfigError(
            f"target '{target}' has an unknown format: {nearest(kind, TARGETS)}",
            fix=f"name one output, such as {Path(target).name or 'log'}.parquet",
        )
    log = read_log(source, columns)
    if kind == ".parquet":
        return f"{target} and its mapping {to_parquet(log, target, overwrite)}"
    if kind == ".npz":
        save_npz(log, target, overwrite)
    else:
        log.save(target, overwrite)
    return str(target)


TARGETS = (".parquet", ".tidelog", ".npz")


# Write the rows that errors name to a separate file, with the reasons, for manual repair.

FILE, ROW, LINE, PROBLEMS = "quarantine_file", "quarantine_row", "quarantine_line", "quarantine_problems"


def quarantine(
    source: Any,
    columns: Columns | Mapping[str, Any] | str | Path,
    path: str | Path,
    csv_safe: bool = False,
    overwrite: bool = False,
    keep: str | Path | None = None,
) -> Report:
    """Validate a table and write the rows of every error, unchanged, to a new CSV file at `path`.

    `csv_safe` writes an apostrophe before text that a spreadsheet would compute as a formula.

    These columns come first: the file (if there are several), the row number, the line number (if each row has its own
    line), and all errors of the row. No file is written if no error names a row. ConfigError if `path` exists or does
    not end in .csv, or if the mapping is wrong; for an unreadable source the report is returned and no file is written.
    With `overwrite` a file at `path` is replaced, or deleted if no file is written. `keep`: also write the other rows
    to this new CSV file, without whole episodes of rows with errors: a missing row would join two steps that do not
    follow each other.
    """
    target = csv_path(path, overwrite)
    kept = None if keep is None else csv_path(keep, overwrite)
    mapping = Columns.of(columns)
    try:
        needed = [name for several in mapping.used().values() for name in several]
        table = rows_to_read(table_of(source, form=mapping.text_form, needed=needed), mapping)
        raw = from_table(table, mapping)
    except LogError as error:
        report: Report = error.report
        delete_older(target)
        return report
    results = findings(raw)
    write_rows(table, results, target, kept, mapping.episode, csv_safe, mapping.header)
    return report_of(raw, results)


def write_rows(
    table: ParsedTable,
    found: Iterable[tuple[Check, Finding]],
    target: Path | None,
    kept: Path | None,
    whole: str | None,
    csv_safe: bool = False,
    header: bool = True,
) -> None:
    """Write the rows that errors name, with the reasons, and the others; without such rows `target` is deleted.

    `whole` is the column of the rows that belong together, the episode or the user: where one of them has an error, the
    others are not kept.
    """
    named = [(f"{one.name} in '{finding.column}'" if finding.column else one.name, finding.at)
             for one, finding in found if one.level == "error" and finding.at is not None]  # fmt: skip
    frames = [pl.DataFrame({"row": at.astype(np.int64)}).with_columns(reason=pl.lit(name)) for name, at in named]
    rows, reasons = np.zeros(0, np.int64), list[str]()
    if frames:  # ascending, each with all its errors
        each = pl.concat(frames).group_by("row").agg(pl.col("reason").unique(maintain_order=True).str.join("; "))
        each = each.sort("row")
        rows, reasons = each["row"].to_numpy(), each["reason"].to_list()
    contents: dict[Path, bytes] = {}
    if target is not None and len(rows):
        marks: dict[str, Any] = {} if table.files is None else {FILE: table.files.of(rows)}
        marks |= {ROW: table.numbers[rows]} | ({LINE: table.numbers[rows] + 1} if table.has_lines else {})
        marks |= {PROBLEMS: reasons}
        used = [name for name in marks if name in table.frame.columns]
        if used:
            raise ConfigError(f"the source already has a column '{used[0]}'", fix="rename it")
        faulty = table.frame[rows]
        nested = [name for name, kind in faulty.schema.items() if isinstance(kind, pl.List | pl.Array)]
        faulty = faulty.with_columns(  # lists as text such as 1,0,1, which can be read again
            pl.Series(name, [None if cell is None else ",".join(map(str, cell)) for cell in faulty[name].to_list()])
            for name in nested
        )
        content = io.BytesIO()
        write_csv(pl.concat([pl.DataFrame(marks), faulty], how="horizontal"), content, csv_safe)
        contents[target] = content.getvalue()
    elif target is not None:
        delete_older(target)
    if kept is not None:
        left_out = np.isin(np.arange(table.rows), rows)
        if whole is not None and table.has(whole):
            ids = table.series(whole)
            left_out |= ids.is_in(ids.filter(pl.Series(left_out)).unique().implode()).fill_null(True).to_numpy()
        content = io.BytesIO()
        write_csv(table.frame.filter(pl.Series(~left_out)), content, csv_safe)
        contents[kept] = content.getvalue() if header else content.getvalue().partition(b"\n")[2]
    write_files(contents, ConfigError)


def csv_path(path: str | Path, overwrite: bool) -> Path:
    """The path of a CSV file that does not exist yet, or may be overwritten; ConfigError otherwise."""
    target = Path(path)
    if target.suffix.lower() != ".csv":
        raise ConfigError(f"{target}: the name must end in .csv", fix="use a name such as rows.csv")
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists, nothing was written", fix="choose another name")
    return target


def delete_older(target: Path) -> None:
    """Delete the file of an older validation; ConfigError if the disk refuses."""
    try:
        delete(target)
    except OSError as problem:
        raise not_written(target, problem, ConfigError) from problem
