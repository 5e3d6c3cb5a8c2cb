"""Read a table from one source or from several files: one table, whose rows keep their file and their number in it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog.data.core.columns import USUAL_FORM, TextForm
from tidelog.data.core.raw import Finding
from tidelog.data.core.registry import conversion_note, unread_note, unreadable
from tidelog.data.core.report import Problem, Report
from tidelog.data.parsing.column import spelled
from tidelog.data.parsing.tables import Table, duplicates
from tidelog.data.sources.file_bytes import ending_of
from tidelog.data.sources.files import files_of
from tidelog.data.sources.json_objects import DOCUMENTS, is_document, read_document, read_lines
from tidelog.data.sources.tables import SOURCES, TEXT_ENDINGS, one_table
from tidelog.errors import LogError

_SHOWN = 8
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
        raise LogError(whole.text(), whole)
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
