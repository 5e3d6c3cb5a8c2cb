"""Batch inference on arrays: an npz file with observations in, its arrays with actions out. Letters: `B` rows."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tidelog.data.core.order import Order, episode_order
from tidelog.data.parsing import column as parse
from tidelog.data.sources.arrays import named_arrays
from tidelog.disk import stream_to, write_file
from tidelog.errors import ConfigError, SpecError
from tidelog.policies.batch_inference import act_in_order, action_chances, check_has_chances
from tidelog.runtime.way_of_acting import Acts
from tidelog.types import Catalogue, Image, Leaf

Arrays = dict[str, NDArray[Any]]
_ONE = "observation"
_MANY = f"{_ONE}/"


def act_on_arrays(
    policy: Acts, path: str | Path, seed: int | None = None, *, probabilities: bool = False
) -> tuple[Arrays, list[str]]:
    """Return the arrays of an npz file with the policy's actions, and the names of arrays of objects, not read.

    The file has the names of `Log.from_arrays`: `observation` [B, ...], or `observation/<leaf>` for each leaf, and
    `action_mask` [B, A] where the log had masks. A recurrent policy needs `episode` [B], and `step` or `time` [B] where
    the rows of an episode are not in their order. New arrays: `action` (codes [B] of discrete actions, [B, M] of
    several, or vectors [B, A]), `propensity` [B] if the policy samples, with `probabilities` those of a sample [B, A],
    and `q` [B, A] if the policy has a critic. A new array whose name the file has is called `policy_<name>`. Raises
    LogError for a file that is not an archive of arrays, SpecError for arrays that do not fit the policy.
    """
    if isinstance(policy.spec.action, Catalogue):
        raise SpecError("this policy ranks items of a catalogue. fix: use tidelog recommend")
    check_has_chances(policy, asked=probabilities)
    arrays, objects = named_arrays(path)
    leaves = _leaves(arrays, policy.spec.observation, str(path))
    rows = len(next(iter(leaves.values())))
    _check_lengths(arrays, leaves, rows, str(path))
    if policy.spec.masked and "action_mask" not in arrays:
        raise SpecError(
            f"the log has action masks, but {path} has none. fix: add an array 'action_mask' [rows, actions]"
        )
    mask = arrays.get("action_mask") if policy.spec.masked else None
    order = _order(arrays, rows, str(path)) if policy.is_recurrent else None
    actions, propensities = act_in_order(policy, leaves, mask, order, seed)
    new = {"action": actions}
    if propensities is not None:
        new["propensity"] = propensities
    if probabilities:
        chances = action_chances(policy, leaves, mask)
        new |= {"probabilities" if name == "probability" else name: values for name, values in chances.items()}
    named = {name if name not in arrays else f"policy_{name}": values for name, values in new.items()}
    return arrays | named, objects


def _leaves(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Leaf], source: str) -> Arrays:
    """Return the leaves [B, ...] by the policy's names; one array fits the one leaf of a policy under either name."""
    found = {name.removeprefix(_MANY): values for name, values in arrays.items() if name.startswith(_MANY)}
    if _ONE in arrays:
        found[_ONE] = arrays[_ONE]
    if len(found) == len(expected) == 1:
        found = dict(zip(expected, found.values(), strict=True))
    if set(found) != set(expected):
        wanted = [_ONE] if len(expected) == 1 else [f"{_MANY}{name}" for name in expected]
        has = ", ".join(arrays) or "no arrays"
        fix = "add or rename them"
        if "obs" in arrays or "observations" in arrays:  # layouts of demonstrations, D4RL and OGBench
            convert = shlex.join(["tidelog", "data", "convert", "--data", source, "--out", "rows.npz"])
            fix = f"`{convert}`, then use rows.npz"
        raise SpecError(f"{source} has {has}: expected the arrays {', '.join(wanted)}. fix: {fix}")
    return {name: _rows(found[name], leaf) for name, leaf in expected.items()}


def _rows(values: NDArray[Any], leaf: Leaf) -> NDArray[Any]:
    """Return [B, ...]; one number per row becomes [B, 1], as in a log."""
    return values[:, None] if values.ndim == 1 and not isinstance(leaf, Image) else values


def _check_lengths(arrays: Mapping[str, NDArray[Any]], leaves: Arrays, rows: int, source: str) -> None:
    """Raise SpecError unless everything that a decision reads has one row per decision, and there is one."""
    by_row = {name: arrays[name] for name in ("action_mask", "episode", "step", "time") if name in arrays}
    lengths = {name: values.shape[0] if values.ndim else 0 for name, values in {**leaves, **by_row}.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise SpecError(f"{source}: arrays have different numbers of rows ({found}). fix: one row per decision in each")
    if not rows:
        raise SpecError(f"{source} has no rows, expected at least one. fix: add rows")


def _order(arrays: Mapping[str, NDArray[Any]], rows: int, source: str) -> Order:
    """Return the rows in episode order; SpecError without the array `episode`."""
    if "episode" not in arrays:
        raise SpecError(f"this policy is recurrent, but {source} has no array 'episode'. fix: add it, one per row")
    identity = parse.identity(pl.Series("episode", arrays["episode"]))
    key = next((arrays[name] for name in ("step", "time") if name in arrays), None)
    moment = None if key is None else parse.moment(pl.Series("step", key)).values
    return episode_order(rows, identity.values, identity.vocabulary, moment)


def write_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays as an .npz file, complete or not at all; ConfigError if it cannot be written."""

    def save(aside: Path) -> None:
        with stream_to(aside) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)

    write_file(path, save, ConfigError)
