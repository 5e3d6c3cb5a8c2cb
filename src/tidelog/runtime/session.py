"""A saved policy computed by onnxruntime, with the same calls and the same checks as the one on NumPy.

Needs onnxruntime and an artefact that holds an ONNX file. Letters: `B` batch, `K` columns of a leaf.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.errors import CheckpointError, ExportError, SpecError
from tidelog.runtime.acts import Made, Seen
from tidelog.runtime.intake import column_names
from tidelog.runtime.policy import Policy
from tidelog.runtime.ranking import ROWS, check_histories, fitted, refuse_too_few
from tidelog.runtime.reading import LISTED
from tidelog.runtime.recipe import Noise
from tidelog.runtime.recommender import Recommender
from tidelog.runtime.saved import ONNX, Saved
from tidelog.types import Catalogue, Continuous, Leaf, Spec, Vector

NumpyArray = np.ndarray[Any, Any]
CHUNK = 4096
QUIET = 3  # onnxruntime warns of inputs with defaults, which are meant


def load_onnx(path: str | Path, threads: int = 1) -> Policy | Recommender:
    """A saved policy that onnxruntime computes, on so many threads.

    Raises ExportError without onnxruntime, CheckpointError where the artefact holds no ONNX file or is damaged.
    """
    saved = Saved(path)
    facts = saved.manifest["onnx"]
    if facts is None:
        raise CheckpointError(f"{saved.path} holds no {ONNX}: `tidelog export` writes it where the extra is installed")
    try:
        kind = saved.manifest["recipe"]["act"]["kind"]
        return _ranks(saved, threads) if kind == LISTED else _acts(saved, threads)
    except (LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{saved.where}: 'onnx' cannot be understood: {error!r}") from error


def _acts(saved: Saved, threads: int) -> Policy:
    facts, act, spec = saved.manifest["onnx"], saved.manifest["recipe"]["act"], saved.spec
    inputs = {one["name"]: list(one["shape"]) for one in facts["inputs"]}
    outputs, carry = list(facts["outputs"]), inputs.get("carry", [0, 0])[1]
    noise, epsilon = _noise(inputs, spec, act), act.get("epsilon")
    session = _session(saved, threads)

    def make(seen: Seen) -> Made:
        feeds = {name: _columns(spec.observation[name], leaf) for name, leaf in seen.leaves.items()}
        given = {"mask": seen.mask, "carry": seen.carry, "noise": seen.noise}
        feeds |= {name: value for name, value in given.items() if value is not None}
        return _made(dict(zip(outputs, session.run(outputs, feeds), strict=True)), spec)

    epsilon = epsilon if noise is not None and noise.kind == "normal" else None
    return Policy(saved, make, None, noise=noise, epsilon=epsilon, width=carry, chunk=CHUNK)


def _ranks(saved: Saved, threads: int) -> Recommender:
    act, space = saved.manifest["recipe"]["act"], saved.spec.action
    items = space.n if isinstance(space, Catalogue) else 0
    return Recommender(saved, _Lists(_session(saved, threads), items, min(act["width"], items), act["history"]))


class _Lists:
    """Ranks items by a file's lists, which are as long as `width`."""

    def __init__(self, session: Any, items: int, width: int, history: int) -> None:
        self._session, self.items, self.width, self._history = session, items, width, history

    def rank(
        self, histories: NumpyArray, events: NumpyArray, k: int, allowed: NumpyArray | None = None
    ) -> tuple[NumpyArray, NumpyArray]:
        """The best `k` items and their scores, [B, k] each; SpecError where a list of the file is shorter."""
        check_histories(histories, events, allowed, self.items)
        if k > self.width:
            raise SpecError(f"k = {k}: the ONNX file makes lists of {self.width} items; NumPy makes longer ones")
        marks = np.ones((len(histories), self.items + 1), bool) if allowed is None else allowed
        refuse_too_few(marks, k)
        seen, done = (fitted(part, self._history) for part in (histories, events))
        parts = []
        for start in range(0, len(seen), ROWS):
            rows = slice(start, start + ROWS)
            feeds = {"history": seen[rows], "event": done[rows], "mask": marks[rows, 1:]}
            parts.append(self._session.run(["item", "score"], feeds))
        items, scores = (np.concatenate(column)[:, :k] for column in zip(*parts, strict=True))
        return items.astype(np.int32), scores


def _session(saved: Saved, threads: int) -> Any:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ExportError(f"this back-end needs onnxruntime: pip install 'tidelog[onnx]' ({error})") from error
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = QUIET, threads
    content = saved.read(ONNX)
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no base that it promises
        raise CheckpointError(f"{saved.path}/{ONNX} is refused by onnxruntime: {error}") from error


def _noise(inputs: Mapping[str, list[Any]], spec: Spec, act: Mapping[str, Any]) -> Noise | None:
    shape = inputs.get("noise")
    if shape is None:
        return None
    if len(shape) == 3:
        return Noise("latents", (shape[0], shape[2]), float(act["clip"]))
    return Noise("normal" if isinstance(spec.action, Continuous) else "gumbel", tuple(shape[1:]))


def _columns(leaf: Leaf, values: NumpyArray) -> NumpyArray:
    """The columns [B, K] of a leaf, NaN where its flags say that a value was missing."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    places = {name: i for i, name in enumerate(leaf.names)}
    columns = values[:, [places[name] for name in column_names(leaf)]].copy()
    for k, name in enumerate(column_names(leaf)):
        if f"{name} missing" in places:
            columns[values[:, places[f"{name} missing"]] > 0, k] = np.nan
    return columns


def _made(found: Mapping[str, NumpyArray], spec: Spec) -> Made:
    """What the file's outputs say, in units of [-1, 1]."""
    space, mean, spread = spec.action, found.get("mean"), found.get("spread")
    action = found["action"]
    if isinstance(space, Continuous):
        action = space.to_unit(action)
        mean = None if mean is None else space.to_unit(mean)
        spread = None if spread is None else spread / (space.from_unit(1.0) - space.from_unit(0.0))
    return Made(action, found.get("probabilities"), mean, spread, found.get("next_carry"))
