"""The parity check: JAX, NumPy and ONNX give equal answers on random and on logged observations.

Their rounding differs: continuous actions differ slightly, and where two actions are equal up to the last bits another
one may be chosen. The bounds below limit both differences; they are written into the artefact, and
`tidelog export --check` uses the written ones. Letters: `B` observations.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import jax
import numpy as np

from tidelog.errors import ExportError, install
from tidelog.policies.policy import recipe_of
from tidelog.runtime.observations import column_names, fill_features
from tidelog.runtime.ranking import GAPS, fit_length
from tidelog.runtime.recipe import no_noise, noise_of
from tidelog.types import Catalogue, Codes, Continuous, Discrete, Image, Leaf, Spec, Vector

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
    "Catalogue": Bound(difference=1e-3, apart=0.02),
}


def bound_of(policy: Any, manifest: Mapping[str, Any]) -> Bound:
    """Return the bound in the manifest, or the default for the policy's kind of action."""
    if manifest["parity"] is not None:
        try:
            stated = Bound(**manifest["parity"]["bound"])
            return Bound(float(stated.difference), float(stated.apart))
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(
                f"the artefact's parity record is invalid: {error!r}. fix: export the policy again"
            ) from error
    kind, recipe = type(policy.spec.action).__name__, manifest["recipe"]
    candidates = recipe is not None and recipe["act"]["kind"] == "candidates"
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


def check_parity(record: Mapping[str, Any], readers: Iterable[str], where: str) -> None:
    """Raise ExportError where a runtime differs from JAX by more than the bound."""
    for reader in readers:
        if not record[reader]["holds"]:
            differences = {name: facts for name, facts in record[reader].items() if name != "holds"}
            raise ExportError(
                f"{where}: {reader} differs from JAX by {differences}, allowed {record['bound']}. fix: report a bug"
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
    gaps = np.where(read, generator.integers(0, GAPS, (rows, READ)), 0).astype(np.int32)
    ids: Any = spec.observation.get("user_id")
    who = generator.integers(0, 1 + (0 if ids is None else len(ids.ids)), rows)
    return {"item": items, "event": events, "user": user, "gap": gaps, "user_id": who}


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
        who = (leaves["user"], leaves["gap"], leaves["user_id"])
        items, scores = ranker.rank(leaves["item"], leaves["event"], k, mask, *who)
        return {"action": items[None], "score": scores}
    memory = reader.start(_count(leaves)) if reader.is_recurrent else None
    actions = [reader.act(leaves, None, mask, memory)[0] for _ in range(STEPS if reader.is_recurrent else 1)]
    answers = {"action": np.stack(actions)}
    if isinstance(reader.spec.action, Discrete):
        answers["probabilities"] = reader.probabilities(leaves, mask, memory)
    return answers


def onnx_answers(policy: Any, content: bytes, where: str) -> Answer:
    """Return what answers as `answers_of` does with the ONNX file of a policy, computed by onnxruntime.

    Raises ExportError without onnxruntime, or where it cannot run the file.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ExportError(f"checking an ONNX file needs onnxruntime ({error}). fix: {install('onnx')}") from error
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
        feeds = {"history": fit_length(leaves["item"], steps), "event": fit_length(leaves["event"], steps)}
        known = {"user": leaves["user"], "gap": fit_length(leaves["gap"], steps), "user_id": leaves["user_id"]}
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
            acted.append(found["action"])
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
        raise ExportError(f"{where}: onnxruntime cannot run it: {error!r}. fix: export the policy again") from error


def _raw_columns(leaf: Leaf, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the columns [B, K] of a leaf as the file reads them: NaN where a flag marks a missing value."""
    if not isinstance(leaf, Vector) or not leaf.fills:
        return values
    places = {name: place for place, name in enumerate(leaf.names)}
    columns = values[:, [places[name] for name in column_names(leaf)]].copy()
    for column, name in enumerate(column_names(leaf)):
        if f"{name} missing" in places:
            columns[values[:, places[f"{name} missing"]] == 1, column] = np.nan
    return columns


def _distance(policy: Any, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest difference where the actions are equal, and the share of observations with different ones."""
    space, one, two = policy.spec.action, expected["action"], actual["action"]
    if isinstance(space, Continuous):
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
