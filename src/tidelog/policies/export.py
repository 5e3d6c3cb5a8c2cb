"""Export of a policy: the ONNX file, the check that all runtimes agree, the folder."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import math
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from tidelog._files import write_file
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.errors import ExportError, SpecError, install
from tidelog.policies.policy import Policy, artefact_contents, load_policy, recipe_of
from tidelog.recommend.interactions import Interactions
from tidelog.runtime.artefact import AGAIN, ONNX, SavedPolicy, check_target, write
from tidelog.runtime.load import load_saved
from tidelog.runtime.networks import CANDIDATES, KINDS, PolicyInputs, PolicyOutputs, no_noise, noise_of
from tidelog.runtime.observations import column_names, fill_features
from tidelog.runtime.policy import as_rows
from tidelog.runtime.ranking import (
    RANKING,
    features_of,
    fit_length,
    has_places,
    item_queries,
    item_scores,
    known_users,
    places,
    reach,
    rows,
    states,
)
from tidelog.runtime.recommender import Vocabulary
from tidelog.runtime.way_of_acting import Acting
from tidelog.types import (
    Catalogue,
    Codes,
    Continuous,
    Discrete,
    HistoryArrays,
    Hybrid,
    Image,
    Leaf,
    Spec,
    Vector,
    flat_leaves,
)

# A policy as one ONNX file for any ONNX runtime: raw observations (or histories) in, actions (or lists) out.
#
# Traced from the same recipe that NumPy computes. It includes scaling, fills of missing values and bounds. The batch
# size is free. Inputs that most callers omit have a default in the file: `mask` (all actions allowed) and, unless
# sampling is the policy's declared way of acting, `noise` (none: the most likely action).
#
# Letters: `B` batch, `K` columns of a leaf or items found, `H` steps of a history, `N` items, `Q` query size, `n`
# generated vectors, `F` features of users.

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
                f"jax2onnx {metadata.version('jax2onnx')} cannot trace a program of jax {jax.__version__} ({error})",
                fix=(f"{install('onnx')}, which chooses versions that fit, or leave ONNX out (onnx=False, --no-onnx)"),
            ) from error
    entries = [
        {"name": one.name, "shape": list(one.shape), "type": one.kind, "optional": one.default is not None}
        | ({"content": one.content} if one.content else {})
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
        return cast("dict[str, Any] | None", SavedPolicy(path).manifest["onnx"])
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
        raise ExportError(f"ONNX export requires an extra ({error})", fix=install("onnx")) from error


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
    content: str = ""  # of noise: what its numbers are


class OnnxGraph(NamedTuple):
    """The traced function, from the arrays of the inputs to the arrays of the output names."""

    inputs: list[Input]
    program: Callable[..., tuple[Any, ...]]
    outputs: list[str]


def _acting_inputs(recipe: Mapping[str, Any], spec: Spec, acting: Acting | None) -> list[Input]:
    inputs = []
    for name, leaf in sorted(spec.observation.items()):
        if isinstance(leaf, Image):
            inputs.append(Input(name, ("B", leaf.height, leaf.width, leaf.channels), "uint8"))
        elif isinstance(leaf, Codes):
            inputs.append(Input(name, ("B", len(leaf.sizes)), "int32"))
        else:
            inputs.append(Input(name, ("B", len(column_names(leaf)) or leaf.size), "float32"))
    if isinstance(spec.action, Discrete):
        inputs.append(Input("mask", ("B", spec.action.n), "bool", np.ones((1, spec.action.n), bool)))
    if recipe["carry"]:
        inputs.append(Input("carry", ("B", recipe["carry"]), "float32"))
    noise = noise_of(recipe, spec)
    if noise is not None:
        latents = noise.kind == "latents"
        shape: tuple[str | int, ...] = (noise.shape[0], "B", noise.shape[1]) if latents else ("B", *noise.shape)
        usual = None if acting == "sample" else no_noise(recipe, noise)
        inputs.append(Input("noise", shape, "float32", usual, noise.words))
    return inputs


ACTION = "action"


def _action_outputs(spec: Spec) -> list[str]:
    """The outputs of a file that hold the action: `action`, or `action/<part>` for each of its parts."""
    return [f"{ACTION}/{name}" for name, _ in spec.action.parts] if isinstance(spec.action, Hybrid) else [ACTION]


def acting_graph(recipe: Mapping[str, Any], spec: Spec, scaler: Scaler, acting: Acting | None = None) -> OnnxGraph:
    """Return the graph from raw observations to actions in their own units."""
    inputs = _acting_inputs(recipe, spec, acting)
    gaussian = isinstance(spec.action, Continuous) and recipe["act"].get("head", {}).get("kind") == "gaussian"
    outputs = [*_action_outputs(spec), *(["probabilities"] if isinstance(spec.action, Discrete) else [])]
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
        if isinstance(spec.action, Hybrid):
            parts = flat_leaves(spec.action.unpack(result.action))
            by_name |= {f"{ACTION}/{name}": part for name, part in parts}
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
    if isinstance(space, Hybrid):
        return result._replace(action=space.executed(result.action))
    if not isinstance(space, Continuous):
        return result._replace(action=result.action.astype(jnp.int32))
    half = space.from_unit(1.0) - space.from_unit(0.0)
    result = result._replace(action=space.executed(result.action))
    return result if result.mean is None else result._replace(mean=space.from_unit(result.mean), std=result.std * half)


def listing_graph(recipe: Mapping[str, Any], spec: Spec) -> OnnxGraph:
    """Return the graph from `history` and `event` [B, H] and `mask` [B, N] to `item` and `score` [B, width].

    With user features, `user` [B, F] is also an input, zeros by default; with a user embedding `user_id` [B], the
    places of users in the spec counted from 1, 0 by default. Items are counted from 1; where fewer items are allowed
    than the list's length, the list ends in 0 with a score of -inf.
    """
    node, space = recipe["act"], spec.action
    count = space.n if isinstance(space, Catalogue) else 0
    width = min(node["width"], count)
    table = jnp.asarray(np.asarray(rows(np, _on_host(node["catalogue"])), np.float32))  # [N + 1, Q]

    def program(history: jax.Array, event: jax.Array, mask: jax.Array, *more: jax.Array) -> tuple[jax.Array, jax.Array]:
        named = dict(zip([one.name for one in inputs[3:]], more, strict=True))
        who = named.get("user_id")
        who = None if who is None else who + 0 * history[:, 0]  # the default of one row becomes one for each history
        seen = HistoryArrays(history, event, named.get("user"), who)
        # scanned, so that a step is traced once for any number of steps
        state = states(jnp, node, seen, lambda step, c, xs: jax.lax.scan(lambda c, x: (step(c, *x), None), c, xs)[0])
        queries = item_queries(jnp, node, state)
        every = [queries[:, i] @ table[1:].T for i in range(queries.shape[1])]
        if has_places(node):
            every[0] = _with_places(every[0], *places(jnp, node, state, seen))
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
    position = jax.lax.top_k(jnp.where(valid, key, -math.inf), width)[1]
    chosen = jnp.take_along_axis(valid, position, axis=1)
    items = jnp.where(chosen, jnp.take_along_axis(found, position, axis=1), 0)
    return items.astype(jnp.int32), jnp.where(chosen, jnp.take_along_axis(lowered, position, axis=1), -math.inf)


# The parity check: JAX, NumPy and ONNX give equal answers on random and on logged observations.
#
# Their rounding differs: continuous actions differ slightly, and where two actions are equal up to the last bits
# another one may be chosen. The bounds below limit both differences; they are written into the artefact, and `tidelog
# export --check` uses the written ones. Letters: `B` observations.

ROWS = 256  # number of random observations, and largest number of logged ones
STEPS = 3  # consecutive steps of a recurrent policy
LENGTH = 10  # largest length of lists
READ = 50  # largest length of random histories
QUIET = 3  # onnxruntime warns about inputs with defaults; they are intended
TENSOR_TYPES = {
    "tensor(float)": np.float32,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
Leaves: TypeAlias = dict[str, np.ndarray[Any, Any]]
Answer: TypeAlias = Callable[[Leaves, Any], dict[str, np.ndarray[Any, Any]]]  # observations and masks to `answers_of`


@dataclass(frozen=True)
class Bound:
    """The allowed differences: `difference` of an action in shares of half its range, of a probability, of a score;
    `apart`: the share of observations with another action or list, where two are equal up to rounding.
    """

    difference: float
    apart: float


BOUNDS: Mapping[str, Bound] = {
    "Continuous": Bound(difference=1e-4, apart=0.0),
    "Continuous, chosen among candidates": Bound(difference=1e-4, apart=0.01),
    "Discrete": Bound(difference=1e-4, apart=0.005),
    "MultiDiscrete": Bound(difference=0.0, apart=0.01),
    "Hybrid": Bound(difference=1e-4, apart=0.01),
    "Hybrid, chosen among candidates": Bound(difference=1e-4, apart=0.01),
    "Catalogue": Bound(difference=1e-3, apart=0.02),
}


def bound_of(policy: Any, manifest: Mapping[str, Any]) -> Bound:
    """Return the bound in the manifest, or the default for the policy's kind of action."""
    if manifest["parity"] is not None:
        try:
            stated = Bound(**manifest["parity"]["bound"])
            return Bound(float(stated.difference), float(stated.apart))
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(f"the artefact's parity record is invalid: {error!r}", fix=AGAIN) from error
    kind, recipe = type(policy.spec.action).__name__, manifest["recipe"]
    candidates = recipe is not None and recipe["act"]["kind"] in CANDIDATES
    return BOUNDS[f"{kind}, chosen among candidates" if candidates else kind]


