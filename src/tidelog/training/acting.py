"""Policies out of a run folder, without the log that made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from tidelog.acting.arrays import fill, parse_arrays
from tidelog.acting.policy import Policy, load_policy
from tidelog.errors import CheckpointError, ConfigError
from tidelog.folders import read_file, read_manifest
from tidelog.training.checkpoints import SCHEMA, Checkpoints
from tidelog.training.record import Record


def policy_of_run(folder: str | Path, seed: int | None = None, algorithm: Any = None) -> Policy:
    """The policy of a run's last checkpoint, or its best one if `best` was asked for and no seed is named."""
    path = Path(folder)
    best = path / "best" / "member-0"
    if seed is None and best.exists():
        return load_policy(best, algorithm)
    record = Record.read(path)
    seeds = record.settings.seeds
    if seed is not None and seed not in seeds:
        raise ConfigError(f"{path} has no seed {seed}: seeds are {list(seeds)}")
    return member_policy(path, record, 0 if seed is None else seeds.index(seed), algorithm)


def member_policy(path: Path, record: Record, index: int, algorithm: Any = None) -> Policy:
    """The policy of one member as the last checkpoint holds it."""
    updates = Checkpoints(path / "checkpoints", 1).updates()
    if not updates:
        raise CheckpointError(f"{path} holds no complete checkpoint")
    made_by = record.algorithms(algorithm)[index // len(record.settings.seeds)]
    last = path / "checkpoints" / f"{updates[-1]:010d}"
    name = f"member-{index}.safetensors"
    arrays = parse_arrays(read_file(last, name, read_manifest(last, schema=SCHEMA)), str(last / name))
    prefix = ".state"
    state = {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix + ".")}
    filled = fill(made_by.init(record.spec, jax.random.key(0), record.settings.steps), state, str(last / name))
    origin = {"run": path.name, "update": updates[-1], "member": index, "data": record.data["fingerprint"]}
    return Policy(made_by, record.spec, record.scaler, made_by.acting(filled), origin)
