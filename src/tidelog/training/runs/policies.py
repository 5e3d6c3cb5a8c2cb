"""Policies from a run folder, without the log of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.errors import ConfigError
from tidelog.networks.keys import new_key
from tidelog.policies.declared import as_declared
from tidelog.policies.named_arrays import fill
from tidelog.policies.policy import Policy, load_learnt_policy
from tidelog.training.runs.checkpoints import Checkpoints, read_member
from tidelog.training.runs.record import Record
from tidelog.training.runs.selection import Selection


def policy_of_run(folder: str | Path, member: int | None = None, algorithm: Any = None) -> Policy:
    """Return the policy of a run's last checkpoint, or its best policy if the run has `best` and no member is named.

    It acts as it was judged, if it was.
    """
    path = Path(folder)
    record = Record.read(path)
    if member is None and record.options.best is not None:
        best = Selection(record.options, Checkpoints(path / "checkpoints", 1).memory()).best_member()
        if best is not None:
            return as_declared(path, load_learnt_policy(path / "best" / f"member-{best}", algorithm))
    count = len(record.configs) * len(record.options.seeds)
    if member is not None and not 0 <= member < count:
        raise ConfigError(f"member = {member}: {path} has {count} member(s). fix: use 0 to {count - 1}")
    return member_policy(path, record, member or 0, algorithm)


def member_policy(path: Path, record: Record, index: int, algorithm: Any = None) -> Policy:
    """Return the policy of one member from the last checkpoint; it acts as it was judged, if it was."""
    update, file, arrays = read_member(path, index)
    own_algorithm = record.algorithms(algorithm)[index // len(record.options.seeds)]
    state = fill(own_algorithm.init(record.spec, new_key(0), record.options.steps), arrays, str(file))
    origin = record.origin(run=path.name, update=update, member=index)
    policy = Policy(
        own_algorithm, record.spec, record.scaler, own_algorithm.policy_params(state), origin, record.acting
    )
    return as_declared(path, policy)
