"""A policy as one ONNX file for any ONNX runtime: raw observations (or histories) in, actions (or lists) out.

Traced from the same recipe that NumPy computes. It includes scaling, fills of missing values and bounds. The batch size
is free. Inputs that most callers omit have a default in the file: `mask` (all actions allowed) and, unless sampling is
the policy's declared way of acting, `noise` (none: the most likely action).

Letters: `B` batch, `K` columns of a leaf or items found, `H` steps of a history, `N` items, `Q` query size, `n`
generated vectors, `F` features of users.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.data.scaling import Scaler
from tidelog.errors import ExportError, install
from tidelog.policies.policy import recipe_of
from tidelog.runtime.artefact_files import Saved
from tidelog.runtime.history_encoders import (
    RANKING,
    features_of,
    has_places,
    item_queries,
    item_scores,
    known_users,
    places,
    reach,
    reads_gaps,
    rows,
    states,
)
from tidelog.runtime.observations import column_names
from tidelog.runtime.policy_heads import KINDS, PolicyInputs, PolicyOutputs
from tidelog.runtime.recipe import no_noise, noise_of
from tidelog.runtime.way_of_acting import Acting
from tidelog.types import Catalogue, Codes, Continuous, Discrete, Histories, Image, Leaf, Spec, Vector

OPSET = 21


def onnx_file(policy: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the content of an ONNX file, and the manifest entry of its inputs and outputs.

    Raises ExportError where the extra is not installed or does not know this JAX, or a part of the policy has no
    recipe.
    """
    recipe, spec = recipe_of(policy), policy.spec
    to_onnx, onnx = _tools()
    lists = recipe["act"]["kind"] == RANKING
    inputs, program, outputs = (
        listing_graph(recipe, spec) if lists else acting_graph(recipe, spec, policy.scaler, policy.acting)
    )
    shapes = [jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.kind)) for one in inputs]  # type: ignore[no-untyped-call]
    names = [one.name for one in inputs]
    with _silent_inner_shapes():
        try:
            model = to_onnx(
                program,
                inputs=shapes,
                model_name="tidelog policy",
                opset=OPSET,
                input_names=names,
                output_names=outputs,
            )
        except AttributeError as error:  # jax2onnx reads JAX's own modules, which change between versions
            frames = traceback.extract_tb(error.__traceback__)
            if "jax2onnx" not in Path(frames[-1].filename).parts:
                raise
            raise ExportError(
                f"jax2onnx {metadata.version('jax2onnx')} cannot trace a program of jax {jax.__version__} ({error}). "
                f"fix: {install('onnx')}, which chooses versions that fit, or leave ONNX out (onnx=False, --no-onnx)"
            ) from error
    entries = [
        {"name": one.name, "shape": list(one.shape), "type": one.kind, "optional": one.default is not None}
        for one in inputs
    ]
    facts = {"opset": OPSET, "inputs": entries, "outputs": outputs}
    _give_defaults(onnx, model, inputs)
    onnx.helper.set_model_props(
        model,
        {"tidelog": json.dumps({**facts, "acting": policy.acting, "verdict": policy.verdict, "spec": spec.to_json()})},
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString()), facts


def onnx_facts(path: Path) -> dict[str, Any] | None:
    """Return the inputs and outputs of an exported policy's ONNX file; None where a folder or .zip has no such file."""
    if path.suffix != ".onnx":
        return cast("dict[str, Any] | None", Saved(path).manifest["onnx"])
    properties = {one.key: one.value for one in _tools()[1].load(str(path)).metadata_props}
    return cast("dict[str, Any]", json.loads(properties["tidelog"]))


@contextmanager
def _silent_inner_shapes() -> Iterator[None]:
    """Silence onnx_ir about inner values whose types jax2onnx leaves open; they are removed in any case."""
    logger = logging.getLogger("onnx_ir.serde")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _tools() -> tuple[Callable[..., Any], Any]:
    try:
        return importlib.import_module("jax2onnx").to_onnx, importlib.import_module("onnx")
    except ImportError as error:
        raise ExportError(f"ONNX export requires an extra ({error}). fix: {install('onnx')}") from error


def _give_defaults(onnx: Any, model: Any, inputs: Sequence[Input]) -> None:
    """Add defaults of one row, valid for all rows of a batch."""
    declared = {value.name: value for value in model.graph.input}
    for one in inputs:
        if one.default is not None:
            model.graph.initializer.append(onnx.numpy_helper.from_array(one.default, one.name))
            batch = declared[one.name].type.tensor_type.shape.dim[one.shape.index("B")]
            batch.dim_param = f"B or 1 ({one.name})"
    del model.graph.value_info[:]  # inner shapes are traced for defaults of B rows; runtimes infer them again


class Input(NamedTuple):
    """One input of the file: its name, its shape with "B" for the batch, its type, and its default or None."""

    name: str
    shape: tuple[str | int, ...]
    kind: str
    default: np.ndarray[Any, Any] | None = None


