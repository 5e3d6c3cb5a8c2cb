"""What was collected while training, as a log: pieces on disk while the run goes on, one log at its end.

Actions in the log are those the environment got, `extra["cut"]` says where the bounds changed the sampled one, and the
propensity is the density of the uncut policy at the executed action (as everywhere here), where it has one. An episode
that the end of the run cut off is truncated. Letters: `W` copies, `T` decisions of each, `N` rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.log import Log
from tidelog.errors import CheckpointError, ConfigError
from tidelog.types import ActionSpace, Continuous, Discrete, MultiDiscrete, Spec

Named = dict[str, np.ndarray[Any, Any]]


class CollectedLog:
    """Takes the rollouts of all members and writes them as one log."""

    def __init__(self, target: str | Path, spec: Spec, members: int) -> None:
        self.target, self._spec, self._members = Path(target), spec, members
        self._pieces = self.target.with_name(f"{self.target.name}.pieces")

    def check_free(self) -> None:
        """Raise ConfigError where something stands at the target already."""
        for path in (self.target, self._pieces):
            if path.exists():
                raise ConfigError(f"{path} exists: choose another place for the log, nothing was written")

    def take(self, member: int, round: int, columns: Named, begins: bool) -> None:
        """Keep one rollout, leaves [W, T, ...]; `begins`: every copy started anew before it.

        CheckpointError where the rollouts before it are a log already, as when a run goes back from its end.
        """
        if round and not self._piece(member, round - 1).exists():
            raise CheckpointError(f"what was played before is in {self.target} already and cannot be added to")
        self._pieces.mkdir(parents=True, exist_ok=True)
        aside = self._pieces / f".{member}-{round}.npz"
        np.savez(aside, begins=np.asarray(begins), **columns)  # type: ignore[arg-type]
        aside.replace(self._piece(member, round))

    def go_on(self, rounds: int) -> None:
        """Forget rollouts that come after the first so many."""
        if self._pieces.is_dir():
            for path in self._pieces.glob("*.npz"):
                if int(path.stem.split("-")[1]) >= rounds:
                    path.unlink()

    def finish(self, rounds: int) -> None:
        """Write the log and forget the pieces; nothing where that has been done."""
        if not self._pieces.is_dir():
            return
        rows = [self._rows(member, rounds) for member in range(self._members)]
        episodes = np.cumsum([0, *(int(r["episode"][-1]) + 1 for r in rows)])
        for first, r in zip(episodes, rows, strict=False):
            r["episode"] = r["episode"] + first
        self._log({name: np.concatenate([r[name] for r in rows]) for name in rows[0]}).save(self.target)
        shutil.rmtree(self._pieces)

    def _piece(self, member: int, round: int) -> Path:
        return self._pieces / f"{member}-{round:08d}.npz"

    def _rows(self, member: int, rounds: int) -> Named:
        """All decisions of one member, copy after copy, each in time's order; leaves [N, ...]."""
        pieces = [_read(self._piece(member, round)) for round in range(rounds)]
        steps = pieces[0]["reward"].shape[1]
        begins = np.repeat([bool(piece.pop("begins")) for piece in pieces], steps) & (
            np.arange(rounds * steps) % steps == 0
        )
        columns = {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}
        ended = columns["terminated"] | columns["truncated"]
        cut = np.append(begins[1:], True) & ~ended  # the run, not the world, ended these
        columns["truncated"] = columns["truncated"] | cut
        ended = ended | cut
        kept = columns["valid"].reshape(-1)
        flat = {name: leaf.reshape(-1, *leaf.shape[2:])[kept] for name, leaf in columns.items()}
        over = ended.reshape(-1)[kept]
        return flat | {"episode": np.cumsum(over) - over}

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
    """Densities [N] in the actions' own units, or probabilities; None where the policy has neither."""
    if "likely" not in rows:
        return None
    density: np.ndarray[Any, Any] = rows["likely"] - (space.log_volume() if isinstance(space, Continuous) else 0.0)
    found: np.ndarray[Any, Any] = np.exp(density)
    return found


def flat_columns(columns: dict[str, Any]) -> Named:
    """Columns by flat names: `observation/<leaf>` and so on."""
    found: Named = {}
    for name, value in columns.items():
        leaves = (
            {f"{name}/{leaf}": array for leaf, array in value.items()} if isinstance(value, dict) else {name: value}
        )
        found |= {place: np.asarray(array) for place, array in leaves.items()}
    return found


def _leaves(rows: Named, name: str) -> Named:
    return {place.split("/", 1)[1]: leaf for place, leaf in rows.items() if place.startswith(f"{name}/")}


def _read(path: Path) -> Named:
    with np.load(path, allow_pickle=False) as content:
        return {name: content[name] for name in content.files}
