"""One process trains a run at a time: a lock on a file in its folder, which ends with its process."""

from __future__ import annotations

import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tidelog._files import open_own
from tidelog.errors import CheckpointError
from tidelog.schema import decode

FILE = "training.lock"


class Owner(msgspec.Struct):
    """The process that holds a lock."""

    process: int
    host: str
    since: str


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's or a sweep's folder; CheckpointError names the process that holds it already.

    A file system without locks gives a warning. CheckpointError if the folder cannot be written.
    """
    path = folder / FILE
    try:
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as problem:
        why = problem.strerror or problem
        raise CheckpointError(
            f"{path} cannot be written: {why}",
            fix="correct the permissions of the folder, or continue with a copy of it",
        ) from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(folder, _owner(handle)) from None
        except OSError as problem:
            warnings.warn(
                f"{path} cannot be locked ({problem.strerror}): make sure that no other process works in this folder",
                stacklevel=3,
            )
        owner = Owner(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(handle, 0)
        os.pwrite(handle, msgspec.json.encode(owner), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise CheckpointError if another process trains the run of this folder."""
    path = folder / FILE
    if path.is_file() and os.access(path, os.R_OK):
        handle = open_own(path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(folder, _owner(handle)) from None
        except OSError:  # no locks here: `locked` warns
            return
        finally:
            os.close(handle)


def _held(folder: Path, owner: str) -> CheckpointError:
    wait = "wait for it, or stop it (Ctrl-C or `kill` saves a checkpoint); the lock ends with the process"
    return CheckpointError(f"{folder} is being trained by {owner}", fix=wait)


def _owner(handle: int) -> str:
    try:
        owner = decode(os.pread(handle, 1_000, 0), Owner, FILE)
    except CheckpointError:  # the owner has not written its name yet
        return "another process"
    return f"process {owner.process} on {owner.host} since {owner.since}"