def compare_runtimes(
    policy: Any, others: Mapping[str, Answer], bound: Bound, logged: Leaves | None, masks: Any
) -> dict[str, Any]:
    """Return the parity record of the policy's other runtimes: their difference from JAX, and whether it holds."""
    sets = {"random": (random_observations(policy), random_masks(policy))}
    if logged is not None:
        sets["logged"] = (logged, masks)
    with jax.default_matmul_precision("highest"):
        expected = {name: answers_of(policy, *inputs) for name, inputs in sets.items()}
    record: dict[str, Any] = {
        "bound": asdict(bound),
        "rows": {name: _count(inputs[0]) for name, inputs in sets.items()},
    }
    for reader, answer in others.items():
        distances = {name: _distance(policy, expected[name], answer(*inputs)) for name, inputs in sets.items()}
        holds = (one["difference"] <= bound.difference and one["apart"] <= bound.apart for one in distances.values())
        record[reader] = {**distances, "holds": all(holds)}
    return record


def check_parity(record: Mapping[str, Any], where: str) -> None:
    """Raise ExportError where a runtime differs from JAX by more than the bound."""
    for reader in (name for name in ("numpy", "onnx") if name in record):
        if not record[reader]["holds"]:
            differences = {name: facts for name, facts in record[reader].items() if name != "holds"}
            raise ExportError(
                f"{where}: {reader} differs from JAX by {differences}, allowed {record['bound']}", fix="report a bug"
            )


