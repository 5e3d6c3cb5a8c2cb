"""The provenance of an exported policy: log, run, checkpoint, verdict and weights, each with its fingerprint.

`provenance_of` writes the record that an artefact carries; `broken_links` compares it with what is still there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidelog.errors import CheckpointError, TidelogError
from tidelog.folders import MANIFEST, checksum
from tidelog.policies.named_arrays import fingerprint
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.readers import reopen_any
from tidelog.schema import decode_file, typed
from tidelog.training.runs.checkpoints import CHECKPOINT
from tidelog.training.runs.record import FILE, Record

VERDICTS = "verdicts"


class FileLink(msgspec.Struct):
    """A file of the run folder, and its SHA-256."""

    file: str
    sha256: str


class RunLink(msgspec.Struct):
    """The folder of the run, and the SHA-256 of its run.json."""

    folder: str
    sha256: str


class LogLink(msgspec.Struct):
    """The log of the run by its fingerprint, or its environment."""

    fingerprint: str | None
    environment: str | None


class Provenance(msgspec.Struct):
    """The chain from an exported policy back to its log."""

    log: LogLink
    run: RunLink
    checkpoint: FileLink | None
    verdict: FileLink | None
    weights: str


class VerdictFile(msgspec.Struct):
    """The file of a verdict, as far as the provenance reads it."""

    decision: str
    difference: dict[str, float | None]


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
    chain = typed(provenance, Provenance, "the provenance is malformed", fix="export the policy again")
    run = Path(chain.run.folder) if folder is None else folder
    links = [_weights(chain, policy), _same_file("run", run / FILE, chain.run.sha256)]
    for name, link in (("checkpoint", chain.checkpoint), ("verdict", chain.verdict)):
        links.append(
            (name, "none was recorded", True) if link is None else _same_file(name, run / link.file, link.sha256)
        )
    if chain.checkpoint is not None and links[2][2]:
        links[2] = _files_of_checkpoint(links[2], (run / chain.checkpoint.file).parent)
    return [*links, _log(run, chain.log)]


def _files_of_checkpoint(link: tuple[str, str, bool], folder: Path) -> tuple[str, str, bool]:
    """The link of an unchanged manifest, or a broken one if a file that it names is missing or changed."""
    if not (folder / MANIFEST).is_file():
        return link
    try:
        manifest = CHECKPOINT.manifest(folder)
        for name in manifest["files"]:
            CHECKPOINT.file(folder, name, manifest)
    except CheckpointError as error:
        return "checkpoint", re.sub(r"\. fix: .*", "", str(error), flags=re.DOTALL), False
    return link


def _weights(chain: Provenance, policy: Policy) -> tuple[str, str, bool]:
    same = chain.weights == fingerprint(policy.params)
    return "weights", "are those that were exported" if same else "differ from those that were exported", same


def _same_file(name: str, path: Path, expected: str) -> tuple[str, str, bool]:
    if not path.is_file():
        return name, f"{path} is not here any more", True
    same = checksum(path) == expected
    return name, f"{path} {'is unchanged' if same else 'was changed after the export'}", same


def _log_exists(run: Path) -> bool:
    """Whether a file or folder of the run's log exists."""
    try:
        source = (Record.read(run).data.origin or {}).get("source", ())
    except (TidelogError, OSError):
        return False  # the link of the run says what is wrong
    return any(Path(one).exists() for one in ([source] if isinstance(source, str) else source))


def _log(run: Path, link: LogLink) -> tuple[str, str, bool]:
    """The log, read again from where the run read it."""
    expected = link.fingerprint
    if expected is None:
        return "log", f"the run learnt in the environment {link.environment}", True
    try:
        origin = Record.read(run).data.origin
        log = None if origin is None else reopen_any(origin)
    except (TidelogError, OSError) as error:
        return "log", f"cannot be read again: {str(error)[:200]}", not _log_exists(run)
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
        content = decode_file(path, VerdictFile, fix="remove it and judge the run again")
        if content.decision == policy.verdict["decision"] and numbers == [*content.difference.values()]:
            return path
    return None
