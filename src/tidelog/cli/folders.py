"""Commands whose `--out` may be a folder, with a file in it for each file that is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.cli.flags import FolderFlags, Repeated, source_of
from tidelog.cli.output import present
from tidelog.data.sources import is_table_file
from tidelog.data.sources.files import files_of
from tidelog.errors import ConfigError

FAILURES = 4  # the exit code where nothing was written for a file


def separate_files(data: Repeated, out: str, flags: FolderFlags) -> list[Path] | None:
    """The files of rows, if each gets a file of its own, in a folder; ConfigError for flags that need this."""
    source = source_of(data, "--data")
    files = None if Path(out).suffix else files_of(source, lambda path: is_table_file(str(path)))
    if files is not None:
        return list(files.paths)
    if flags != FolderFlags():
        raise ConfigError(
            "--workers, --on and --insecure are for several files of rows, each with a file of its own. fix: name a "
            "folder as --out, or drop them"
        )
    return None


def present_each(
    options: Any, alone: Callable[[Any], dict[str, Any]], for_files: Callable[[Any, list[Path]], dict[str, Any]]
) -> int:
    """Run a command on one table, or on each of several files; return its exit code."""
    failed: list[str] = []

    def work() -> dict[str, Any]:
        files = separate_files(options.data, options.out, options.folder_options)
        if files is None:
            return alone(options)
        result = for_files(options, files)
        failed.extend(result["failed"])
        return result

    return present(options, work) or (FAILURES if failed else 0)