def random_observations(policy: Any, rows: int = ROWS, seed: int = 0) -> Leaves:
    """Return random observations of a spec, with the log's mean and scale where known; some values are missing."""
    generator = np.random.default_rng(seed)
    if isinstance(policy.spec.action, Catalogue):
        return _random_histories(generator, policy.spec, rows)
    return {name: _random(generator, name, leaf, policy.scaler, rows) for name, leaf in policy.spec.observation.items()}


def _random_histories(generator: np.random.Generator, spec: Spec, rows: int) -> Leaves:
    """Return items and kinds of events, left-padded with 0, of every length from 0 on, and what is known of users."""
    leaf: Any = spec.observation["history"]
    read = generator.integers(0, READ + 1, rows)[:, None] >= np.arange(READ, 0, -1)
    item = generator.integers(1, spec.action.n + 1, (rows, READ))  # type: ignore[union-attr]
    event = generator.integers(1, len(leaf.events) + 1, (rows, READ))
    who: Any = spec.observation.get("user")
    user = generator.standard_normal((rows, 0 if who is None else len(who.columns)), np.float32)
    items, events = (np.where(read, values, 0).astype(np.int32) for values in (item, event))
    ids: Any = spec.observation.get("user_id")
    who = generator.integers(0, 1 + (0 if ids is None else len(ids.ids)), rows)
    return _leaves(HistoryArrays(items, events, user, who))


