"""Sources of logs: files and frames become a `Table` (which needs a mapping), or a `RawLog` (which needs none).

`tables` reads table files and frames: `separated_text` and `json_objects` from `file_bytes`. `several` joins the tables
of several files, which `files` names, `arrays` reads npz, D4RL and OGBench, `robomimic` its HDF5 files, `reagent` reads
ReAgent's JSON, `minari` reads Minari data sets. Each format is one function, registered under its file endings in
`SOURCES` (tables) or `ARRAYS` (no mapping).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidelog.data.core.raw import RawLog
from tidelog.data.sources.arrays import raw_archive, raw_d4rl
from tidelog.data.sources.file_bytes import ending_of
from tidelog.data.sources.reagent import raw_reagent
from tidelog.data.sources.robomimic import is_robomimic, raw_robomimic
from tidelog.data.sources.several import is_table_file, table_of, table_with
from tidelog.data.sources.tables import ENDINGS_TEXT, SOURCES, Reader

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
