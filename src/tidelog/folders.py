"""Folders on disk that are complete or absent, with a manifest and a checksum for every file.

A folder is written aside, synced and renamed. `manifest.json` says what kind of folder it is, its schema version, the
size and SHA-256 of every file and of itself, and whatever the caller wants to remember. Logs, checkpoints and policies
all stand on this; each raises its own kind of error.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.errors import CheckpointError, TidelogError

MANIFEST = "manifest.json"
ASIDE = ".writing-"  # how the names of folders begin that are not yet whole
LARGEST = 1 << 28  # bytes of a manifest: a log's may hold the words of large columns
Content = bytes | Callable[[Path], None]  # or a function that writes to a path


@dataclass(frozen=True)
class Kind:
    """What a folder holds, the schema version that this program reads and writes, and the error it raises."""

    name: str
    schema: int
    error: type[TidelogError] = CheckpointError

    def write(self, folder: Path, files: Mapping[str, Content], manifest: Mapping[str, Any]) -> None:
        """Write files and their manifest; an older folder is replaced whole, or stays as it was."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=f"{ASIDE}{folder.name}-", dir=folder.parent))
        except OSError as problem:
            raise self.error(f"{folder} cannot be written: {problem}") from problem
        try:
            new = aside / "new"
            new.mkdir()
            sums = {name: _write_synced(new / name, content) for name, content in files.items()}
            _write_synced(new / MANIFEST, self.text(manifest, sums))
            sync(new)
            _put_in_place(new, folder, aside / "old")
            sync(folder.parent)
        except OSError as problem:
            raise self.error(f"{folder} cannot be written: {problem}; what stood there is untouched") from problem
        finally:
            shutil.rmtree(aside)

    def text(self, manifest: Mapping[str, Any], sums: Mapping[str, Any]) -> bytes:
        """The manifest file of files with these sizes and checksums."""
        # as it will be read back: keys become words, and their order with them
        body = json.loads(json.dumps({"kind": self.name, "schema": self.schema, **manifest, "files": sums}))
        return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode()

    def stands_at(self, folder: Path) -> bool:
        """Whether a folder is one of this kind, so that another may take its place."""
        try:
            return bool(self.manifest(folder))
        except self.error:
            return False

    def of_another_schema(self, text: bytes) -> bool:
        """Whether bytes are a manifest of this kind that another version of this program wrote."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and found.get("kind") == self.name and found.get("schema") != self.schema

    def manifest(self, folder: Path) -> dict[str, Any]:
        """The manifest of a folder; an error where it is missing, foreign, changed or of another schema."""
        return self.read(self.manifest_text(folder), str(folder / MANIFEST))

    def manifest_text(self, folder: Path) -> bytes:
        """The bytes of a folder's manifest; an error where it is missing, no plain file, or too large."""
        path = folder / MANIFEST
        try:
            if not path.is_file():
                path.lstat()  # FileNotFoundError where there is nothing at all
                raise self.error(f"{path} is no plain file")
            with path.open("rb") as file:
                text = file.read(LARGEST + 1)
            if len(text) > LARGEST:
                raise self.error(f"{path} is larger than any manifest: {path.stat().st_size:,} bytes")
        except (FileNotFoundError, NotADirectoryError):
            raise self.error(f"{folder} is no tidelog {self.name}: it has no {MANIFEST}") from None
        except OSError as problem:
            raise self.error(f"{path} is cut off or cannot be read: {problem}") from problem
        return text

    def read(self, text: bytes, path: str) -> dict[str, Any]:
        """The manifest in a file's bytes; `path` is where they stand."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise self.error(f"{path} is cut off or cannot be read: {problem}") from problem
        if not isinstance(found, dict) or found.get("kind") != self.name:
            held = found.get("kind") if isinstance(found, dict) else None
            raise self.error(f"{path} is the manifest of something else than a tidelog {self.name}: {held!r}")
        if found.get("schema") != self.schema:
            raise self.error(f"{path} has schema version {found.get('schema')!r}, this tidelog reads {self.schema}")
        if found.pop("sha256", None) != _digest(found):
            raise self.error(f"{path} was changed after it was written: its checksum differs")
        return found

    def file(self, folder: Path, name: str, manifest: Mapping[str, Any], *, whole: bool = True) -> Path:
        """The path of one file that has the size and, if `whole`, the checksum of the manifest."""
        path, expected = folder / name, manifest["files"].get(name)
        if expected is None or not path.is_file():
            raise self.error(f"{path} is missing")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise self.error(
                f"{path} has {size:,} bytes where {expected['bytes']:,} were written: it was cut or changed"
            )
        if whole and checksum(path) != expected["sha256"]:
            raise self.error(f"{path} was changed after it was written: its checksum differs")
        return path


def _write_synced(path: Path, content: Content) -> dict[str, Any]:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": checksum(path)}


def _put_in_place(new: Path, folder: Path, old: Path) -> None:
    """Rename into place; what stood there comes back if that fails."""
    if not folder.exists():
        new.rename(folder)
        return
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise


def forget_half_written(parent: Path) -> None:
    """Remove what killed processes left among the folders of `parent`."""
    for path in parent.glob(f"{ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def sync(folder: Path) -> None:
    """Make renames within a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
