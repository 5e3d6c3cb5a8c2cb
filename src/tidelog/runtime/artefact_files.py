"""A saved policy on disk: a folder, or a zip of one. What is not understood is refused by name; nothing is executed.

A zip holds the folder's files as they are, not compressed: so nothing in it can unfold, and what would lie outside of
the file, twice in it, or under another name than the manifest's is refused before it is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tidelog.errors import CheckpointError, nearest
from tidelog.folders import LARGEST, MANIFEST, Kind
from tidelog.runtime.specs import described, read_spec
from tidelog.types import Spec

POLICY = Kind("policy", 2)
WEIGHTS, ONNX = "weights.safetensors", "policy.onnx"
FILES = (WEIGHTS, ONNX)
FIELDS = (
    *("kind", "schema", "algorithm", "config", "spec", "scaler", "masks", "missing"),
    *("origin", "metrics", "versions", "recipe", "onnx", "parity", "files"),
)
DATE = (1980, 1, 1, 0, 0, 0)  # the same policy is the same zip
BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, LookupError, EOFError, OSError,
          struct.error, zlib.error, OverflowError)  # fmt: skip
NumpyArray = np.ndarray[Any, Any]


class Saved:
    """A policy's manifest, checked, and its files, each checked against the manifest when it is read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.where = f"{self.path}/{MANIFEST}"
        zipped = self.path.is_file()
        try:
            self.manifest = POLICY.read(_member(self.path, MANIFEST), self.where) if zipped else _of_folder(self.path)
            self._check_fields()
        except RecursionError:
            raise CheckpointError(f"{self.where} cannot be read: it is nested too deeply") from None
        if zipped:
            self._check_archive()

    def _check_fields(self) -> None:
        found, files = self.manifest, self.manifest.get("files")
        for name in found:
            if name not in FIELDS:
                raise CheckpointError(
                    f"{self.where} has '{name}', which this tidelog does not know: made by a later one?"
                )
        lacking = [name for name in FIELDS if name not in found]
        if lacking:
            raise CheckpointError(f"{self.where} lacks '{lacking[0]}'")
        if not isinstance(files, Mapping) or WEIGHTS not in files:
            raise CheckpointError(f"{self.where} names no {WEIGHTS}")
        for name, facts in files.items():
            if name not in FILES:
                raise CheckpointError(f"{self.where} names the file {name!r}: {nearest(name, FILES)}")
            if not isinstance(facts, Mapping) or not isinstance(facts.get("bytes"), int) or "sha256" not in facts:
                raise CheckpointError(f"{self.where} does not say how large '{name}' is, and its checksum")

    def _check_archive(self) -> None:
        names = {MANIFEST, *self.manifest["files"]}
        for info in _members(self.path):
            if info.filename not in names:
                raise CheckpointError(f"{self.path} holds {info.filename!r}, of which its manifest says nothing")

    @property
    def spec(self) -> Spec:
        """What the policy sees and does."""
        spec = read_spec(self.manifest["spec"], self.where)
        for name, told in described(spec).items():
            if self.manifest[name] != told:
                raise CheckpointError(f"{self.where}: '{name}' is not what the spec says")
        return spec

    @property
    def scales(self) -> dict[str, tuple[NumpyArray, NumpyArray]]:
        """Mean and standard deviation [size] of the leaves that are standardised."""
        found, spec = {}, self.spec
        try:
            for name, leaf in self.manifest["scaler"]["observation"].items():
                wanted = getattr(spec.observation[name], "size", None)
                pair = _float32(leaf["mean"], wanted), _float32(leaf["std"], wanted)
                if (pair[1] <= 0).any():
                    raise ValueError(f"the standard deviations of '{name}' are not larger than 0")
                found[name] = pair
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{self.where}: the scaler cannot be understood: {error!r}") from error
        return found

    def read(self, name: str) -> bytes:
        """A file's bytes, which have the size and the checksum of the manifest."""
        if name not in self.manifest["files"]:
            raise CheckpointError(f"{self.path} holds no {name}")
        if not self.path.is_file():
            return POLICY.file(self.path, name, self.manifest).read_bytes()
        content, facts = _member(self.path, name), self.manifest["files"][name]
        if len(content) != facts["bytes"] or hashlib.sha256(content).hexdigest() != facts["sha256"]:
            raise CheckpointError(f"{self.path}/{name} was changed after it was written: its checksum differs")
        return content

    def arrays(self) -> dict[str, NumpyArray]:
        """The weights by their names."""
        try:
            return dict(load(self.read(WEIGHTS)))
        except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"{self.path}/{WEIGHTS} is no safetensors file: {error}") from error


