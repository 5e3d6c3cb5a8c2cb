"""The declared ways of acting of a run's policies, in one file of its folder, by the fingerprint of their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.disk import write_json
from tidelog.errors import CheckpointError, ConfigError
from tidelog.input_files import parse_json, read_text
from tidelog.policies.named_arrays import fingerprint
from tidelog.policies.policy import Policy

FILE = "acting.json"


def remember(folder: Path, policy: Policy) -> None:
    """Write the policy's way of acting and its verdict to the file of a run folder, atomically."""
    path = folder / FILE
    known = {**_read(path), fingerprint(policy.params): {"acting": policy.acting, "verdict": policy.verdict}}
    write_json(path, known)


def as_declared(folder: Path, policy: Policy) -> Policy:
    """Return the policy in the way of acting that the run folder has for these weights, unchanged if it has none."""
    path = folder / FILE
    known = _read(path)
    entry = known.get(fingerprint(policy.params)) if known else None
    if entry is not None:
        try:
            policy.declare(entry["acting"], entry["verdict"])
        except (KeyError, TypeError, ConfigError) as error:
            raise _damaged(path, error) from error
    return policy


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        known = parse_json(read_text(path))
        if not isinstance(known, dict):
            raise TypeError("it is not an object")
        return known
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {error!r}. fix: remove it and judge the run again")
