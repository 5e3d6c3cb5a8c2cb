"""Making an artefact of a policy: written aside, read back by every reader, and kept if all give one answer."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidelog.data.log import Log
from tidelog.errors import ExportError, SpecError
from tidelog.policies.export.manifest import contents
from tidelog.policies.export.onnx import onnx_file
from tidelog.policies.export.parity import READ, ROWS, bound_of, check, measured
from tidelog.policies.policy import Policy, load_policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.runtime.artefact_files import ONNX, Saved, write
from tidelog.runtime.loading import load
from tidelog.runtime.session import load_onnx


class Logged(NamedTuple):
    """Observations of a log, to try a policy on; what was allowed there, if the log says so."""

    leaves: dict[str, Any]
    mask: Any = None

    @classmethod
    def of(cls, log: Log | Interactions, policy: Policy) -> Logged:
        """Evenly spaced decisions (or histories) of a log; SpecError where the policy sees something else."""
        if isinstance(log, Interactions):
            return cls._of_interactions(log, policy)
        if dict(log.spec.observation) != dict(policy.spec.observation):
            raise SpecError("this log's observations are not what the policy was trained to see: give its own log")
        steps = np.linspace(0, log.steps - 1, min(ROWS, log.steps)).astype(int)
        rows = log.position[steps]
        mask = None if log.action_mask is None else np.asarray(log.action_mask[rows])
        return cls({name: np.asarray(leaf[rows]) for name, leaf in log.observation.items()}, mask)

    @classmethod
    def _of_interactions(cls, log: Interactions, policy: Policy) -> Logged:
        if log.spec.to_json() != policy.spec.to_json():
            raise SpecError("these interactions are of other items, events or users than the policy's: give its own")
        rows = np.linspace(0, log.steps - 1, min(ROWS, log.steps)).astype(int)
        items, events = log.histories(rows, READ)
        return cls({"item": items, "event": events, "user": log.described(log.user[rows])})


def has_onnx() -> bool:
    """Whether the extra that writes and reads ONNX is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax2onnx", "onnx", "onnxruntime"))


def export(
    policy: Policy,
    path: str | Path,
    *,
    onnx: bool = True,
    logged: Logged | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a policy as a folder, a .zip or an .onnx file whose readers were compared; returns the parity record.

    Raises ExportError, and writes nothing, where a reader is further from JAX than the bound of its actions allows.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        return export_onnx(policy, path, logged)
    files, manifest = contents(policy)
    manifest["metrics"] = None if metrics is None else dict(metrics)
    if onnx and manifest["recipe"] is not None:
        files[ONNX], manifest["onnx"] = onnx_file(policy)
    record = _compared(policy, files, manifest, logged)
    check(record, _readers_in(record), str(path))
    write(path, files, manifest | {"parity": record})
    return record


def export_onnx(policy: Policy, path: Path, logged: Logged | None = None) -> dict[str, Any]:
    """Write a policy as one ONNX file, compared with JAX by onnxruntime; returns the parity record."""
    if path.exists():
        raise ExportError(f"{path} exists: choose another file, nothing was written")
    files, manifest = contents(policy)
    files[ONNX], manifest["onnx"] = onnx_file(policy)
    record = _compared(policy, files, manifest, logged)
    check(record, _readers_in(record), str(path))
    aside = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(files[ONNX])
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ExportError(f"{path} cannot be written: {error}") from error
    return record


def recheck(path: Path, logged: Logged | None = None) -> dict[str, Any]:
    """Compare the readers of an artefact again; ExportError where one breaks the bound that the artefact states."""
    policy, saved = load_policy(path), Saved(path)
    if saved.manifest["recipe"] is None and saved.manifest["onnx"] is None:
        raise ExportError(f"{path} has no reader beside JAX: a part of it is of its author's own making")
    found = measured(
        policy, _readers(path, saved.manifest), bound_of(policy, saved.manifest), *(logged or (None, None))
    )
    check(found, _readers_in(found), str(path))
    return found


def _compared(
    policy: Policy, files: dict[str, bytes], manifest: dict[str, Any], logged: Logged | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        aside = Path(place) / "policy"
        write(aside, files, manifest)
        return measured(policy, _readers(aside, manifest), bound_of(policy, manifest), *(logged or (None, None)))


def _readers(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    readers = {} if manifest["recipe"] is None else {"numpy": load(path)}
    return readers if manifest["onnx"] is None else {**readers, "onnx": load_onnx(path)}


def _readers_in(record: Mapping[str, Any]) -> list[str]:
    return [name for name in ("numpy", "onnx") if name in record]
