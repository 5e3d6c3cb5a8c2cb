"""What a command writes: an existing file or folder is refused, or replaced with --overwrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.disk import replaced_copy
from tidelog.errors import ConfigError

TABLES = (".csv", ".parquet")


def check_targets(
    *targets: str | Path | None, overwrite: bool, replaceable: Callable[[Path], bool] = Path.is_file
) -> None:
    """Raise ConfigError for targets that cannot be written, before anything is computed.

    An existing target needs `overwrite`, and `replaceable` says whether it is of the kind that the command writes. It
    stays until the new one is complete: what writes it replaces it in one step.
    """
    for target in (Path(target) for target in targets if target is not None):
        if target.exists() and not overwrite:
            raise ConfigError(f"{target} exists, nothing was written. fix: choose another name, or add --overwrite")
        if target.exists() and not replaceable(target):
            raise ConfigError(
                f"{target} is not of the kind that this command writes, it is not replaced. fix: choose another name"
            )
        if replaceable is Path.is_file and not target.parent.is_dir():
            raise ConfigError(f"{target} cannot be written: the folder {target.parent} does not exist")
        old = replaced_copy(target)
        if old is not None:
            raise ConfigError(
                f"{old} is what {target} was before a command that was killed. fix: rename it to {target}, or delete it"
            )


def check_tables(*targets: Path | None) -> None:
    """Raise ConfigError for a table that is not one .csv or .parquet file, such as a folder."""
    for target in (target for target in targets if target is not None):
        if target.suffix in TABLES and not target.is_dir():
            continue
        expected = f"{target}: expected a path that ends in {' or '.join(TABLES)}"
        if target.suffix and not target.is_dir():
            raise ConfigError(f"{expected}. fix: change the suffix")
        raise ConfigError(
            f"{expected}, as all rows are written to one file. fix: name one output file, such as "
            f"{target.with_name((target.stem or 'table') + '.parquet') if target.name else 'table.parquet'}"
        )


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or nothing."""
    return folder.is_dir() and ((folder / "run.json").is_file() or not any(folder.iterdir()))
