"""A saved policy computed by onnxruntime, with the same methods and checks as the NumPy policy.

Requires onnxruntime and an artefact with an ONNX file. Letters: `B` batch, `K` columns of a leaf.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.errors import CheckpointError, ExportError, SpecError, install
from tidelog.runtime.artefact_files import ONNX, Saved
from tidelog.runtime.history_encoders import RANKING, features_of, known_users, ranking_functions, reach, reads_gaps
from tidelog.runtime.loading import CHUNK, CHUNK_OF_CANDIDATES, check_lists, check_outputs, check_sizes
from tidelog.runtime.observations import column_names
from tidelog.runtime.onnx_guard import RefusedModel, refuse_foreign
from tidelog.runtime.policy import Policy
from tidelog.runtime.policy_heads import PolicyInputs, PolicyOutputs
from tidelog.runtime.ranking import (
    ROWS,
    Ranker,
    check_histories,
    fit_length,
    gap_array,
    refuse_too_few,
    user_array,
    user_places,
)
from tidelog.runtime.recipe import Recipe, no_noise, noise_of, restore_arrays
from tidelog.runtime.recommender import Recommender
from tidelog.types import Catalogue, Continuous, Leaf, Spec, Vector

NumpyArray = np.ndarray[Any, Any]
QUIET = 3  # onnxruntime warns about inputs with defaults; they are intended


def load_onnx(path: str | Path, threads: int = 1) -> Policy | Recommender:
    """Load a saved policy for onnxruntime with this number of threads.

    Raises ExportError without onnxruntime, CheckpointError where the artefact has no ONNX file or is damaged.
    """
    saved = Saved(path)
    if saved.manifest["onnx"] is None:
        raise CheckpointError(f"{saved.path} has no {ONNX}. fix: {install('onnx')}, and export it again")
    session = _session(saved, threads)
    try:
        arrays = saved.arrays()
        recipe = restore_arrays(saved.manifest["recipe"], arrays, saved.where)
        check_sizes(recipe, saved.spec, arrays, saved.where)
        return (
            _ranking_policy(saved, recipe, session)
            if recipe["act"]["kind"] == RANKING
            else _acting_policy(saved, recipe, session)
        )
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{saved.where}: invalid 'onnx': {error!r}. fix: export it again") from error


def _acting_policy(saved: Saved, recipe: Recipe, session: Any) -> Policy:
    act, spec, carry = recipe["act"], saved.spec, recipe["carry"]
    outputs, noise = [one.name for one in session.get_outputs()], noise_of(recipe, spec)
    none = None if noise is None else no_noise(recipe, noise)
    row_axis = 1 if noise is not None and noise.kind == "latents" else 0

    def make(seen: PolicyInputs) -> PolicyOutputs:
        feeds = {name: _columns(name, spec.observation[name], leaf) for name, leaf in seen.leaves.items()}
        noise_of_rows = seen.noise
        if noise_of_rows is None and none is not None:  # the file has no default where the policy samples
            noise_of_rows = np.repeat(none, len(next(iter(feeds.values()))), axis=row_axis)
        optional = {"mask": seen.mask, "carry": seen.carry, "noise": noise_of_rows}
        feeds |= {name: value for name, value in optional.items() if value is not None}
        return _policy_outputs(dict(zip(outputs, _run(session, saved, outputs, feeds), strict=True)), spec)

    check_outputs(make, None, carry, spec, saved.where)
    epsilon = act.get("epsilon") if noise is not None and noise.kind == "normal" else None
    chunk = CHUNK_OF_CANDIDATES if noise is not None and noise.kind == "latents" else CHUNK
    return Policy(saved, make, None, noise=noise, epsilon=epsilon, width=carry, chunk=chunk)


def _run(session: Any, saved: Saved, outputs: list[str], feeds: Mapping[str, NumpyArray]) -> list[NumpyArray]:
    try:
        values: list[NumpyArray] = session.run(outputs, dict(feeds))
        return values
    except Exception as error:  # onnxruntime documents no common base of its errors
        raise CheckpointError(
            f"{saved.path}/{ONNX} differs from its manifest: {error}. fix: export it again"
        ) from error


def _ranking_policy(saved: Saved, recipe: Recipe, session: Any) -> Recommender:
    node, space = recipe["act"], saved.spec.action
    items = space.n if isinstance(space, Catalogue) else 0
    lists = _Lists(saved, session, items, node)
    check_lists(lambda: lists, saved.spec, saved.where)
    return Recommender(saved, lists)


class _Lists:
    """A ranker that uses a file's lists of length `width`; all else is computed by NumPy, from the policy's weights."""

    def __init__(self, saved: Saved, session: Any, items: int, node: Recipe) -> None:
        self._saved, self._session, self.items, self._node = saved, session, items, node
        self._whole: Ranker | None = None
        self.width, self.history, self.features = min(node["width"], items), reach(node), features_of(node)
        self.reads_gaps, self.known_users = reads_gaps(node), known_users(node)
        self._kinds, self.repeat_share = len(node["reader"]["events"]) - 1, node["repeat_share"]

    def whole(self) -> Ranker:
        """Return the policy's ranker by NumPy."""
        if self._whole is None:
            self._whole = check_lists(
                lambda: Ranker(ranking_functions(self._node)), self._saved.spec, self._saved.where
            )
        return self._whole

    def rank(
        self,
        histories: NumpyArray,
        events: NumpyArray,
        k: int,
        allowed: NumpyArray | None = None,
        users: NumpyArray | None = None,
        gaps: NumpyArray | None = None,
        user_index: NumpyArray | None = None,
    ) -> tuple[NumpyArray, NumpyArray]:
        """Return the best `k` items and their scores, [B, k] each; SpecError where a list of the file is shorter."""
        check_histories(histories, events, allowed, self.items, self._kinds)
        if k > self.width:
            raise SpecError(
                f"k = {k}: the ONNX file has lists of {self.width} items. fix: lower k, or use the NumPy backend"
            )
        marks = np.ones((len(histories), self.items + 1), bool) if allowed is None else allowed
        refuse_too_few(marks, k)
        seen, done = (fit_length(part, self.history) for part in (histories, events))
        who = user_array(users, len(histories), self.features)
        later = fit_length(gap_array(gaps, histories), self.history) if self.reads_gaps else None
        places = user_places(user_index, len(histories), self.known_users)
        parts = []
        for start in range(0, len(seen), ROWS):
            rows = slice(start, start + ROWS)
            feeds = {"history": seen[rows], "event": done[rows], "mask": marks[rows, 1:]}
            feeds |= {"user": who[rows]} if self.features else {}
            feeds |= {} if later is None else {"gap": later[rows]}
            feeds |= {"user_id": places[rows]} if self.known_users else {}
            parts.append(_run(self._session, self._saved, ["item", "score"], feeds))
        items, scores = (np.concatenate(column)[:, :k] for column in zip(*parts, strict=True))
        if items.shape != (len(seen), k):
            raise CheckpointError(
                f"{self._saved.path}/{ONNX}: lists of {items.shape[1]} items, expected {self.width}. fix: export"
            )
        return items.astype(np.int32), scores


