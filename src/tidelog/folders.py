"""Folders on disk that are complete or absent, with a manifest and a checksum for every file.

A folder is written aside, synced and renamed. `manifest.json` names the schema version, a SHA-256 a file, and whatever
the caller wants to remember. Logs, checkpoints and policies all stand on this.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import CheckpointError, TidelogError

Writer = Callable[[Path], None]


def write_folder(
    folder: Path,
    files: Mapping[str, bytes | Writer],
    manifest: Mapping[str, Any],
    *,
    schema: int,
    error: type[TidelogError] = CheckpointError,
) -> None:
    """Write files (bytes, or functions that write to a path) and their manifest; replaces an older folder whole."""
    aside = folder.parent / f".writing-{folder.name}-{os.getpid()}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        sums = {name: _write_synced(aside / name, content) for name, content in files.items()}
        text = json.dumps({"schema": schema, **manifest, "files": sums}, indent=1)
        _write_synced(aside / "manifest.json", text.encode())
        _sync(aside)
        _put_in_place(aside, folder)
        _sync(folder.parent)
    except OSError as problem:
        shutil.rmtree(aside, ignore_errors=True)
        raise error(f"cannot write {folder}: {problem}; what stood there before is untouched") from problem


def _write_synced(path: Path, content: bytes | Writer) -> str:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return checksum(path)


def _put_in_place(aside: Path, folder: Path) -> None:
    old = folder.parent / f".replaced-{folder.name}-{os.getpid()}"
    if folder.exists():
        os.rename(folder, old)
    os.rename(aside, folder)
    shutil.rmtree(old, ignore_errors=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path, *, schema: int, error: type[TidelogError] = CheckpointError) -> dict[str, Any]:
    """The manifest of a folder; an error where it is missing, foreign or of another schema."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise error(f"{folder} has no manifest.json: it is not a folder that tidelog wrote") from None
    except (OSError, ValueError) as problem:
        raise error(f"{path} cannot be read: {problem}") from problem
    if (
        not isinstance(manifest, dict)
        or manifest.get("schema") != schema
        or not isinstance(manifest.get("files"), dict)
    ):
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise error(f"{path} has schema {found!r}, this version of tidelog reads {schema}")
    return manifest


def read_file(
    folder: Path, name: str, manifest: Mapping[str, Any], *, error: type[TidelogError] = CheckpointError
) -> bytes:
    """The content of one file, checked against the manifest's checksum."""
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem}") from problem
    if hashlib.sha256(content).hexdigest() != manifest["files"].get(name):
        raise error(f"{path} does not have the checksum of its manifest: the file was changed or cut")
    return content