def _leaves(histories: HistoryArrays) -> Leaves:
    """Return the arrays of histories by name."""
    return {name: values for name, values in histories._asdict().items() if name != "names"}


def _random(generator: np.random.Generator, name: str, leaf: Leaf, scaler: Any, rows: int) -> np.ndarray[Any, Any]:
    if isinstance(leaf, Image):
        return generator.integers(0, 256, (rows, leaf.height, leaf.width, leaf.channels)).astype(np.uint8)
    if isinstance(leaf, Codes):
        return np.stack([generator.integers(0, size, rows) for size in leaf.sizes], axis=-1).astype(np.int32)
    mean, std = scaler.mean.get(name, np.zeros(leaf.size)), scaler.std.get(name, np.ones(leaf.size))
    drawn = mean + 2.0 * std * generator.standard_normal((rows, leaf.size))
    values: np.ndarray[Any, Any] = drawn.astype(np.float32)
    if not leaf.fills:
        return values
    fills, columns = dict(leaf.fills), []
    for column in column_names(leaf):
        missing = generator.random(rows) < (0.2 if column in fills else 0.0)
        columns.append(np.where(missing, np.nan, values[:, leaf.names.index(column)]).astype(np.float32))
    return fill_features(leaf, columns)


def random_masks(policy: Any, rows: int = ROWS, seed: int = 1) -> Any:
    """Return masks with at least one allowed action (items: a list's length), or None where masks do not apply."""
    space, generator = policy.spec.action, np.random.default_rng(seed)
    if isinstance(space, Catalogue):
        chances = generator.random((rows, space.n))
        least = np.partition(chances, min(LENGTH, space.n) - 1, axis=1)[:, min(LENGTH, space.n) - 1, None]
        return np.concatenate([np.zeros((rows, 1), bool), (chances < 0.7) | (chances <= least)], axis=1)
    if not isinstance(space, Discrete):
        return None
    allowed = generator.random((rows, space.n)) < 0.5
    allowed[np.arange(rows), generator.integers(0, space.n, rows)] = True
    return allowed


def _count(leaves: Leaves) -> int:
    return len(next(iter(leaves.values())))


def answers_of(reader: Any, leaves: Leaves, mask: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return actions of consecutive steps [steps, B, ...] and probabilities [B, A] of discrete ones; lists [B, k]."""
    if isinstance(reader.spec.action, Catalogue):
        ranker = reader.ranker()
        k = min(LENGTH, ranker.width, ranker.items)
        items, scores = ranker.rank(HistoryArrays(**leaves, names=Vocabulary(reader.spec).names), k, mask)
        return {"action": items[None], "score": scores}
    state = reader.initial_state(_count(leaves)) if reader.is_recurrent else None
    steps, space = STEPS if reader.is_recurrent else 1, reader.spec.action
    actions = [as_rows(space, reader.act(leaves, None, mask, state)[0]) for _ in range(steps)]
    answers = {"action": np.stack(actions)}
    if isinstance(reader.spec.action, Discrete):
        answers["probabilities"] = reader.probabilities(leaves, mask, state)
    return answers


def onnx_answers(policy: Any, content: bytes, where: str) -> Answer:
    """Return what answers as `answers_of` does with the ONNX file of a policy, computed by onnxruntime.

    Raises ExportError without onnxruntime, or where it cannot run the file.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ExportError(f"checking an ONNX file needs onnxruntime ({error})", fix=install("onnx")) from error
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = QUIET, 1
    session = _run(where, lambda: runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))
    inputs = {one.name: one for one in (*session.get_inputs(), *session.get_overridable_initializers())}
    required, outputs = {one.name for one in session.get_inputs()}, [one.name for one in session.get_outputs()]

    def run(feeds: Leaves) -> Leaves:
        feeds = {name: np.asarray(values, TENSOR_TYPES[inputs[name].type]) for name, values in feeds.items()}
        return dict(zip(outputs, session.run(outputs, feeds), strict=True))

    def lists(leaves: Leaves, mask: Any) -> Leaves:
        ranker, steps = policy.ranker(), inputs["history"].shape[1]
        feeds = {"history": fit_length(leaves["items"], steps), "event": fit_length(leaves["events"], steps)}
        known = {"user": leaves["users"], "user_id": leaves["user_index"]}
        feeds |= {name: values for name, values in known.items() if name in inputs}
        found = run(feeds if mask is None else feeds | {"mask": mask[:, 1:]})
        k = min(LENGTH, ranker.width, ranker.items)
        return {"action": found["item"][None, :, :k], "score": found["score"][:, :k]}

    def actions(leaves: Leaves, mask: Any) -> Leaves:
        recipe, spec, rows = recipe_of(policy), policy.spec, _count(leaves)
        feeds = {name: _raw_columns(leaf, leaves[name]) for name, leaf in spec.observation.items()}
        feeds |= {} if mask is None else {"mask": mask}
        feeds |= {"carry": np.zeros((rows, recipe["carry"]), np.float32)} if "carry" in inputs else {}
        noise = noise_of(recipe, spec)
        if "noise" in required and noise is not None:  # the file has no default where the policy samples
            feeds["noise"] = np.repeat(no_noise(recipe, noise), rows, axis=1 if noise.kind == "latents" else 0)
        acted = []
        for _ in range(STEPS if policy.is_recurrent else 1):
            found = run(feeds)
            action: Any = {name.removeprefix(f"{ACTION}/"): found[name] for name in _action_outputs(spec)}
            acted.append(as_rows(spec.action, action if isinstance(spec.action, Hybrid) else action[ACTION]))
            feeds |= {"carry": found["next_carry"]} if policy.is_recurrent else {}
        answers = {"action": np.stack(acted)}
        return answers | ({"probabilities": run(feeds)["probabilities"]} if isinstance(spec.action, Discrete) else {})

    answer = lists if isinstance(policy.spec.action, Catalogue) else actions
    return lambda leaves, mask: _run(where, lambda: answer(leaves, mask))


