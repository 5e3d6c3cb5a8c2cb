"""Whether JAX, NumPy and ONNX give the same answers, on random and on logged observations.

Rounding differs between them, so that continuous actions differ a little, and where two actions are as good as equal to
the last bits another one may be chosen. The bounds below say how much of either is let pass; they are written into the
artefact, and `tidelog export --check` holds it to what is written there. Letters: `B` observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

from tidelog.errors import ExportError
from tidelog.runtime.observations import column_names, filled
from tidelog.types import Catalogue, Codes, Continuous, Discrete, Image, Leaf, Spec

ROWS = 256  # random observations; of logged ones, at most as many
STEPS = 3  # of a policy with a memory, in a row
LENGTH = 10  # of lists, at most
READ = 50  # steps of random histories, at most
Leaves = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Bound:
    """What is let pass: `difference` of an action in shares of half its range, of a probability, of a score; `apart`:
    the share of observations whose action or list is another one, because two are equal but for rounding.
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
    """The bound that a manifest states, or where it states none the one for the policy's kind of action."""
    if manifest["parity"] is not None:
        try:
            stated = Bound(**manifest["parity"]["bound"])
            return Bound(float(stated.difference), float(stated.apart))
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(f"the artefact's record of parity cannot be understood: {error!r}") from error
    kind, recipe = type(policy.spec.action).__name__, manifest["recipe"]
    candidates = recipe is not None and recipe["act"]["kind"] == "candidates"
    return BOUNDS[f"{kind}, chosen among candidates" if candidates else kind]


def measured(policy: Any, others: Mapping[str, Any], bound: Bound, logged: Leaves | None, masks: Any) -> dict[str, Any]:
    """The parity record of other readers of the same policy: how far each is from JAX, and whether within the bound."""
    sets = {"random": (random_observations(policy), random_masks(policy))}
    if logged is not None:
        sets["logged"] = (logged, masks)
    with jax.default_matmul_precision("highest"):
        wanted = {name: _answers(policy, *given) for name, given in sets.items()}
    record: dict[str, Any] = {"bound": asdict(bound), "rows": {name: _count(given[0]) for name, given in sets.items()}}
    for reader, other in others.items():
        found = {name: _distance(policy, wanted[name], _answers(other, *given)) for name, given in sets.items()}
        record[reader] = {**found, "holds": all(_holds(distance, bound) for distance in found.values())}
    return record


def check(record: Mapping[str, Any], readers: Iterable[str], where: str) -> None:
    """Raise ExportError where a reader is further from JAX than the bound allows."""
    for reader in readers:
        if not record[reader]["holds"]:
            told = {name: facts for name, facts in record[reader].items() if name != "holds"}
            raise ExportError(f"{where}: {reader} does not give the answers of JAX within {record['bound']}: {told}")


def random_observations(policy: Any, rows: int = ROWS, seed: int = 0) -> Leaves:
    """Observations of a spec's kind, spread as the log's were where the scaler knows; some values are missing."""
    generator = np.random.default_rng(seed)
    if isinstance(policy.spec.action, Catalogue):
        return _random_histories(generator, policy.spec, rows)
    return {name: _random(generator, name, leaf, policy.scaler, rows) for name, leaf in policy.spec.observation.items()}


def _random_histories(generator: np.random.Generator, spec: Spec, rows: int) -> Leaves:
    """Items and kinds of events, left-padded with 0; every length from none on; and what describes users."""
    leaf: Any = spec.observation["history"]
    read = generator.integers(0, READ + 1, rows)[:, None] >= np.arange(READ, 0, -1)
    item = generator.integers(1, spec.action.n + 1, (rows, READ))  # type: ignore[union-attr]
    event = generator.integers(1, len(leaf.events) + 1, (rows, READ))
    who: Any = spec.observation.get("user")
    user = generator.standard_normal((rows, 0 if who is None else len(who.columns)), np.float32)
    items, events = (np.where(read, given, 0).astype(np.int32) for given in (item, event))
    return {"item": items, "event": events, "user": user}


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
    return filled(leaf, columns)


def random_masks(policy: Any, rows: int = ROWS, seed: int = 1) -> Any:
    """Masks that allow at least one action, of items a list's length, or None where nothing can be masked."""
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


def _answers(reader: Any, leaves: Leaves, mask: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Actions of a few steps in a row [steps, B, ...], and probabilities [B, A] of discrete actions; lists [B, k]."""
    if isinstance(reader.spec.action, Catalogue):
        ranker = reader.ranker()
        k = min(LENGTH, ranker.width, ranker.items)
        items, scores = ranker.rank(leaves["item"], leaves["event"], k, mask, leaves["user"])
        return {"action": items[None], "score": scores}
    memory = reader.start(_count(leaves)) if reader.is_recurrent else None
    actions = [reader(leaves, mask, memory) for _ in range(STEPS if reader.is_recurrent else 1)]
    found = {"action": np.stack(actions)}
    if isinstance(reader.spec.action, Discrete):
        found["probabilities"] = reader.probabilities(leaves, mask, memory)
    return found


def _distance(policy: Any, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, float]:
    """The largest difference where both do the same, and the share of observations in which they do not."""
    space, one, two = policy.spec.action, wanted["action"], found["action"]
    if isinstance(space, Continuous):
        away = np.abs(space.to_unit(one) - space.to_unit(two)).max(axis=-1)
        apart = away > BOUNDS["Continuous"].difference
        return {"difference": float(away[~apart].max(initial=0.0)), "apart": float(apart.mean())}
    apart = one != two if isinstance(space, Discrete) else (one != two).any(axis=-1)
    same = ~apart.any(axis=0)
    if "score" in wanted:
        away = np.abs(wanted["score"] - found["score"])[same]
        return {"difference": float(away.max(initial=0.0)), "apart": float(apart.mean())}
    chances = np.abs(wanted.get("probabilities", 0.0) - found.get("probabilities", 0.0))
    difference = chances[same].max(initial=0.0) if "probabilities" in wanted else 0.0
    return {"difference": float(difference), "apart": float(apart.mean())}


def _holds(distance: Mapping[str, float], bound: Bound) -> bool:
    return distance["difference"] <= bound.difference and distance["apart"] <= bound.apart
