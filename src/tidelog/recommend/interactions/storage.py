"""An interaction log as a folder: one `.npy` file a column and a manifest with sizes and checksums."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tidelog.data.core.registry import refusal
from tidelog.data.core.report import Report
from tidelog.data.io.storage import read_column, refuse_target, write_array
from tidelog.errors import LogError
from tidelog.folders import Kind
from tidelog.recommend.interactions.log import ARRAYS, OPTIONAL, Interactions
from tidelog.types import Profile

INTERACTIONS = Kind("interactions", 2, LogError)


def save(interactions: Interactions, path: Path, overwrite: bool = False) -> None:
    """Write it so that it is there whole or not at all; LogError if the path exists and may not go."""
    refuse_target(path, overwrite, INTERACTIONS)
    columns = interactions.columns()
    files = {f"{name}.npy": partial(write_array, values) for name, values in columns.items()}
    entries = [
        {"column": name, "file": f"{name}.npy", "dtype": values.dtype.str, "shape": list(values.shape)}
        for name, values in columns.items()
    ]
    body = {"names": interactions.names(), "columns": entries, "report": interactions.report.to_json()}
    INTERACTIONS.write(path, files, body)


def open_interactions(path: str | Path) -> Interactions:
    """Read a folder that `Interactions.save` wrote; LogError names the file that is foreign, cut or changed."""
    folder = Path(path)
    try:
        manifest = INTERACTIONS.manifest(folder)
        columns = {entry["column"]: read_column(INTERACTIONS, folder, entry, manifest) for entry in manifest["columns"]}
        arrays: dict[str, Any] = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in ARRAYS}
        names = manifest["names"]
        words: dict[str, Any] = {name: tuple(names[name]) for name in ("events", "feature_names")}
        about = names["profile"]
        words["session_gap"] = None if names["session_gap"] is None else float(names["session_gap"])
        words["profile"] = None if about is None else Profile(**{name: tuple(part) for name, part in about.items()})
        report = Report.from_json(manifest["report"])
    except (LogError, KeyError, TypeError, AttributeError) as error:
        said = str(error) if isinstance(error, LogError) else f"an entry is missing or malformed ({error})"
        advice = "copy the folder again from where it was saved, or save the interactions again"
        refused = refusal(str(folder), "unreadable file", said, "a folder that Interactions.save wrote", advice)
        raise LogError(refused.text(), refused) from error
    origin = {"source": str(folder.absolute()), "columns": None}
    return Interactions(**{**arrays, **words}, report=report, origin=origin)
