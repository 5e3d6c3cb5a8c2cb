"""Convert a log from any source to a Parquet table, a folder, an npz file, or a Minari data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidelog.data.core.columns import Columns
from tidelog.data.io.export import save_npz, to_parquet
from tidelog.data.io.readers import read_any
from tidelog.data.log import Log
from tidelog.errors import ConfigError, nearest


def convert(
    source: str | Path,
    target: str | Path,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    overwrite: bool = False,
) -> str:
    """Read a log from any source and write it to `target`; return a description of the result.

    `target` is a `.parquet` table (plus its mapping), a `.tidelog` folder, an `.npz` file, or `minari:ID`.
    """
    kind = "minari:" if str(target).startswith("minari:") else Path(target).suffix.lower()
    if kind not in TARGETS:
        raise ConfigError(f"target '{target}' has an unknown format: {nearest(kind, TARGETS)}")
    return TARGETS[kind](read_any(source, columns), str(target), overwrite)


def _parquet(log: Log, target: str, overwrite: bool) -> str:
    return f"{target} and its mapping {to_parquet(log, target, overwrite)}"


def _folder(log: Log, target: str, overwrite: bool) -> str:
    log.save(target, overwrite)
    return target


def _npz(log: Log, target: str, overwrite: bool) -> str:
    save_npz(log, target, overwrite)
    return target


def _minari(log: Log, target: str, overwrite: bool) -> str:
    from tidelog.data.io.minari_export import to_minari

    to_minari(log, target.removeprefix("minari:"), overwrite)
    return f"the Minari data set {target.removeprefix('minari:')}"


TARGETS: dict[str, Callable[[Log, str, bool], str]] = {
    ".parquet": _parquet,
    ".tidelog": _folder,
    ".npz": _npz,
    "minari:": _minari,
}
