"""Name the files of a source: a path, a folder of tables, a glob, or several of these, in the order of their names."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.data.core.registry import unreadable
from tidelog.folders import MANIFEST

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
