"""An interaction log saved as a folder: one `.npy` file per column and a manifest with sizes and checksums."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tidelog.data.core.order import Values
from tidelog.data.core.registry import refusal
from tidelog.data.core.report import Report
from tidelog.data.io.storage import read_column, refuse_target, write_array
from tidelog.errors import LogError
from tidelog.folders import Kind
from tidelog.types import Profile

ARRAYS = (
    "users", "items", "user", "item", "event", "reward", "time", "terminated", "truncated", "propensity", "slate",
    "item_features", "user_features", "scored",
)  # fmt: skip
OPTIONAL = ("propensity", "slate", "item_features", "user_features", "scored")
INTERACTIONS = Kind("interactions", 3, LogError)


def save(columns: dict[str, Values], names: dict[str, Any], report: Report, path: Path, overwrite: bool) -> None:
    """Write interactions as a whole or not at all; LogError if the path exists and may not be overwritten."""
    refuse_target(path, overwrite, INTERACTIONS)
    files = {f"{name}.npy": partial(write_array, values) for name, values in columns.items()}
    entries = [
        {"column": name, "file": f"{name}.npy", "dtype": values.dtype.str, "shape": list(values.shape)}
        for name, values in columns.items()
    ]
    body = {"names": names, "columns": entries, "report": report.to_json()}
    INTERACTIONS.write(path, files, body)


def saved_fields(path: str | Path) -> dict[str, Any]:
    """Read the fields of `Interactions` from a folder of `save`; LogError names a foreign, cut or changed file."""
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
        message = str(error) if isinstance(error, LogError) else f"an entry is missing or malformed ({error})"
        advice = "copy the folder again from the original, or save the interactions again"
        refused = refusal(str(folder), "unreadable file", message, "a folder that Interactions.save wrote", advice)
        raise LogError(refused.text(), refused) from error
    origin = {"source": str(folder.absolute()), "columns": None}
    return {**arrays, **words, "report": report, "origin": origin}
