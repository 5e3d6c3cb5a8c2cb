"""The registry of file formats that need no mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tidelog.data.core.raw import RawLog
from tidelog.data.sources.d4rl import raw_d4rl
from tidelog.data.sources.npz import names_in, raw_npz
from tidelog.data.sources.ogbench import is_ogbench, raw_ogbench
from tidelog.data.sources.reagent import raw_reagent


def raw_archive(path: Path) -> RawLog:
    """OGBench's arrays, or else arrays named as in `Log.from_arrays`."""
    return raw_ogbench(path) if is_ogbench(names_in(path)) else raw_npz(path)


ARRAYS: dict[str, Callable[[Path], RawLog]] = {
    ".npz": raw_archive,
    ".hdf5": raw_d4rl,
    ".h5": raw_d4rl,
    ".json": raw_reagent,
    ".json.gz": raw_reagent,
    ".json.bz2": raw_reagent,
}


def ending_of(path: str | Path, known: Iterable[str]) -> str | None:
    """The longest known ending of a path; None if there is none."""
    name = Path(path).name.lower()
    return max((ending for ending in known if name.endswith(ending)), key=len, default=None)
