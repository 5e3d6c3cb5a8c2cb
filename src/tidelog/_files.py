"""Files and folders of runs, logs and policies: only regular ones are opened; what is written is whole or as it was
before.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from tidelog.errors import CheckpointError, TidelogError

# Files that come from outside: only regular files are opened, and JSON is read without surprises.
#
# A FIFO would block its reader, and a device has no end; links to regular files are followed.

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


class NotRegularError(OSError):
    """The path is a FIFO, a socket, a device or a folder."""


def check_regular(path: str | Path) -> os.stat_result:
    """Return the status of a regular file, through links; OSError if it is missing or of another kind."""
    status = os.stat(path)
    refuse_other(path, status)
    return status


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; OSError if it is missing or of another kind, without waiting for one."""
    check_regular(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        refuse_other(path, os.fstat(handle))  # the path may be another file by now
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """Read a regular file of at most `most` bytes; OSError as `open_regular`, or if the file is larger."""
    with open_regular(path) as stream:
        content = stream.read() if most is None else stream.read(most + 1)
        if most is not None and len(content) > most:
            size = os.fstat(stream.fileno()).st_size
            raise OSError(f"{path} has {size:,} bytes: expected at most {most:,}")
        return content


def read_text(path: str | Path, most: int | None = None) -> str:
    """Read a regular file of UTF-8 text, with or without a byte order mark; OSError or UnicodeDecodeError."""
    return read_regular(path, most).decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; ValueError for damaged text, a repeated key, or values that are nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("the values are nested too deeply") from None


def parse_saved(text: str | bytes, *, nan: bool = False) -> Any:
    """Parse JSON that tidelog wrote: as `parse_json`, and ValueError for numbers that tidelog does not write.

    These are whole numbers beyond 64 bits, and NaN and infinite numbers unless `nan`.
    """
    waiting = [values := parse_json(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif type(value) is int and not -(2**63) <= value < 2**64:
            raise ValueError("a whole number is beyond 64 bits")
        elif type(value) is float and not nan and not math.isfinite(value):
            raise ValueError(f"the number {value} is not finite")
    return values


def finite(value: Any) -> Any:
    """Return plain values with None where JSON has no number."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:60]!r} is repeated in one object")
    return entries


def refuse_other(path: str | Path, status: os.stat_result) -> None:
    """Raise NotRegularError unless the status is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(f"{path} is {kind_of(status.st_mode)}: expected a regular file")


def kind_of(mode: int) -> str:
    """Return what a path is that is no regular file, by its mode."""
    return _KINDS.get(stat.S_IFMT(mode), "not a file")


# Writing so that a file or a folder on disk is complete or as it was before, wherever the machine stops.
#
# A new file or folder is written under another name, synced, and renamed; then the folder that holds it is synced. What
# is deleted is renamed first, so that nothing visible loses a part. Everything that tidelog writes goes through this
# module, and each change of the disk is one operation of `Disk`: tests replace `DISK` by one that stops or fails at a
# chosen operation.
#
# Temporary names begin with `.writing-`, `.deleting-` or `.replaced-` and hold the final name; `tidy` removes what
# processes that were killed have left.

Content = bytes | Callable[[Path], None]  # the callable writes to a path
WANDB = "wandb"  # the folder of a tracker in a run's folder
WRITING, DELETING, REPLACED = ".writing-", ".deleting-", ".replaced-"
TOKEN = re.compile(r"-[0-9a-f]{8}$")
FIXES = {
    errno.ENOSPC: "free space on this disk, or write to another one",
    errno.EDQUOT: "free space in your quota, or write to another disk",
    errno.EROFS: "write to a disk that is not mounted read-only",
    errno.EACCES: "correct the permissions, or write to another folder",
    errno.EPERM: "correct the permissions, or write to another folder",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write to another disk",
    errno.EIO: "check the disk, or write to another one",
}
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


class Disk:
    """The operations that change a disk, one at a time; OSError if one fails."""

    def make_folder(self, path: Path) -> None:
        """Create a folder; FileExistsError if the path exists."""
        path.mkdir()

    def write(self, path: Path, content: Content) -> None:
        """Write a new file; an empty one only if there is none, else FileExistsError."""
        if callable(content):
            content(path)
        elif content:
            path.write_bytes(content)
        else:
            path.touch(exist_ok=False)

    def append(self, path: Path, handle: int, content: bytes) -> None:
        """Append bytes to an open file, whose path is for messages."""
        while content:
            content = content[os.write(handle, content) :]

    def cut(self, path: Path, length: int) -> None:
        """Remove the bytes of a file after a length."""
        os.truncate(path, length)

    def sync(self, path: Path) -> None:
        """Make the content of a file, or the names in a folder, durable."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, which replaces a file at the target, or a folder."""
        source.replace(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two folders in one step with Linux's renameat2; False where the system cannot."""
        try:
            function = ctypes.CDLL(None, use_errno=True).renameat2
        except (AttributeError, OSError):
            return False
        if function(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM):
            return False
        raise OSError(number, os.strerror(number), str(one))

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder."""
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


DISK = Disk()


def write_file(
    path: Path, content: Content, error: type[TidelogError] = CheckpointError, *, parents: bool = False
) -> None:
    """Write a file, complete or as it was before; `error` if it cannot be written. `parents` creates its folders."""
    with _new(path, error, parents=parents) as aside:
        DISK.write(aside, content)
        if path.exists():
            shutil.copymode(path, aside)
        DISK.sync(aside)
        DISK.rename(aside, path)
    _confirm(path, error)


def write_files(contents: Mapping[Path, bytes], error: type[TidelogError] = CheckpointError) -> None:
    """Write several files, none of them before the contents of all are on the disk; `error` as for `write_file`."""
    with contextlib.ExitStack() as stack:
        asides = {}
        for path, content in contents.items():
            aside = asides[path] = stack.enter_context(_new(path, error, parents=False))
            DISK.write(aside, content)
            if path.exists():
                shutil.copymode(path, aside)
            DISK.sync(aside)
        for path, aside in asides.items():
            DISK.rename(aside, path)
    for path in contents:
        _confirm(path, error)


@contextlib.contextmanager
def _new(path: Path, error: type[TidelogError], *, parents: bool) -> Iterator[Path]:
    """A path beside the final one; after a failure nothing is left there, and `error` says why."""
    aside = _aside(path, WRITING)
    try:
        if parents:
            make_folders(path.parent)
        yield aside
    except BaseException as problem:
        _give_up(aside)
        if isinstance(problem, OSError):
            raise not_written(path, problem, error) from problem
        raise


class _Stream(io.RawIOBase):
    """A new file for a library; without a descriptor, to which some write past this, and with its first error."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.problem: OSError | None = None

    def write(self, content: Any) -> int:
        try:
            return self._file.write(content)
        except OSError as problem:
            self.problem = self.problem or problem
            raise

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


@contextlib.contextmanager
def stream_to(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for a library that writes to a stream; OSError of the disk, whatever the library makes of it."""
    with path.open("wb") as file:
        stream = _Stream(file)
        try:
            yield stream  # type: ignore[misc]
        except Exception as error:
            if stream.problem is not None:
                raise stream.problem from error
            raise


def write_json(path: Path, content: Any, error: type[TidelogError] = CheckpointError) -> None:
    """Write plain values as a JSON file, complete or as it was before; `error` if it cannot be written."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False).encode(), error, parents=True)


def write_folder(
    folder: Path, files: Mapping[str, Content], last: Callable[[Path], Mapping[str, Content]], error: type[TidelogError]
) -> None:
    """Write a folder of files, complete or as it was before; `last` makes further files from the written ones."""
    with _new(folder, error, parents=True) as aside:
        DISK.make_folder(aside)
        _write_into(aside, files)
        _write_into(aside, last(aside))
        DISK.sync(aside)
        old = _put_in_place(aside, folder)
    _confirm(folder, error)
    if old is not None:
        _give_up(old)


def _write_into(folder: Path, files: Mapping[str, Content]) -> None:
    for name, content in files.items():
        DISK.write(folder / name, content)
        DISK.sync(folder / name)


def _put_in_place(new: Path, folder: Path) -> Path | None:
    """Rename a folder into place, in one step where the system can; return the path of the older folder, if any."""
    if not folder.exists():
        DISK.rename(new, folder)
        return None
    if DISK.exchange(new, folder):
        return new
    old = _aside(folder, REPLACED)
    DISK.rename(folder, old)
    try:
        DISK.rename(new, folder)
    except OSError:
        DISK.rename(old, folder)
        raise
    return old


def _confirm(path: Path, error: type[TidelogError]) -> None:
    """Make a rename durable; `error` if the disk does not confirm it."""
    try:
        DISK.sync(path.parent)
    except OSError as problem:
        fix = FIXES.get(problem.errno or 0, "check the disk")
        raise error(
            f"{path} was written, but the disk did not confirm it: {problem.strerror}; it may be lost "
            "when the machine stops",
            fix=f"{fix}, and write it again",
        ) from problem


def delete(path: Path) -> None:
    """Delete a file or a folder, completely or not at all as far as anyone sees; nothing if the path is missing."""
    if not os.path.lexists(path):
        return
    aside = _aside(path, DELETING)
    DISK.rename(path, aside)
    DISK.sync(path.parent)
    _remove(aside)


def tidy(parent: Path) -> None:
    """Remove what killed processes left in a folder, and restore a folder that was being replaced."""
    if not parent.is_dir():
        return
    for path in sorted(parent.iterdir()):
        if path.name.startswith(REPLACED) and is_temporary(path):
            name = parent / path.name.removeprefix(REPLACED)[:-9]
            if not name.exists():
                DISK.rename(path, name)
                DISK.sync(parent)
                continue
        if is_temporary(path):
            _remove(path)


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, durably."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster; if it is a file, what follows fails
            DISK.make_folder(one)
        DISK.sync(one.parent)


def not_written(path: Path, problem: OSError, error: type[TidelogError]) -> TidelogError:
    """The error of a path that cannot be written, with its fix."""
    reason = problem.strerror or str(problem)
    fix = FIXES.get(problem.errno or 0, "choose another path")
    return error(f"{path} cannot be written: {reason}; what was there is unchanged", fix=fix)


def is_temporary(path: Path) -> bool:
    """Whether a path is what a killed process left, which `tidy` removes."""
    return path.name.startswith((WRITING, DELETING, REPLACED)) and TOKEN.search(path.name) is not None


def replaced_copy(path: Path) -> Path | None:
    """The older folder of a path whose replacement was interrupted between two renames, if there is one."""
    if path.exists() or not path.parent.is_dir():
        return None
    copies = (one for one in path.parent.iterdir() if one.name.startswith(f"{REPLACED}{path.name}-"))
    return next((one for one in copies if TOKEN.sub("", one.name) == f"{REPLACED}{path.name}"), None)


def create_missing(path: Path) -> None:
    """Create an empty file if the path is missing, durably."""
    if not os.path.lexists(path):  # a link to a missing file is not missing
        with contextlib.suppress(FileExistsError):  # another process was faster, and may have written to it
            DISK.write(path, b"")
        DISK.sync(path.parent)


def open_own(path: Path, flags: int) -> int:
    """Open a regular file of a folder that tidelog writes; OSError for a link, a FIFO or a device, without waiting."""
    if path.is_symlink():
        raise NotRegularError(f"{path} is a link: expected a regular file")
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        refuse_other(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_own(folder: Path) -> None:
    """Raise CheckpointError for a link, a FIFO, a socket or a device in a folder that tidelog reads and writes.

    Through a link in a folder from somebody else, a file elsewhere would be changed.
    """
    for parent, folders, files in os.walk(folder):
        if WANDB in folders and Path(parent) == folder and not (folder / WANDB).is_symlink():
            folders.remove(WANDB)  # its links are its own, and tidelog opens nothing in it
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFREG  # another process may delete it
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise CheckpointError(
                    f"{path} is {kind_of(mode)}",
                    f"only files and folders, because tidelog writes in {folder}",
                    "put a copy of what a link names in its place, and delete anything else",
                )


class AppendOnlyFile:
    """A file to which whole lines are appended; `sync` makes them durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        create_missing(path)
        try:
            self._handle = open_own(path, os.O_WRONLY | os.O_APPEND)
        except OSError as problem:
            raise CheckpointError(f"{path} cannot be written: {problem}", fix="delete it") from problem

    def append(self, content: bytes) -> None:
        """Append bytes; CheckpointError if they cannot be written."""
        try:
            DISK.append(self.path, self._handle, content)
        except OSError as problem:
            raise not_written(self.path, problem, CheckpointError) from problem

    def sync(self) -> None:
        """Make everything appended durable; CheckpointError if the disk does not confirm it."""
        try:
            DISK.sync(self.path)
        except OSError as problem:
            raise not_written(self.path, problem, CheckpointError) from problem

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _aside(path: Path, prefix: str) -> Path:
    return path.with_name(f"{prefix}{path.name}-{uuid.uuid4().hex[:8]}")


def _give_up(aside: Path) -> None:
    """Remove what is not needed any more; what cannot be removed changes no result, and `tidy` tries it again."""
    with contextlib.suppress(OSError):
        _remove(aside)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with its content."""
    if not os.path.lexists(path):
        return
    if stat.S_ISDIR(path.lstat().st_mode):
        for one in sorted(path.iterdir()):
            _remove(one)
    DISK.remove(path)


# Folders on disk that are complete or absent, with a manifest and a checksum for every file.
#
# `tidelog/_files.py` writes them. `manifest.json` holds the kind of the folder, its schema
# version, the size and SHA-256 of every file, its own SHA-256, and fields of the caller. Logs, checkpoints and policies
# use this module; each raises its own kind of error.

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
                    f"{folder} was being replaced when its process stopped", fix=f"rename {copy} to {folder.name}"
                ) from None
            raise self.error(f"{folder} is not a tidelog {self.name}: it has no {MANIFEST}", fix=self._fix) from None
        except OSError as problem:
            raise self.error(f"{path} is incomplete or cannot be read: {problem}", fix=self._fix) from problem

    def read(self, text: bytes, path: str) -> dict[str, Any]:
        """Parse and check the bytes of a manifest; `path` is named in errors."""
        try:
            data = parse_saved(text, nan=True)
        except ValueError as problem:
            raise self.error(f"{path} is incomplete or cannot be read: {problem}", fix=self._fix) from problem
        if not isinstance(data, dict) or data.get("kind") != self.name:
            kind = data.get("kind") if isinstance(data, dict) else None
            raise self.error(
                f"{path} is not the manifest of a tidelog {self.name}: its kind is {kind!r}", fix=self._fix
            )
        if data.get("schema") != self.schema:
            raise self.error(
                f"{path} has schema version {data.get('schema')!r}, this tidelog reads {self.schema}",
                fix=f"read it with the version of tidelog that wrote it, or make the {self.name} again",
            )
        try:
            changed = data.pop("sha256", None) != digest(data)
        except RecursionError:
            raise self.error(
                f"{path} is incomplete or cannot be read: its values are nested too deeply", fix=self._fix
            ) from None
        if changed:
            raise self.error(f"{path} was changed after it was written: its checksum differs", fix=self._fix)
        files = data.get("files")
        for name, facts in files.items() if isinstance(files, dict) else [("files", None)]:
            typed = isinstance(facts, dict) and type(facts.get("bytes")) is int and isinstance(facts.get("sha256"), str)
            if not typed or name in ("", ".", "..") or Path(name).name != name or "\x00" in name:
                raise self.error(
                    f"{path} lists {name!r}", "names of files in the folder, with bytes and sha256", self._fix
                )
        return data

    def file(self, folder: Path, name: str, manifest: Mapping[str, Any], *, whole: bool = True) -> Path:
        """The path of a file whose size and, if `whole`, checksum match the manifest; an error otherwise."""
        path, expected = folder / name, manifest["files"].get(name)
        if expected is None or not path.is_file():
            raise self.error(f"{path} is missing, or not a file of the manifest", fix=self._fix)
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise self.error(
                f"{path} has {size:,} bytes", f"{expected['bytes']:,}: it was truncated or changed", self._fix
            )
        if whole and checksum(path) != expected["sha256"]:
            raise self.error(f"{path} was changed after it was written: its checksum differs", fix=self._fix)
        return path


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(body: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, in hexadecimal."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
