"""Where a log came from, so that the same log can be read again: any source by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tidelog.data.core.columns import Columns
from tidelog.data.io.readers import read_file, read_log, read_minari
from tidelog.data.io.storage import open_log
from tidelog.data.log import Log
from tidelog.data.sources import ARRAYS, SOURCES, ending_of
from tidelog.errors import ConfigError, LogError
from tidelog.folders import MANIFEST
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.interactions.readers import read_by_roles
from tidelog.recommend.interactions.roles import Roles
from tidelog.recommend.interactions.storage import INTERACTIONS, open_interactions

ADVICE = (
    f"a table ({', '.join(SOURCES)}) with a mapping, a saved log, a file that needs no mapping ({', '.join(ARRAYS)}), "
    "or the id of a Minari data set"
)


def is_table(source: str | Path) -> bool:
    """Whether a source is a file that needs a mapping, by its ending."""
    return ending_of(source, SOURCES) is not None


def read_any(
    source: str | Path, columns: Columns | Mapping[str, Any] | str | Path | None = None, *, memory_map: bool = False
) -> Log:
    """Read whatever `source` names: a table (with a mapping), a saved log, a file of arrays, or a Minari data set.

    `memory_map` leaves the columns of a saved log on disk. Raises LogError with the report where the log is not usable,
    ConfigError where a mapping is lacking or superfluous.
    """
    path = Path(source)
    mapping = None
    if memory_map:
        if not (path / MANIFEST).exists():
            raise ConfigError(
                f"{source} is no saved log and cannot stay on disk: `tidelog data convert` makes one of it"
            )
        return open_log(path, memory_map=True)
    if is_table(source):
        if columns is None:
            raise ConfigError(
                f"{source} is a table, and no mapping says which column is what: `tidelog data inspect {source}` "
                "proposes one; write it to a file and pass --columns FILE"
            )
        mapping = _mapping(columns)
        log = read_log(path, mapping)
    elif columns is not None:
        raise ConfigError(f"{source} is no table: a mapping is for tables, leave it away")
    elif (path / MANIFEST).exists():
        log = open_log(path)
    elif ending_of(path, ARRAYS) is not None:
        log = read_file(path)
    elif path.exists() and not path.is_dir():
        raise LogError(f"{source} has the ending '{path.suffix}', which no source reads; expected {ADVICE}")
    else:
        log = read_minari(str(source))
    absolute = str(path.absolute()) if path.exists() else str(source)
    return replace(log, origin={"source": absolute, "columns": None if mapping is None else asdict(mapping)})


def reopen(origin: Mapping[str, Any]) -> Log:
    """Read the log again that `read_any` read; LogError where it is one of interactions."""
    found = reopen_any(origin)
    if isinstance(found, Interactions):
        raise LogError(f"{origin['source']} holds interactions, not decisions with what was seen", found.report)
    return found


def reopen_any(origin: Mapping[str, Any]) -> Log | Interactions:
    """Read the log or the interactions again that came from there."""
    if origin.get("roles") is not None:
        return read_by_roles(origin["source"], Roles(**origin["roles"]))
    if INTERACTIONS.stands_at(Path(origin["source"])):
        return open_interactions(origin["source"])
    if origin.get("memory_map"):
        return open_log(origin["source"], memory_map=True)
    return read_any(origin["source"], origin["columns"])


def _mapping(columns: Columns | Mapping[str, Any] | str | Path) -> Columns:
    if isinstance(columns, Columns):
        return columns
    return Columns.from_mapping(columns) if isinstance(columns, Mapping) else Columns.from_file(columns)
