"""The checkpoints of a run, and the lock on its folder: one process trains a run at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tidelog import _files
from tidelog._files import MANIFEST, Kind, open_own
from tidelog.errors import CheckpointError
from tidelog.policies.policy import Named, array_file, fill, read_arrays
from tidelog.schema import Count, decode, typed
from tidelog.training.loop import LearnerState, Position
from tidelog.training.metrics import SelectionMemory

# Each checkpoint is complete or absent, old ones are deleted, corrupt ones are refused.

CHECKPOINT = Kind("checkpoint", 3)


class CheckpointFields(msgspec.Struct):
    """The fields of a checkpoint's manifest, besides those of every folder."""

    position: Position
    memory: SelectionMemory
    metrics: dict[str, Count]


class Checkpoint(NamedTuple):
    """The content of a checkpoint."""

    learners: list[LearnerState]
    position: Position
    memory: SelectionMemory  # the state of the selection: best values so far
    environments: Sequence[Named] = ()  # states of the host environments; {} for one that cannot be saved
    metrics: Mapping[str, int] = {}  # bytes of the files of metrics, by name


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def updates(self) -> list[int]:
        """Return the updates of all complete checkpoints, oldest first; incomplete ones are named in a warning."""
        if not self._folder.is_dir():
            return []
        folders = sorted(path for path in self._folder.iterdir() if path.name.isdigit())
        complete = [path for path in folders if (path / MANIFEST).is_file()]
        if len(complete) < len(folders):
            without = ", ".join(path.name for path in folders if path not in complete)
            warnings.warn(f"{self._folder}: {without} has no {MANIFEST} and is passed over", stacklevel=2)
        return [int(path.name) for path in complete]

    def save(self, update: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then delete all but the last `keep`."""
        files: dict[str, Any] = {
            f"member-{i}.safetensors": array_file(learner) for i, learner in enumerate(checkpoint.learners)
        }
        for i, arrays in enumerate(checkpoint.environments):
            files |= {f"environment-{i}.safetensors": array_file(arrays)} if arrays else {}
        manifest = {
            "position": list(checkpoint.position),
            "memory": msgspec.to_builtins(checkpoint.memory, str_keys=True),
            "metrics": dict(checkpoint.metrics),
        }
        CHECKPOINT.write(self._folder / f"{update:010d}", files, manifest)
        self.forget(self.updates()[: -self._keep])

    def forget(self, updates: Sequence[int]) -> None:
        """Delete checkpoints in this order, each completely; CheckpointError if the disk refuses."""
        for update in updates:
            folder = self._folder / f"{update:010d}"
            try:
                _files.delete(folder)
            except OSError as problem:
                raise _files.not_written(folder, problem, CheckpointError) from problem

    def load(self, templates: list[LearnerState], update: int | None = None) -> Checkpoint:
        """Read the last checkpoint, or the one at `update`; if it is corrupt, the error names the one before it."""
        last, updates = self._last(), self.updates()
        selected = last if update is None else update
        if selected not in updates:
            raise CheckpointError(
                f"checkpoint = {selected}: there is no checkpoint at this update",
                fix=f"use one of {', '.join(map(str, updates))}",
            )
        try:
            return self._read(self._folder / f"{selected:010d}", templates)
        except CheckpointError as error:
            before = [u for u in updates if u < selected]
            if not before:
                raise
            fix = f"{error.fix}, or use the one before it, with checkpoint={before[-1]}"
            raise CheckpointError(error.found, error.expected, fix) from error

    def metrics(self) -> dict[str, int]:
        """Return the bytes of the files of metrics at the last checkpoint, by name; {} without a checkpoint."""
        updates = self.updates()
        return self._fields(updates[-1]).metrics if updates else {}

    def memory(self) -> SelectionMemory:
        """Return the state of the selection at the last checkpoint."""
        return self._fields(self._last()).memory

    def _fields(self, update: int) -> CheckpointFields:
        folder = self._folder / f"{update:010d}"
        return typed(CHECKPOINT.manifest(folder), CheckpointFields, str(folder / MANIFEST))

    def _last(self) -> int:
        updates = self.updates()
        if not updates:
            raise CheckpointError(f"{self._folder} has no complete checkpoint", fix="start the run again")
        return updates[-1]

    def _read(self, folder: Path, templates: list[LearnerState]) -> Checkpoint:
        manifest = CHECKPOINT.manifest(folder)
        fields = typed(manifest, CheckpointFields, str(folder / MANIFEST))
        if sum(name.startswith("member-") for name in manifest["files"]) != len(templates):
            raise CheckpointError(
                f"{folder} has the members of another run", f"{len(templates)}", "use a checkpoint of this run"
            )

        def fill_from(name: str, template: Any) -> Any:
            file = CHECKPOINT.file(folder, name, manifest)
            return fill(template, read_arrays(file), str(file))

        learners = [fill_from(f"member-{i}.safetensors", template) for i, template in enumerate(templates)]
        environments = [_environment(folder, i, manifest) for i in range(len(templates))]
        return Checkpoint(learners, fields.position, fields.memory, environments, fields.metrics)


def _environment(folder: Path, member: int, manifest: dict[str, Any]) -> Named:
    name = f"environment-{member}.safetensors"
    if name not in manifest["files"]:
        return {}
    arrays = read_arrays(CHECKPOINT.file(folder, name, manifest))
    return {path[2:-2]: array for path, array in arrays.items()}  # the names before they became pytree paths


def read_member(run: Path, member: int) -> tuple[int, Path, Named]:
    """Return the update of a run's last checkpoint, the file of one member, and the arrays of its state by path."""
    updates = Checkpoints(run / "checkpoints", 1).updates()
    if not updates:
        raise CheckpointError(f"{run / 'checkpoints'} has no complete checkpoint", fix="start the run again")
    last = run / "checkpoints" / f"{updates[-1]:010d}"
    file = CHECKPOINT.file(last, f"member-{member}.safetensors", CHECKPOINT.manifest(last))
    prefix = ".state"
    arrays = read_arrays(file).items()
    return updates[-1], file, {path[len(prefix) :]: array for path, array in arrays if path.startswith(prefix)}


def read_part(run: str | Path, part: str, member: int = 0) -> Named:
    """Return the arrays of one part of a state (such as `critic`) in a run's last checkpoint, by their path within it.

    Raises CheckpointError if there is no such part.
    """
    _, file, arrays = read_member(Path(run), member)
    prefix = f".{part}"
    selected = {path[len(prefix) :]: a for path, a in arrays.items() if path.startswith((prefix + ".", prefix + "["))}
    if not selected:
        parts = sorted({path.split(".")[1].split("[")[0] for path in arrays})
        raise CheckpointError(f"{file} has no part '{part}'", fix=f"use one of {', '.join(parts)}")
    return selected


# The lock on a file in the folder of a run or a sweep, which ends with its process.

LOCK = "training.lock"


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
    path = folder / LOCK
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
    path = folder / LOCK
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
        owner = decode(os.pread(handle, 1_000, 0), Owner, LOCK)
    except CheckpointError:  # the owner has not written its name yet
        return "another process"
    return f"process {owner.process} on {owner.host} since {owner.since}"
