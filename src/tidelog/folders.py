"""Folders on disk that are complete or absent, with a manifest and a checksum for every file.

`tidelog/disk.py` writes them. `manifest.json` holds the kind of the folder, its schema
version, the size and SHA-256 of every file, its own SHA-256, and fields of the caller. Logs, checkpoints and policies
use this module; each raises its own kind of error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.disk import Content, replaced_copy, write_folder
from tidelog.errors import CheckpointError, TidelogError
from tidelog.input_files import parse_json, parse_saved, read_regular

MANIFEST = "manifest.json"
LARGEST = 1 << 28  # bytes of a manifest; a log's manifest may hold large vocabularies


@dataclass(frozen=True)
class Kind:
    """A kind of folder: its name, the schema version that this program reads and writes, and the error it raises."""

    name: str
    schema: int
    error: type[TidelogError] = CheckpointError

    @property
    def _fix(self) -> str:
        return f"restore it from a copy, or make the {self.name} again"

    def write(
        self,
        folder: Path,
        files: Mapping[str, Content],
        manifest: Mapping[str, Any],
        beside: Callable[[bytes], Mapping[str, bytes]] | None = None,
    ) -> None:
        """Write files and their manifest; an existing folder is replaced completely or stays unchanged.

        `beside` makes further files from the bytes of the manifest, which does not list them.
        """

        def last(aside: Path) -> dict[str, Content]:
            sums = {name: {"bytes": (aside / name).stat().st_size, "sha256": checksum(aside / name)} for name in files}
            text = self.text(manifest, sums)
            return {MANIFEST: text, **({} if beside is None else beside(text))}

        write_folder(folder, files, last, self.error)

    def text(self, manifest: Mapping[str, Any], sums: Mapping[str, Any]) -> bytes:
        """The bytes of the manifest for files with these sizes and checksums."""
        # the round trip through JSON turns keys into text, which also fixes their order
        body = json.loads(json.dumps({"kind": self.name, "schema": self.schema, **manifest, "files": sums}))
        return json.dumps({**body, "sha256": digest(body)}, indent=1).encode()

    def is_at(self, folder: Path) -> bool:
        """Whether a folder is of this kind and may be replaced."""
        try:
            return bool(self.manifest(folder))
        except self.error:
            return False

    def is_named_in(self, text: bytes) -> bool:
        """Whether bytes are a manifest of this kind, of any schema version, damaged or not."""
        try:
            data = parse_json(text)
        except ValueError:
            return False
        return isinstance(data, dict) and data.get("kind") == self.name

    def has_other_schema(self, text: bytes) -> bool:
        """Whether bytes are a manifest of this kind with another schema version."""
        return self.is_named_in(text) and parse_json(text).get("schema") != self.schema

    def manifest(self, folder: Path) -> dict[str, Any]:
        """The manifest of a folder; an error if it is missing, of another kind, changed or of another schema."""
        return self.read(self.manifest_text(folder), str(folder / MANIFEST))

    def manifest_text(self, folder: Path) -> bytes:
        """The bytes of a folder's manifest; an error if it is missing, not a regular file, or too large."""
        path = folder / MANIFEST
        try:
            return read_regular(path, LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            copy = replaced_copy(folder)
            if copy is not None:
                raise self.error(
                    f"{folder} was being replaced when its process stopped. fix: rename {copy} to {folder.name}"
                ) from None
            raise self.error(f"{folder} is not a tidelog {self.name}: it has no {MANIFEST}. fix: {self._fix}") from None
        except OSError as problem:
            raise self.error(f"{path} is incomplete or cannot be read: {problem}. fix: {self._fix}") from problem

    def read(self, text: bytes, path: str) -> dict[str, Any]:
        """Parse and check the bytes of a manifest; `path` is named in errors."""
        try:
            data = parse_saved(text, nan=True)
        except ValueError as problem:
            raise self.error(f"{path} is incomplete or cannot be read: {problem}. fix: {self._fix}") from problem
        if not isinstance(data, dict) or data.get("kind") != self.name:
            kind = data.get("kind") if isinstance(data, dict) else None
            raise self.error(
                f"{path} is not the manifest of a tidelog {self.name}: its kind is {kind!r}. fix: {self._fix}"
            )
        if data.get("schema") != self.schema:
            raise self.error(
                f"{path} has schema version {data.get('schema')!r}, this tidelog reads {self.schema}. fix: read it "
                f"with the version of tidelog that wrote it, or make the {self.name} again"
            )
        try:
            changed = data.pop("sha256", None) != digest(data)
        except RecursionError:
            raise self.error(
                f"{path} is incomplete or cannot be read: its values are nested too deeply. fix: {self._fix}"
            ) from None
        if changed:
            raise self.error(f"{path} was changed after it was written: its checksum differs. fix: {self._fix}")
        files = data.get("files")
        for name, facts in files.items() if isinstance(files, dict) else [("files", None)]:
            typed = isinstance(facts, dict) and type(facts.get("bytes")) is int and isinstance(facts.get("sha256"), str)
            if not typed or name in ("", ".", "..") or Path(name).name != name or "\x00" in name:
                raise self.error(
                    f"{path} lists {name!r}: expected names of files in the folder, with bytes and sha256. "
                    f"fix: {self._fix}"
                )
        return data

    def file(self, folder: Path, name: str, manifest: Mapping[str, Any], *, whole: bool = True) -> Path:
        """The path of a file whose size and, if `whole`, checksum match the manifest; an error otherwise."""
        path, expected = folder / name, manifest["files"].get(name)
        if expected is None or not path.is_file():
            raise self.error(f"{path} is missing, or not a file of the manifest. fix: {self._fix}")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise self.error(
                f"{path} has {size:,} bytes, expected {expected['bytes']:,}: it was truncated or changed. "
                f"fix: {self._fix}"
            )
        if whole and checksum(path) != expected["sha256"]:
            raise self.error(f"{path} was changed after it was written: its checksum differs. fix: {self._fix}")
        return path


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(body: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, in hexadecimal."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