def _run(where: str, call: Callable[[], Any]) -> Any:
    """Return what a call that uses onnxruntime returns; ExportError where it fails."""
    try:
        return call()
    except Exception as error:  # onnxruntime documents no common base of its errors
        raise ExportError(f"{where}: onnxruntime cannot run it: {error!r}", fix=AGAIN) from error


def _raw_columns(leaf: Leaf, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the columns [B, K] of a leaf as the file reads them: NaN where a flag marks a missing value."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    places = {name: position for position, name in enumerate(leaf.names)}
    columns = values[:, [places[name] for name in column_names(leaf)]].copy()
    for column, name in enumerate(column_names(leaf)):
        if f"{name} missing" in places:
            columns[values[:, places[f"{name} missing"]] == 1, column] = np.nan
    return columns


def _distance(policy: Any, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest difference where the actions are equal, and the share of observations with different ones."""
    space, one, two = policy.spec.action, expected["action"], actual["action"]
    if isinstance(space, Continuous | Hybrid):
        away = np.abs(space.to_unit(one) - space.to_unit(two)).max(axis=-1)
        apart = away > BOUNDS["Continuous"].difference
        return {"difference": float(away[~apart].max(initial=0.0)), "apart": float(apart.mean())}
    apart = one != two if isinstance(space, Discrete) else (one != two).any(axis=-1)
    same = ~apart.any(axis=0)
    if "score" in expected:
        away = np.abs(expected["score"] - actual["score"])[same]
        return {"difference": float(away.max(initial=0.0)), "apart": float(apart.mean())}
    chances = np.abs(expected.get("probabilities", 0.0) - actual.get("probabilities", 0.0))
    difference = chances[same].max(initial=0.0) if "probabilities" in expected else 0.0
    return {"difference": float(difference), "apart": float(apart.mean())}


# Export of an artefact: written to a temporary path, read by every runtime, kept only where all agree.

Tell = Callable[[str, float], None]
TRACING = "writing the ONNX file (the policy is traced)"
COMPARING = "comparing JAX, NumPy and ONNX on observations"


def silent(doing: str, share: float) -> None:
    """Show no progress."""


class LoggedObservations(NamedTuple):
    """Observations of a log to test a policy on, and their action masks where the log has them."""

    leaves: dict[str, Any]
    mask: Any = None

    @classmethod
    def of(cls, log: Log | Interactions, policy: Policy) -> LoggedObservations:
        """Return evenly spaced decisions (or histories) of a log; SpecError for other observations."""
        steps = np.linspace(0, log.steps - 1, min(ROWS, log.steps)).astype(int)
        if isinstance(log, Interactions):
            if policy.algorithm.spec_of(log).to_json() != policy.spec.to_json():
                raise SpecError(
                    "these interactions have other items, events or users than the policy's", fix="pass its own"
                )
            return cls(_leaves(log.histories(steps, READ)))
        if dict(log.spec.observation) != dict(policy.spec.observation):
            raise SpecError("this log's observations differ from the policy's", fix="pass the policy's own log")
        rows = log.position[steps]
        mask = None if log.action_mask is None else np.asarray(log.action_mask[rows])
        return cls({name: np.asarray(leaf[rows]) for name, leaf in log.observation.items()}, mask)


def has_onnx() -> bool:
    """Return whether the extra for writing and checking ONNX is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jax2onnx", "onnx", "onnxruntime"))


def export(
    policy: Policy,
    path: str | Path,
    *,
    onnx: bool = True,
    logged: LoggedObservations | None = None,
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
    files, manifest = _compared(policy, onnx, path, logged, progress)
    manifest["metrics"] = None if metrics is None else dict(metrics)
    manifest |= {} if provenance is None else {"provenance": dict(provenance)}
    progress("writing", 0.95)
    write(path, files, manifest, key)
    record: dict[str, Any] = manifest["parity"]
    return record


def export_onnx(
    policy: Policy,
    path: Path,
    logged: LoggedObservations | None = None,
    *,
    overwrite: bool = False,
    progress: Tell = silent,
) -> dict[str, Any]:
    """Write a policy as one ONNX file, compared with JAX by onnxruntime; return the parity record."""
    if path.exists() and not overwrite:
        raise ExportError(f"{path} exists, nothing was written", fix="choose another path")
    files, manifest = _compared(policy, True, path, logged, progress)
    write_file(path, files[ONNX], ExportError, parents=True)
    record: dict[str, Any] = manifest["parity"]
    return record


def recheck(path: Path, logged: LoggedObservations | None = None) -> dict[str, Any]:
    """Compare the runtimes of an artefact again; ExportError where one exceeds the artefact's stated bound.

    onnxruntime runs the artefact's ONNX file, whatever it holds: only for artefacts of those whom you trust.
    """
    policy, saved = load_policy(path), SavedPolicy(path)
    if saved.manifest["recipe"] is None:
        raise ExportError(
            f"{path} contains a custom module; only the JAX runtime can run it", fix="use the networks of tidelog"
        )
    return _compare_saved(policy, saved, str(path), logged)


def _compared(
    policy: Policy, onnx: bool, path: Path, logged: LoggedObservations | None, progress: Tell
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files and the manifest of a policy, with its ONNX file, and with the parity record of a temporary copy."""
    files, manifest = artefact_contents(policy)
    if onnx and (manifest["recipe"] is not None or path.suffix == ".onnx"):
        progress(TRACING, 0.0)
        files[ONNX], manifest["onnx"] = onnx_file(policy)
    progress(COMPARING, 0.5)
    try:
        folder = tempfile.TemporaryDirectory()
    except OSError as error:
        raise ExportError(
            f"no temporary folder can be written: {error.strerror}", fix="free space, or set TMPDIR to another folder"
        ) from error
    with folder:
        temporary = Path(folder.name) / "policy"
        write(temporary, files, manifest)
        return files, manifest | {"parity": _compare_saved(policy, SavedPolicy(temporary), str(path), logged)}


def _compare_saved(policy: Policy, saved: SavedPolicy, where: str, logged: LoggedObservations | None) -> dict[str, Any]:
    """The parity record of a saved policy; ExportError where a runtime differs by more than the bound."""
    runtimes: dict[str, Answer] = {}  # the others that can run it
    if saved.manifest["recipe"] is not None:
        runtimes["numpy"] = partial(answers_of, load_saved(saved))
    if saved.manifest["onnx"] is not None:
        runtimes["onnx"] = onnx_answers(policy, saved.read(ONNX), f"{saved.path}/{ONNX}")
    record = compare_runtimes(policy, runtimes, bound_of(policy, saved.manifest), *(logged or (None, None)))
    check_parity(record, where)
    return record
