"""The checkpoints of a run: complete or absent, the last few kept, refused when they are not what they should be."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError
from tidelog.folders import Kind, forget_half_written
from tidelog.policies.named_arrays import Named, array_file, fill, read_arrays
from tidelog.training.engine.learner import LearnerState
from tidelog.training.engine.members import Position

CHECKPOINT = Kind("checkpoint", 1)


class Checkpoint(NamedTuple):
    """What a checkpoint holds."""

    learners: list[LearnerState]
    position: Position
    memory: dict[str, Any]  # what reports have to remember: the best so far
    environments: Sequence[Named] = ()  # of each member on the host; {} where it has nothing to offer
    waiting: Sequence[Any] = ()  # what acts in rollouts that are played ahead, of each member
    deposited: Sequence[Mapping[str, list[str]]] = ()  # of each member, by store: the pieces that lie off the device


class Checkpoints:
    """The folder `checkpoints` of a run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def updates(self) -> list[int]:
        """The updates at which there is a complete checkpoint, oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def save(self, update: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then forget those beyond the last few and whatever a kill left half written."""
        files: dict[str, Any] = {
            f"member-{i}.safetensors": array_file(learner) for i, learner in enumerate(checkpoint.learners)
        }
        for i, arrays in enumerate(checkpoint.environments):
            files |= {f"environment-{i}.safetensors": array_file(arrays)} if arrays else {}
        files |= {f"ahead-{i}.safetensors": array_file(params) for i, params in enumerate(checkpoint.waiting)}
        manifest = {
            "position": list(checkpoint.position),
            "memory": checkpoint.memory,
            "deposited": [dict(one) for one in checkpoint.deposited],
        }
        CHECKPOINT.write(self._folder / f"{update:010d}", files, manifest)
        for old in self.updates()[: -self._keep]:
            shutil.rmtree(self._folder / f"{old:010d}")
        forget_half_written(self._folder)

    def forget_after(self, update: int) -> None:
        """Remove checkpoints later than `update`, because the run goes on from there."""
        for later in [u for u in self.updates() if u > update]:
            shutil.rmtree(self._folder / f"{later:010d}")

    def load(self, templates: list[LearnerState], update: int | None = None, params: Sequence[Any] = ()) -> Checkpoint:
        """The last checkpoint, or the one at `update`; a corrupt one is refused and the one before it offered.

        `params` are templates of what acts in rollouts that are played ahead, where there may be any.
        """
        last, there = self._last(), self.updates()
        wanted = last if update is None else update
        if wanted not in there:
            raise CheckpointError(f"no checkpoint at update {wanted}: there are {', '.join(map(str, there))}")
        try:
            return self._read(self._folder / f"{wanted:010d}", templates, params)
        except CheckpointError as error:
            before = [u for u in there if u < wanted]
            offer = f"; the one before it, at update {before[-1]}, can be asked for" if before else ""
            raise CheckpointError(f"{error}{offer}") from error

    def memory(self) -> dict[str, Any]:
        """What reports remembered at the last checkpoint."""
        return dict(CHECKPOINT.manifest(self._folder / f"{self._last():010d}")["memory"])

    def deposited(self) -> list[list[dict[str, list[str]]]]:
        """The pieces off the device that each checkpoint names, of each member and by store."""
        folders = [self._folder / f"{update:010d}" for update in self.updates()]
        return [CHECKPOINT.manifest(folder).get("deposited", []) for folder in folders]

    def _last(self) -> int:
        there = self.updates()
        if not there:
            raise CheckpointError(f"{self._folder} holds no complete checkpoint: start the run anew")
        return there[-1]

    def _read(self, folder: Path, templates: list[LearnerState], params: Sequence[Any]) -> Checkpoint:
        manifest = CHECKPOINT.manifest(folder)
        if sum(name.startswith("member-") for name in manifest["files"]) != len(templates):
            raise CheckpointError(f"{folder} does not hold the {len(templates)} members of this run")

        def filled(name: str, template: Any) -> Any:
            file = CHECKPOINT.file(folder, name, manifest)
            return fill(template, read_arrays(file), str(file))

        learners = [filled(f"member-{i}.safetensors", template) for i, template in enumerate(templates)]
        there = [f"ahead-{i}.safetensors" for i in range(len(params)) if f"ahead-{i}.safetensors" in manifest["files"]]
        waiting = [filled(name, template) for name, template in zip(there, params, strict=False)]
        environments = [_environment(folder, i, manifest) for i in range(len(templates))]
        position, deposited = Position(*manifest["position"]), manifest.get("deposited", [])
        return Checkpoint(learners, position, manifest["memory"], environments, waiting, deposited)


def _environment(folder: Path, member: int, manifest: dict[str, Any]) -> Named:
    name = f"environment-{member}.safetensors"
    if name not in manifest["files"]:
        return {}
    arrays = read_arrays(CHECKPOINT.file(folder, name, manifest))
    return {place[2:-2]: array for place, array in arrays.items()}  # as they were called before they were a pytree


def read_member(run: Path, member: int) -> tuple[int, Path, Named]:
    """A run's last checkpoint: its update, the file of one member, and the arrays of that state by their path."""
    updates = Checkpoints(run / "checkpoints", 1).updates()
    if not updates:
        raise CheckpointError(f"{run / 'checkpoints'} holds no complete checkpoint")
    last = run / "checkpoints" / f"{updates[-1]:010d}"
    file = CHECKPOINT.file(last, f"member-{member}.safetensors", CHECKPOINT.manifest(last))
    prefix = ".state"
    arrays = read_arrays(file).items()
    return updates[-1], file, {path[len(prefix) :]: array for path, array in arrays if path.startswith(prefix)}


def read_part(run: str | Path, part: str, member: int = 0) -> Named:
    """The arrays of one named part of a state (say `critic`) in a run's last checkpoint, by their path within it.

    Raises CheckpointError where there is no such part.
    """
    _, file, arrays = read_member(Path(run), member)
    prefix = f".{part}"
    found = {path[len(prefix) :]: a for path, a in arrays.items() if path.startswith((prefix + ".", prefix + "["))}
    if not found:
        parts = sorted({path.split(".")[1].split("[")[0] for path in arrays})
        raise CheckpointError(f"{file} has no part '{part}'; parts: {', '.join(parts)}")
    return found
