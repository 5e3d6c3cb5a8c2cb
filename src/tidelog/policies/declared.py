"""The declared ways of acting of a run's policies and rules, in one file of its folder, by their fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tidelog.disk import write_json
from tidelog.errors import CheckpointError, ConfigError
from tidelog.policies.named_arrays import fingerprint
from tidelog.policies.policy import Policy
from tidelog.runtime.rule import Rule
from tidelog.runtime.way_of_acting import Acting, P
from tidelog.schema import decode_file

FILE = "acting.json"
FIX = "remove it and judge the run again"


class Declared(msgspec.Struct, forbid_unknown_fields=True):
    """The declared way of acting of some weights, and the summary of the verdict on it."""

    acting: Acting | None
    verdict: dict[str, Any] | None


def remember(folder: Path, policy: Policy | Rule) -> None:
    """Write the policy's way of acting and its verdict to the file of a run folder, atomically."""
    path = folder / FILE
    known = {**_read(path), _mark(policy): Declared(policy.acting, policy.verdict)}
    write_json(path, msgspec.to_builtins(known))


def as_declared(folder: Path, policy: P) -> P:
    """Return the policy in the way of acting that the run folder has for it, unchanged if it has none."""
    path = folder / FILE
    entry = _read(path).get(_mark(policy))
    if entry is not None:
        try:
            policy.declare(entry.acting, entry.verdict)
        except ConfigError as error:
            raise CheckpointError(f"{path} is damaged: {error}. fix: {FIX}") from error
    return policy


def _mark(policy: Any) -> str:
    """What a file knows a policy by: its weights, or the questions and actions of a rule."""
    return policy.fingerprint if isinstance(policy, Rule) else fingerprint(policy.params)


def _read(path: Path) -> dict[str, Declared]:
    if not path.exists():
        return {}
    return decode_file(path, dict[str, Declared], fix=FIX, where=f"{path} is damaged", nan=True)
