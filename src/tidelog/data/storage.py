"""A log as a folder: one `.npy` file a column and a manifest with sizes and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.log import OPTIONAL, PLAIN, Log
from tidelog.data.order import Values
from tidelog.data.registry import MANIFEST as MANIFEST
from tidelog.data.registry import refusal
from tidelog.data.report import Report
from tidelog.errors import LogError, SpecError
from tidelog.types import Spec

FORMAT = "tidelog log"
SCHEMA = 1
_BLOCK = 1 << 20


def save(log: Log, path: Path, overwrite: bool = False) -> None:
    """Write beside the target, sync, then rename, so that the target is whole or absent."""
    _refuse_target(path, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise LogError(f"{path}: the log cannot be written ({error}); choose another folder") from error
    try:
        _write(log, work)
        _put(work / "new", path, work / "replaced")
        _sync(path.parent)
    except OSError as error:
        raise LogError(f"{path}: the log was not written ({error})") from error
    finally:
        shutil.rmtree(work)


def open_log(path: str | Path, memory_map: bool = False) -> Log:
    """Read a folder that `Log.save` wrote; LogError names the file that is foreign, cut or changed.

    `memory_map=True` leaves columns on disk and checks sizes only, not checksums.
    """
    folder = Path(path)
    manifest = _manifest(folder)
    try:
        columns = {entry["column"]: _column(folder, entry, memory_map) for entry in manifest["files"]}
        plain = {name: columns.get(name) if name in OPTIONAL else columns[name] for name in PLAIN}
        spec = Spec.from_json(manifest["spec"])
        report = Report.from_json(manifest["report"])
        observation = {name: columns[f"observation/{name}"] for name in spec.observation}
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise _unreadable(folder / MANIFEST, f"an entry is missing or malformed ({error})") from error
    prefix = "extra/"
    extra = {name.removeprefix(prefix): values for name, values in columns.items() if name.startswith(prefix)}
    return Log(spec=spec, observation=observation, extra=extra, report=report, **plain)  # type: ignore[arg-type]


def _put(new: Path, path: Path, replaced: Path) -> None:
    """Rename into place; what stood there comes back if that fails."""
    if not path.exists():
        new.rename(path)
        return
    path.rename(replaced)
    try:
        new.rename(path)
    except OSError:
        replaced.rename(path)
        raise


def _refuse_target(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not overwrite:
        raise LogError(f"{path} exists; choose another path, or overwrite=True if it is a log that may go")
    if not (path / MANIFEST).is_file():
        raise LogError(f"{path} exists and is no tidelog log; it is not overwritten. Choose another path")


def _write(log: Log, work: Path) -> None:
    folder = work / "new"
    folder.mkdir()
    entries = []
    for place, (name, values) in enumerate(log.columns().items()):
        file = folder / f"{place:03d}-{_safe(name)}.npy"
        with file.open("wb") as stream:
            np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        entries.append(
            {"column": name, "file": file.name, "bytes": file.stat().st_size, "sha256": _checksum(file)}
            | {"dtype": values.dtype.str, "shape": list(values.shape)}
        )
    counts = {"steps": log.steps, "episodes": len(log.episode_ids)}
    body = {"format": FORMAT, "schema": SCHEMA, "counts": counts, "spec": log.spec.to_json(), "files": entries}
    body["report"] = log.report.to_json()
    body["sha256"] = _digest(body)
    with (folder / MANIFEST).open("w", encoding="utf-8") as text:
        json.dump(body, text, indent=1)
        text.flush()
        os.fsync(text.fileno())
    _sync(folder)


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(file, f"there is no readable manifest ({error})") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _unreadable(file, f"the manifest is cut off or no JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _unreadable(file, "a manifest of something else than a tidelog log")
    if manifest.get("schema") != SCHEMA:
        raise _unreadable(file, f"schema version {manifest.get('schema')!r}, where this tidelog reads {SCHEMA}")
    if manifest.pop("sha256", None) != _digest(manifest):
        raise _unreadable(file, "the manifest was changed after it was written (its checksum differs)")
    return manifest


def _column(folder: Path, entry: dict[str, Any], memory_map: bool) -> Values:
    file = folder / entry["file"]
    if not file.is_file():
        raise _unreadable(file, "the file is missing")
    size = file.stat().st_size
    if size != entry["bytes"]:
        raise _unreadable(file, f"{size:,} bytes where {entry['bytes']:,} were written")
    if not memory_map and _checksum(file) != entry["sha256"]:
        raise _unreadable(file, "the bytes were changed after they were written (the checksum differs)")
    try:
        values: Values = np.load(file, mmap_mode="r" if memory_map else None, allow_pickle=False)
    except (ValueError, OSError, EOFError, OverflowError) as error:
        raise _unreadable(file, f"no array can be read ({error})") from error
    if values.dtype.str != entry["dtype"] or list(values.shape) != entry["shape"]:
        raise _unreadable(file, f"{values.dtype} {values.shape} where {entry['dtype']} {entry['shape']} was written")
    return values


def _unreadable(file: Path, found: str) -> LogError:
    advice = "copy the folder again from where it was saved, or save the log again"
    report = refusal(str(file), "unreadable file", found, "a file that Log.save wrote", advice)
    return LogError(report.text(), report)


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _safe(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
