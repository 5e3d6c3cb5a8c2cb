"""Export of an artefact: written to a temporary path, read by every runtime, kept only where all agree."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidelog.data.log import Log
from tidelog.disk import write_file
from tidelog.errors import ExportError, SpecError
from tidelog.policies.export.onnx import onnx_file
from tidelog.policies.export.parity import (
    READ,
    ROWS,
    Answer,
    answers_of,
    bound_of,
    check_parity,
    compare_runtimes,
    onnx_answers,
)
from tidelog.policies.policy import Policy, artefact_contents, load_policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.runtime.artefact_files import ONNX, Saved, check_target, write
from tidelog.runtime.loading import load_saved

Tell = Callable[[str, float], None]
TRACING = "writing the ONNX file (the policy is traced)"
COMPARING = "comparing JAX, NumPy and ONNX on observations"


def silent(doing: str, share: float) -> None:
    """Show no progress."""


class Logged(NamedTuple):
    """Observations of a log to test a policy on, and their action masks where the log has them."""

    leaves: dict[str, Any]
    mask: Any = None

    @classmethod
    def of(cls, log: Log | Interactions, policy: Policy) -> Logged:
        """Return evenly spaced decisions (or histories) of a log; SpecError for other observations."""
        if isinstance(log, Interactions):
            return cls._of_interactions(log, policy)
        if dict(log.spec.observation) != dict(policy.spec.observation):
            raise SpecError("this log's observations differ from the policy's. fix: pass the policy's own log")
        steps = np.linspace(0, log.steps - 1, min(ROWS, log.steps)).astype(int)
        rows = log.position[steps]
        mask = None if log.action_mask is None else np.asarray(log.action_mask[rows])
        return cls({name: np.asarray(leaf[rows]) for name, leaf in log.observation.items()}, mask)

    @classmethod
    def _of_interactions(cls, log: Interactions, policy: Policy) -> Logged:
        if policy.algorithm.spec_of(log).to_json() != policy.spec.to_json():
            raise SpecError("these interactions have other items, events or users than the policy's. fix: pass its own")
        rows = np.linspace(0, log.steps - 1, min(ROWS, log.steps)).astype(int)
        items, events = log.histories(rows, READ)
        who, gaps = log.user[rows], log.history_gaps(rows, READ)
        known = {"user": log.features_of(who), "gap": gaps, "user_id": who + 1}
        return cls({"item": items, "event": events, **known})


def has_onnx() -> bool:
    """Return whether the extra for writing and checking ONNX is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax2onnx", "onnx", "onnxruntime"))


def export(
    policy: Policy,
    path: str | Path,
    *,
    onnx: bool = True,
    logged: Logged | None = None,
    metrics: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
    key: Path | None = None,
    progress: Tell = silent,
) -> dict[str, Any]:
    """Write a policy as a folder, a .zip or an .onnx file after a parity check; return the parity record.

    `provenance` is stored in the manifest; the private key in the file `key` signs the manifest; `progress` is called
    with each step and the share that is done before it.

    Raises ExportError, and writes nothing, where a runtime differs from JAX by more than the bound for its actions.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> tl.export(policy, "policy.zip")["numpy"]["holds"]
        True
    """
    path = Path(path)
    if path.suffix == ".onnx":
        return export_onnx(policy, path, logged, progress=progress)
    check_target(path)  # before seconds of tracing and comparing
    files, manifest = artefact_contents(policy)
    manifest["metrics"] = None if metrics is None else dict(metrics)
    manifest |= {} if provenance is None else {"provenance": dict(provenance)}
    if onnx and manifest["recipe"] is not None:
        progress(TRACING, 0.0)
        files[ONNX], manifest["onnx"] = onnx_file(policy)
    progress(COMPARING, 0.5)
    record = _compared(policy, files, manifest, logged)
    check_parity(record, _readers_in(record), str(path))
    progress("writing", 0.95)
    write(path, files, manifest | {"parity": record}, key)
    return record


def export_onnx(
    policy: Policy, path: Path, logged: Logged | None = None, *, overwrite: bool = False, progress: Tell = silent
) -> dict[str, Any]:
    """Write a policy as one ONNX file, compared with JAX by onnxruntime; return the parity record."""
    if path.exists() and not overwrite:
        raise ExportError(f"{path} exists, nothing was written. fix: choose another path")
    files, manifest = artefact_contents(policy)
    progress(TRACING, 0.0)
    files[ONNX], manifest["onnx"] = onnx_file(policy)
    progress(COMPARING, 0.5)
    record = _compared(policy, files, manifest, logged)
    check_parity(record, _readers_in(record), str(path))
    write_file(path, files[ONNX], ExportError, parents=True)
    return record


def recheck(path: Path, logged: Logged | None = None) -> dict[str, Any]:
    """Compare the runtimes of an artefact again; ExportError where one exceeds the artefact's stated bound.

    onnxruntime runs the artefact's ONNX file, whatever it holds: only for artefacts of those whom you trust.
    """
    policy, saved = load_policy(path), Saved(path)
    if saved.manifest["recipe"] is None:
        raise ExportError(
            f"{path} contains a custom module; only the JAX runtime can run it. fix: use the networks of tidelog"
        )
    record = compare_runtimes(
        policy, _runtimes(policy, saved), bound_of(policy, saved.manifest), *(logged or (None, None))
    )
    check_parity(record, _readers_in(record), str(path))
    return record


def _compared(
    policy: Policy, files: dict[str, bytes], manifest: dict[str, Any], logged: Logged | None
) -> dict[str, Any]:
    try:
        folder = tempfile.TemporaryDirectory()
    except OSError as error:
        raise ExportError(
            f"no temporary folder can be written: {error.strerror}. fix: free space, or set TMPDIR to another folder"
        ) from error
    with folder:
        temporary = Path(folder.name) / "policy"
        write(temporary, files, manifest)
        return compare_runtimes(
            policy, _runtimes(policy, Saved(temporary)), bound_of(policy, manifest), *(logged or (None, None))
        )


def _runtimes(policy: Policy, saved: Saved) -> dict[str, Answer]:
    """Return the answers of the other runtimes that can run a saved policy."""
    runtimes: dict[str, Answer] = {}
    if saved.manifest["recipe"] is not None:
        runtimes["numpy"] = partial(answers_of, load_saved(saved))
    if saved.manifest["onnx"] is not None:
        runtimes["onnx"] = onnx_answers(policy, saved.read(ONNX), f"{saved.path}/{ONNX}")
    return runtimes


def _readers_in(record: Mapping[str, Any]) -> list[str]:
    return [name for name in ("numpy", "onnx") if name in record]
