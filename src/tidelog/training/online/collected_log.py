"""The decisions collected in training, as a log: pieces on disk during the run, one log at its end.

Actions in the log are the executed actions. `extra["cut"]` marks actions that the bounds changed. The propensity is the
density of the unclipped policy at the executed action (as everywhere in tidelog), if the policy has a density. Episodes
that are unfinished at the end of the run are truncated. Letters: `W` copies, `T` decisions of each, `N` rows.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tidelog import disk
from tidelog.data.io.storage import LOG
from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError
from tidelog.types import ActionSpace, Continuous, Discrete, MultiDiscrete, Spec

Named = dict[str, np.ndarray[Any, Any]]


class CollectedLog:
    """Store the rollouts of all members and write them as one log."""

    def __init__(self, target: str | Path, spec: Spec, members: int) -> None:
        self.target, self._spec, self._members = Path(target), spec, members
        self._pieces = self.target.with_name(f"{self.target.name}.pieces")

    def check_free(self) -> None:
        """Raise ConfigError if the target exists already."""
        for path in (self.target, self._pieces):
            if path.exists():
                raise ConfigError(f"{path} exists already; nothing was written. fix: choose another path for the log")

    def add(self, member: int, round: int, columns: Named, begins: bool) -> None:
        """Store one rollout, leaves [W, T, ...]; `begins`: every copy was reset before it.

        CheckpointError if the earlier rollouts are a finished log already, as when a run continues from a checkpoint
        before its end.
        """
        if round and not self._piece(member, round - 1).exists():
            raise CheckpointError(
                f"the earlier rollouts are in the finished log {self.target}, which cannot be extended. fix: start a "
                "new run with another log_out"
            )

        def save(path: Path) -> None:
            with disk.stream_to(path) as file:
                np.savez(file, begins=np.asarray(begins), **columns)  # type: ignore[arg-type]

        disk.write_file(self._piece(member, round), save, parents=True)

    def delete_after(self, rounds: int) -> None:
        """Delete all rollouts after the first `rounds`, the last ones first."""
        if self._pieces.is_dir():
            disk.tidy(self._pieces)
            for path in sorted(self._pieces.glob("*.npz"), reverse=True):
                if path.stem.partition("-")[2].isdecimal() and int(path.stem.partition("-")[2]) >= rounds:
                    disk.delete(path)

    def write(self, rounds: int) -> None:
        """Write the log, then delete the pieces; a log that was written before is not written again."""
        if not self._pieces.is_dir():
            return
        if LOG.is_at(self.target):  # the process ended before it deleted the pieces
            disk.delete(self._pieces)
            return
        rows = [self._rows(member, rounds) for member in range(self._members)]
        episodes = np.cumsum([0, *(int(r["episode"][-1]) + 1 for r in rows)])
        for first, r in zip(episodes, rows, strict=False):
            r["episode"] = r["episode"] + first
        self._log({name: np.concatenate([r[name] for r in rows]) for name in rows[0]}).save(self.target)
        disk.delete(self._pieces)

    def _piece(self, member: int, round: int) -> Path:
        return self._pieces / f"{member}-{round:08d}.npz"

    def _rows(self, member: int, rounds: int) -> Named:
        """Return all decisions of one member, copy after copy, each in order of time; leaves [N, ...]."""
        pieces = [_read(self._piece(member, round)) for round in range(rounds)]
        steps = pieces[0]["reward"].shape[1]
        begins = np.repeat([bool(piece.pop("begins")) for piece in pieces], steps) & (
            np.arange(rounds * steps) % steps == 0
        )
        columns = {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}
        ended = columns["terminated"] | columns["truncated"]
        cut = np.append(begins[1:], True) & ~ended  # ended by the run, not by the environment
        columns["truncated"] = columns["truncated"] | cut
        ended = ended | cut
        valid = columns["valid"].reshape(-1)
        flat = {name: leaf.reshape(-1, *leaf.shape[2:])[valid] for name, leaf in columns.items()}
        ends = ended.reshape(-1)[valid]
        return flat | {"episode": np.cumsum(ends) - ends}

    def _log(self, rows: Named) -> Log:
        space, masked = self._spec.action, self._spec.masked
        action, extra = rows["action"], {}
        if isinstance(space, Continuous):
            cut = np.clip(action, -1.0, 1.0)
            extra["cut"] = (cut != action).any(axis=-1)
            action = space.executed(cut).astype(np.float32)
        return Log.from_arrays(
            observation=_leaves(rows, "observation"),
            next_observation=_leaves(rows, "following"),
            action=action,
            reward=rows["reward"],
            terminated=rows["terminated"],
            truncated=rows["truncated"],
            episode=rows["episode"],
            propensity=_propensity(rows, space),
            action_mask=rows["mask"] if masked else None,
            next_action_mask=rows["following_mask"] if masked else None,
            actions=space.n
            if isinstance(space, Discrete)
            else space.sizes
            if isinstance(space, MultiDiscrete)
            else None,
            bounds=(space.low, space.high) if isinstance(space, Continuous) else None,
            extra=extra or None,
        )


def _propensity(rows: Named, space: ActionSpace) -> np.ndarray[Any, Any] | None:
    """Return densities [N] in the units of the actions, or probabilities; None if the policy has neither."""
    if "executed_log_probability" not in rows:
        return None
    density: np.ndarray[Any, Any] = rows["executed_log_probability"] - (
        space.log_volume() if isinstance(space, Continuous) else 0.0
    )
    propensity: np.ndarray[Any, Any] = np.exp(density)
    return propensity


def flat_columns(columns: dict[str, Any]) -> Named:
    """Return columns with flat names, as `observation/<leaf>`."""
    flat: Named = {}
    for name, value in columns.items():
        leaves = (
            {f"{name}/{leaf}": array for leaf, array in value.items()} if isinstance(value, dict) else {name: value}
        )
        flat |= {path: np.asarray(array) for path, array in leaves.items()}
    return flat


def _leaves(rows: Named, name: str) -> Named:
    return {path.split("/", 1)[1]: leaf for path, leaf in rows.items() if path.startswith(f"{name}/")}


def _read(path: Path) -> Named:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"{path} is missing or damaged: {error}. fix: restore the file, or start a new run with another log_out"
        ) from error