class OnnxGraph(NamedTuple):
    """The traced function, from the arrays of the inputs to the arrays of the output names."""

    inputs: list[Input]
    program: Callable[..., tuple[Any, ...]]
    outputs: list[str]


def _acting_inputs(recipe: Mapping[str, Any], spec: Spec, acting: Acting | None) -> list[Input]:
    inputs = [_leaf_input(name, leaf) for name, leaf in sorted(spec.observation.items())]
    if isinstance(spec.action, Discrete):
        inputs.append(Input("mask", ("B", spec.action.n), "bool", np.ones((1, spec.action.n), bool)))
    if recipe["carry"]:
        inputs.append(Input("carry", ("B", recipe["carry"]), "float32"))
    noise = noise_of(recipe, spec)
    if noise is not None:
        latents = noise.kind == "latents"
        shape: tuple[str | int, ...] = (noise.shape[0], "B", noise.shape[1]) if latents else ("B", *noise.shape)
        inputs.append(Input("noise", shape, "float32", None if acting == "sample" else no_noise(recipe, noise)))
    return inputs


def _leaf_input(name: str, leaf: Leaf) -> Input:
    if isinstance(leaf, Image):
        return Input(name, ("B", leaf.height, leaf.width, leaf.channels), "uint8")
    if isinstance(leaf, Codes):
        return Input(name, ("B", len(leaf.sizes)), "int32")
    return Input(name, ("B", len(column_names(leaf)) or leaf.size), "float32")


def acting_graph(recipe: Mapping[str, Any], spec: Spec, scaler: Scaler, acting: Acting | None = None) -> OnnxGraph:
    """Return the graph from raw observations to actions in their own units."""
    inputs = _acting_inputs(recipe, spec, acting)
    gaussian = isinstance(spec.action, Continuous) and recipe["act"].get("head", {}).get("kind") == "gaussian"
    outputs = ["action", *(["probabilities"] if isinstance(spec.action, Discrete) else [])]
    outputs += [*(["mean", "std"] if gaussian else []), *(["next_carry"] if recipe["carry"] else [])]

    def program(*arrays: jax.Array) -> tuple[Any, ...]:
        arrays_by_name = dict(zip([one.name for one in inputs], arrays, strict=True))
        filled: dict[str, Any] = {n: _fill_missing(leaf, arrays_by_name[n]) for n, leaf in spec.observation.items()}
        leaves = scaler.observation(filled)
        seen = PolicyInputs(
            leaves, arrays_by_name.get("mask"), arrays_by_name.get("carry"), arrays_by_name.get("noise")
        )
        result = _own_units(KINDS[recipe["act"]["kind"]](jnp, recipe["act"], seen), spec)
        by_name = {**result._asdict(), "next_carry": result.carry}
        return tuple(by_name[name] for name in outputs)

    return OnnxGraph(inputs, program, outputs)


