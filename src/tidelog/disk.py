"""Writing so that a file or a folder on disk is complete or as it was before, wherever the machine stops.

A new file or folder is written under another name, synced, and renamed; then the folder that holds it is synced.
What is deleted is renamed first, so that nothing visible loses a part. Everything that tidelog writes goes through
this module, and each change of the disk is one operation of `Disk`: tests replace `DISK` by one that stops or fails at
a chosen operation.

Temporary names begin with `.writing-`, `.deleting-` or `.replaced-` and hold the final name; `tidy` removes what
processes that were killed have left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tidelog.errors import CheckpointError, TidelogError
from tidelog.input_files import NotRegularError, kind_of, refuse_other

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
        """Write a new file."""
        if callable(content):
            content(path)
        else:
            path.write_bytes(content)

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
        """Exchange two folders in one step; False where the system cannot."""
        return _exchange(one, other)

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
            f"{path} was written, but the disk did not confirm it: {problem.strerror}; it may be lost when the machine "
            f"stops. fix: {fix}, and write it again"
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
        if path.name.startswith(REPLACED) and TOKEN.search(path.name):
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
    return error(f"{path} cannot be written: {reason}; what was there is unchanged. fix: {fix}")


def is_temporary(path: Path) -> bool:
    """Whether a path is what a killed process left, which `tidy` removes."""
    return path.name.startswith((WRITING, DELETING, REPLACED))


def replaced_copy(path: Path) -> Path | None:
    """The older folder of a path whose replacement was interrupted between two renames, if there is one."""
    if path.exists() or not path.parent.is_dir():
        return None
    copies = (one for one in path.parent.iterdir() if one.name.startswith(f"{REPLACED}{path.name}-"))
    return next((one for one in copies if TOKEN.sub("", one.name) == f"{REPLACED}{path.name}"), None)


def create_missing(path: Path) -> None:
    """Create an empty file if the path is missing, durably."""
    if not os.path.lexists(path):  # a link to a missing file is not missing
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
                    f"{path} is {kind_of(mode)}: expected only files and folders, because tidelog writes in {folder}. "
                    "fix: put a copy of what a link names in its place, and delete anything else"
                )


class AppendOnlyFile:
    """A file to which whole lines are appended; `sync` makes them durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        create_missing(path)
        try:
            self._handle = open_own(path, os.O_WRONLY | os.O_APPEND)
        except OSError as problem:
            raise CheckpointError(f"{path} cannot be written: {problem}. fix: delete it") from problem

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


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths with Linux's renameat2; False where it is missing or the file system does not support it."""
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
