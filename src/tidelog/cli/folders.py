"""Commands whose `--out` may be a folder, with a file in it for each file that is read."""

from __future__ import annotations

from pathlib import Path

from tidelog.cli.flags import FolderFlags, Repeated, source_of
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
