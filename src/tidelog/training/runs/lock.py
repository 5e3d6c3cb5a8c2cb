"""One process trains a run, or writes a folder, at a time: a lock on a file in it, which ends with its process."""

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

from tidelog.disk import open_own
from tidelog.errors import CheckpointError
from tidelog.schema import decode

FILE, TRAINED = "training.lock", "trained"


class Owner(msgspec.Struct):
    """The process that holds a lock."""

    process: int
    host: str
    since: str


@contextmanager
def locked(folder: Path, file: str = FILE, done: str = TRAINED) -> Iterator[None]:
    """Hold the lock of a folder, in which something is `done`; CheckpointError names the process that holds it already.

    A file system without locks gives a warning. CheckpointError if the folder cannot be written.
    """
    path = folder / file
    try:
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as problem:
        other = "continue with a copy of it" if done == TRAINED else "choose another folder"
        why = problem.strerror or problem
        raise CheckpointError(
            f"{path} cannot be written: {why}. fix: correct the permissions of the folder, or {other}"
        ) from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(_held(folder, _owner(handle), done)) from None
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
            raise CheckpointError(_held(folder, _owner(handle), TRAINED)) from None
        except OSError:  # no locks here: `locked` warns
            return
        finally:
            os.close(handle)


def _held(folder: Path, owner: str, done: str) -> str:
    saves = "saves a checkpoint" if done == TRAINED else "loses no file that is complete"
    return (
        f"{folder} is being {done} by {owner}. fix: wait for it, or stop it (Ctrl-C or `kill` {saves}); the lock ends "
        "with the process"
    )


def _owner(handle: int) -> str:
    try:
        owner = decode(os.pread(handle, 1_000, 0), Owner, FILE)
    except CheckpointError:  # the owner has not written its name yet
        return "another process"
    return f"process {owner.process} on {owner.host} since {owner.since}"