def _session(saved: Saved, threads: int) -> Any:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ExportError(f"this backend requires onnxruntime ({error}). fix: {install('onnx')}") from error
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = QUIET, threads
    content = saved.read(ONNX)
    try:
        refuse_foreign(content)
    except RefusedModel as error:
        raise CheckpointError(
            f"{saved.path}/{ONNX} holds {error}, which no export of tidelog holds; it was not run. fix: use the NumPy "
            "backend, or export the policy again"
        ) from None
    try:
        with tempfile.TemporaryDirectory() as nothing:  # an empty folder for external data
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", nothing)
            return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime documents no common base of its errors
        raise CheckpointError(f"{saved.path}/{ONNX}: onnxruntime refuses it: {error}. fix: export it again") from error


def _columns(name: str, leaf: Leaf, values: NumpyArray) -> NumpyArray:
    """Return the columns [B, K] of a leaf, NaN where its flags mark a missing value.

    SpecError for an impossible leaf: a flag that is neither 0 nor 1, or is set beside another value than the fill.
    """
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    places = {name: i for i, name in enumerate(leaf.names)}
    columns, fills = values[:, [places[column] for column in column_names(leaf)]].copy(), dict(leaf.fills)
    for k, column in enumerate(column_names(leaf)):
        if f"{column} missing" in places:
            flag = values[:, places[f"{column} missing"]]
            impossible = ((flag != 0) & (flag != 1)) | ((flag == 1) & (columns[:, k] != np.float32(fills[column])))
            if impossible.any():
                row, flagged = int(np.argmax(impossible)), f"{column} missing"
                raise SpecError(
                    f"'{name}': '{flagged}' and '{column}' contradict each other in row {row}. fix: correct the row"
                )
            columns[flag == 1, k] = np.nan
    return columns


def _policy_outputs(outputs: Mapping[str, NumpyArray], spec: Spec) -> PolicyOutputs:
    """Return the file's outputs in units of [-1, 1]."""
    space, mean, std = spec.action, outputs.get("mean"), outputs.get("std")
    action = outputs["action"]
    if isinstance(space, Continuous):
        action = space.to_unit(action)
        mean = None if mean is None else space.to_unit(mean)
        std = None if std is None else std / (space.from_unit(1.0) - space.from_unit(0.0))
    return PolicyOutputs(action, outputs.get("probabilities"), mean, std, outputs.get("next_carry"))