def _fill_missing(leaf: Leaf, values: jax.Array) -> jax.Array:
    """Return a leaf's features from its columns [B, K]: NaN replaced by the log's rule, and flagged."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    fills, names = dict(leaf.fills), column_names(leaf)
    missing = jnp.isnan(values)
    filled = jnp.where(missing, jnp.asarray([fills.get(name, np.nan) for name in names], jnp.float32), values)
    columns = {name: filled[:, i] for i, name in enumerate(names)}
    columns |= {f"{name} missing": missing[:, i].astype(jnp.float32) for i, name in enumerate(names)}
    return jnp.stack([columns[name] for name in leaf.names], axis=-1)


def _own_units(result: PolicyOutputs, spec: Spec) -> PolicyOutputs:
    space = spec.action
    if not isinstance(space, Continuous):
        return result._replace(action=result.action.astype(jnp.int32))
    half = space.from_unit(1.0) - space.from_unit(0.0)
    result = result._replace(action=space.executed(result.action))
    return result if result.mean is None else result._replace(mean=space.from_unit(result.mean), std=result.std * half)


def listing_graph(recipe: Mapping[str, Any], spec: Spec) -> OnnxGraph:
    """Return the graph from `history` and `event` [B, H] and `mask` [B, N] to `item` and `score` [B, width].

    With user features, `user` [B, F] is also an input, zeros by default; with time gaps `gap` [B, H], the groups of
    `gap_groups`; with a user embedding `user_id` [B], the places of users in the spec counted from 1, 0 by default.
    Items are counted from 1; where fewer items are allowed than the list's length, the list ends in 0 with a score of
    -inf.
    """
    node, space = recipe["act"], spec.action
    count = space.n if isinstance(space, Catalogue) else 0
    width = min(node["width"], count)
    table = jnp.asarray(np.asarray(rows(np, _on_host(node["catalogue"])), np.float32))  # [N + 1, Q]

    def program(history: jax.Array, event: jax.Array, mask: jax.Array, *more: jax.Array) -> tuple[jax.Array, jax.Array]:
        named = dict(zip([one.name for one in inputs[3:]], more, strict=True))
        who = named.get("user_id")
        who = None if who is None else who + 0 * history[:, 0]  # the default of one row becomes one for each history
        seen = Histories(history, event, named.get("user"), named.get("gap"), who)
        state = states(jnp, node, seen, _scan_loop)
        queries = item_queries(jnp, node, state)
        every = [queries[:, i] @ table[1:].T for i in range(queries.shape[1])]
        if has_places(node):
            every[0] = _with_places(every[0], *places(jnp, node, state, Histories(history, event, None)))
        scores = [jnp.where(mask, one, -math.inf) for one in every]
        found, ideas = _search(scores, width)
        logits = jnp.take_along_axis(every[0], found - 1, axis=1)
        valid = (jnp.take_along_axis(scores[0], found - 1, axis=1) > -math.inf) & ~_repeated(found)
        logits = jnp.where(valid, logits, -math.inf)
        likelihood, rating, first = item_scores(jnp, node, state, found, logits, ideas)
        return _order_lists(found, likelihood + node["q_weight"] * rating, first, valid, width)

    steps = ("B", reach(node))
    inputs = [Input("history", steps, "int32"), Input("event", steps, "int32")]
    inputs.append(Input("mask", ("B", count), "bool", np.ones((1, count), bool)))
    features = features_of(node)
    if features:
        inputs.append(Input("user", ("B", features), "float32", np.zeros((1, features), np.float32)))
    if reads_gaps(node):
        inputs.append(Input("gap", steps, "int32"))
    if known_users(node):
        inputs.append(Input("user_id", ("B",), "int32", np.zeros(1, np.int32)))
    return OnnxGraph(inputs, program, ["item", "score"])


def _with_places(logits: jax.Array, items: jax.Array, scores: jax.Array) -> jax.Array:
    """Return the logits [B, N] of items over all their places: in the catalogue, and beside it [B, P]."""
    top = jnp.maximum(jnp.max(logits, axis=1), jnp.max(scores, axis=1))[:, None]
    weights = jnp.where(items > 0, jnp.exp(scores - top), 0.0)

    def add(sums: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        item, weight = now
        return sums + jnp.where(jnp.arange(1, logits.shape[1] + 1) == item[:, None], weight[:, None], 0.0), None

    sums, _ = jax.lax.scan(add, jnp.zeros_like(logits), (items.T, weights.T))
    repeated = top + jnp.log(jnp.maximum(sums, 1e-37))
    high, low = jnp.maximum(logits, repeated), jnp.minimum(logits, repeated)
    both = high + jnp.log(1.0 + jnp.exp(low - high))
    return jnp.where(sums > 0.0, both, logits)


def _scan_loop(step: Any, carry: jax.Array, inputs: tuple[jax.Array, ...]) -> jax.Array:
    """Scan the steps: traced once for any number of steps."""
    last: jax.Array = jax.lax.scan(lambda c, now: (step(c, *now), None), carry, inputs)[0]
    return last


def _on_host(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {name: _on_host(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_on_host(item) for item in node]
    return np.asarray(node) if isinstance(node, jax.Array) else node


def _search(scores: list[jax.Array], width: int) -> tuple[jax.Array, jax.Array]:
    """Return items [B, K] of the best scores [B, N] by each query, generated ones first; and which came from one.

    Without generated vectors all are marked. A mask of one row is broadcast to B rows in the scores.
    """
    likely, *others = scores
    found = jax.lax.top_k(likely, width)[1] + 1
    if not others:
        return found, found > 0
    near = max(1, -(-width // len(others)))
    generated = [jax.lax.top_k(score, near)[1] + 1 for score in others]
    whole = jnp.concatenate([*generated, found], axis=1)
    marks = jnp.asarray(np.arange(len(others) * near + width) < len(others) * near)
    return whole, (whole > 0) & marks


def _repeated(found: jax.Array) -> jax.Array:
    """[B, K] bool: items that are also further left in their row."""
    width = found.shape[1]
    left = jnp.asarray(np.tril(np.ones((width, width), bool), -1))
    return jnp.any((found[:, :, None] == found[:, None, :]) & left, axis=-1)


def _order_lists(
    found: jax.Array, score: jax.Array, first: jax.Array, valid: jax.Array, width: int
) -> tuple[jax.Array, jax.Array]:
    """Return supported items by score, then the others, with scores lowered below."""
    least = jnp.min(jnp.where(first, score, math.inf), axis=1, keepdims=True)
    rest = jnp.where(first | ~valid, -math.inf, score)
    gap = jnp.max(rest, axis=1, keepdims=True) - least
    below = score - jnp.where(gap > 0, jnp.where(gap < math.inf, gap, 0.0), 0.0)
    lowered = jnp.where(first, score, jnp.minimum(below, least))  # rounding must not lift a score above
    key = jnp.where(first, lowered, lowered - 1.0)
    place = jax.lax.top_k(jnp.where(valid, key, -math.inf), width)[1]
    chosen = jnp.take_along_axis(valid, place, axis=1)
    items = jnp.where(chosen, jnp.take_along_axis(found, place, axis=1), 0)
    return items.astype(jnp.int32), jnp.where(chosen, jnp.take_along_axis(lowered, place, axis=1), -math.inf)