def _float32(values: Any, size: int | None) -> NumpyArray:
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        found = np.asarray(values, np.float32)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"scales must be {size} finite numbers")
    return found


def write(path: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Write a policy as a folder, or as a zip where the path ends so; whole or not at all, in an older one's place."""
    if path.exists() and not stands_at(path):
        raise CheckpointError(f"{path} exists and is no saved policy: choose another folder, nothing was written")
    if path.suffix != ".zip":
        POLICY.write(path, files, manifest)
        return
    sums = {name: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in files.items()}
    contents = {MANIFEST: POLICY.text(manifest, sums), **files}
    aside = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            _zip(file, contents)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as problem:
        aside.unlink(missing_ok=True)
        raise CheckpointError(f"{path} cannot be written: {problem}; what stood there is untouched") from problem


def _zip(file: Any, contents: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)


def stands_at(path: Path) -> bool:
    """Whether a saved policy, of this schema or of another, stands there, so that another may take its place."""
    try:
        Saved(path)
    except CheckpointError:
        return POLICY.of_another_schema(_manifest_of(path))
    return True


def _manifest_of(path: Path) -> bytes:
    """The bytes of what may be a policy's manifest; none where there is no such thing."""
    try:
        return _member(path, MANIFEST) if path.is_file() else POLICY.manifest_text(path)
    except CheckpointError:
        return b""


def _of_folder(path: Path) -> dict[str, Any]:
    if (path / "run.json").exists():
        raise CheckpointError(
            f"{path} is a run: tidelog.load('{path}').policy() is its policy, and `tidelog export {path}` makes a "
            "saved policy of it"
        )
    return POLICY.manifest(path)


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """What a zip says it holds; CheckpointError where it could be anything else than a few plain files, stored."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except BROKEN as error:
        raise CheckpointError(f"{path} is no tidelog policy: neither a folder nor a whole zip ({error})") from error
    names = [info.filename for info in members]
    for info in members:
        kind = stat.S_IFMT(info.external_attr >> 16)
        plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1 and kind in (0, stat.S_IFREG)
        if not plain or info.file_size != info.compress_size or names.count(info.filename) > 1:
            raise CheckpointError(
                f"{path}: {info.filename!r} is not one plain file, stored as it is: no tidelog wrote it"
            )
        if info.filename not in (MANIFEST, *FILES):
            raise CheckpointError(f"{path} holds {info.filename!r}: {nearest(info.filename, (MANIFEST, *FILES))}")
    if sum(info.file_size for info in members) > path.stat().st_size:
        raise CheckpointError(f"{path} says that it holds more than it has room for")
    return members


def _member(path: Path, name: str) -> bytes:
    """The bytes of one member."""
    sizes = {info.filename: info.file_size for info in _members(path)}
    if name not in sizes:
        raise CheckpointError(f"{path} is no tidelog policy: it holds no {name}")
    if name == MANIFEST and sizes[name] > LARGEST:
        raise CheckpointError(f"{path}/{name} is larger than any manifest: {sizes[name]:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except BROKEN as error:
        raise CheckpointError(f"{path}/{name} cannot be read: {error}") from error
