"""The provenance of an exported policy: log, run, checkpoint, verdict and weights, each with its fingerprint.

`provenance_of` writes the record that an artefact carries; `broken_links` compares it with what is still there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import CheckpointError, TidelogError
from tidelog.folders import MANIFEST, checksum
from tidelog.policies.named_arrays import fingerprint
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.training.runs.record import FILE, Record

VERDICTS = "verdicts"


def provenance_of(folder: Path, record: Record, policy: Policy) -> dict[str, Any]:
    """Return the provenance of a policy of a run: plain values, with the run's folder as it is named now."""
    update = policy.origin.get("update")
    checkpoint = folder / "checkpoints" / f"{update:010d}" / MANIFEST if isinstance(update, int) else None
    verdict = _verdict_file(folder, policy)
    return {
        "log": {"fingerprint": record.data.fingerprint, "environment": record.environment},
        "run": {"folder": str(folder.absolute()), "sha256": checksum(folder / FILE)},
        "checkpoint": _file(folder, checkpoint),
        "verdict": _file(folder, verdict),
        "weights": fingerprint(policy.params),
    }


def broken_links(provenance: Mapping[str, Any], policy: Policy, folder: Path | None) -> list[tuple[str, str, bool]]:
    """Return each link of the chain as its name, a sentence, and whether it holds or cannot be checked any more.

    `folder` is the run if it has moved.
    """
    try:
        run = Path(provenance["run"]["folder"]) if folder is None else folder
        links = [_weights(provenance, policy), _same_file("run", run / FILE, provenance["run"]["sha256"])]
        for name in ("checkpoint", "verdict"):
            link = provenance[name]
            links.append(
                (name, "none was recorded", True)
                if link is None
                else _same_file(name, run / link["file"], link["sha256"])
            )
        return [*links, _log(run, provenance["log"])]
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the provenance is malformed: {error!r}. fix: export the policy again") from error


def _weights(provenance: Mapping[str, Any], policy: Policy) -> tuple[str, str, bool]:
    same = provenance["weights"] == fingerprint(policy.params)
    return "weights", "are those that were exported" if same else "differ from those that were exported", same


def _same_file(name: str, path: Path, expected: str) -> tuple[str, str, bool]:
    if not path.is_file():
        return name, f"{path} is not here any more", True
    same = checksum(path) == expected
    return name, f"{path} {'is unchanged' if same else 'was changed after the export'}", same


def _log(run: Path, link: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The log, read again from where the run read it."""
    expected = link["fingerprint"]
    if expected is None:
        return "log", f"the run learnt in the environment {link['environment']}", True
    try:
        origin = Record.read(run).data.origin
        log = None if origin is None else reopen_any(origin)
    except (TidelogError, OSError) as error:
        return "log", f"cannot be read again: {str(error)[:200]}", True
    if log is None:
        return "log", "was created in memory", True
    same = log.fingerprint() == expected
    return (
        "log",
        "is the one that the run learnt from" if same else "differs from the one that the run learnt from",
        same,
    )


def _file(folder: Path, path: Path | None) -> dict[str, str] | None:
    if path is None or not path.is_file():
        return None
    return {"file": path.relative_to(folder).as_posix(), "sha256": checksum(path)}


def _verdict_file(folder: Path, policy: Policy) -> Path | None:
    """The newest file of the verdict that the policy carries."""
    if policy.verdict is None:
        return None
    numbers = [policy.verdict[name] for name in ("difference", "low", "high")]
    files = sorted((folder / VERDICTS).glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(files):
        content = json.loads(path.read_bytes())
        difference = content.get("difference") or {}
        if content.get("decision") == policy.verdict["decision"] and numbers == [*difference.values()]:
            return path
    return None
