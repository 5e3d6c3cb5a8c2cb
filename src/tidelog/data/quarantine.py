"""Write the rows that errors name to a separate file, with the reasons, for manual repair."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tidelog._files import delete, not_written, write_files
from tidelog.data import warnings  # noqa: F401 (importing it registers every check)
from tidelog.data.columns import Columns
from tidelog.data.parse import Table, from_table, without_empty, write_csv
from tidelog.data.raw import Check, Finding, Report, Values, findings, report_of
from tidelog.data.sources import table_of
from tidelog.errors import ConfigError, LogError

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
        table = without_empty(table_of(source, form=mapping.text_form, needed=needed), mapping)
        raw = from_table(table, mapping)
    except LogError as error:
        report: Report = error.report
        delete_older(target)
        return report
    results = findings(raw)
    write_rows(table, results, target, kept, mapping.episode, csv_safe, mapping.header)
    return report_of(raw, results)


def write_rows(
    table: Table,
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
    rows, reasons = _reasons(found)
    contents: dict[Path, bytes] = {}
    if target is not None and len(rows):
        contents[target] = _faulty_rows(table, rows, reasons, csv_safe)
    if kept is not None:
        contents[kept] = _other_rows(table, rows, whole, csv_safe, header)
    if target is not None and not len(rows):
        delete_older(target)
    write_files(contents, ConfigError)


def _other_rows(table: Table, rows: Values, whole: str | None, csv_safe: bool, header: bool) -> bytes:
    """The other rows of a table as CSV, without all rows of a faulty value of `whole`."""
    faulty = np.zeros(table.rows, bool)
    faulty[rows] = True
    if whole is not None and table.has(whole):
        ids = table.series(whole)
        faulty |= ids.is_in(ids.filter(pl.Series(faulty)).unique().implode()).fill_null(True).to_numpy()
    content = io.BytesIO()
    write_csv(table.frame.filter(pl.Series(~faulty)), content, csv_safe)
    first, _, others = content.getvalue().partition(b"\n")
    return first + b"\n" + others if header else others


def _faulty_rows(table: Table, rows: Values, reasons: list[str], csv_safe: bool) -> bytes:
    """Rows of a table as CSV, with their places and reasons before them."""
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
    return content.getvalue()


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


def _reasons(found: Iterable[tuple[Check, Finding]]) -> tuple[Values, list[str]]:
    """Rows of errors from 0, ascending, and for each row all its errors as one text."""
    named = [(f"{one.name} in '{finding.column}'" if finding.column else one.name, finding.at)
             for one, finding in found if one.level == "error" and finding.at is not None]  # fmt: skip
    frames = [pl.DataFrame({"row": at.astype(np.int64)}).with_columns(reason=pl.lit(name)) for name, at in named]
    if not frames:
        return np.zeros(0, np.int64), []
    joined = pl.concat(frames).group_by("row").agg(pl.col("reason").unique(maintain_order=True).str.join("; "))
    ordered = joined.sort("row")
    return ordered["row"].to_numpy(), ordered["reason"].to_list()
