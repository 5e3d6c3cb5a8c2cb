"""Estimates of a ranking policy's value from slates: lists of items that are shown together, with one reward per slot.

A log has one reward per slot and the logger's probability of its item there, given the items above.

Independent importance sampling assumes that a slot's reward depends only on its own item, `sum_k w_k r_k` (Li et al.
2018, arXiv:1804.10488). Reward interaction also allows the items above, `sum_k w_1 ... w_k r_k` (McInerney et al. 2020,
arXiv:2007.12986): per-decision importance sampling with slots as steps. The cascade doubly robust estimator corrects a
model of slots in the same way, `sum_k (w_1 ... w_k (r_k - Q_k) + w_1 ... w_(k-1) V_k)` (Kiyohara et al. 2022,
arXiv:2202.01562), where `Q_k` is the expected reward from slot k on, given the items down to it, and `V_k` its mean
over the target's choice in slot k. A whole slate as one action is an ordinary bandit decision.

Each has a self-normalised form, which divides each slot by its sum of weights. `estimate_slates` makes a table,
`assemble_slates` arranges a log with one row per slot.

Letters: `N` lists (slates), `K` slots, `A` items, `R` rows of a log with one row per slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import ConfigError, SpecError, nearest
from tidelog.ope.estimators.intervals import METHODS, MOST_GROUPS, Confidence, interval
from tidelog.ope.estimators.ratios import Ratios, means
from tidelog.ope.estimators.support import Estimate, Estimates, Support, support_of
from tidelog.ope.evidence.episodes import check_seed
from tidelog.ope.evidence.evidence import Evidence, Floats

Integers = NDArray[np.int64]


Slots = NDArray[np.floating]


def independent_ips(reward: Slots, target: Slots, behaviour: Slots, *, self_normalised: bool = False) -> Ratios:
    """Sum over slots of reward times the weight of the slot's item; reward, target and behaviour [N, K]."""
    return _over_slots(reward, _slot_weights(reward, target, behaviour), self_normalised)


def reward_interaction_ips(reward: Slots, target: Slots, behaviour: Slots, *, self_normalised: bool = False) -> Ratios:
    """Sum over slots of reward times the weight of the items down to it; reward, target and behaviour [N, K]."""
    weights: Floats = np.cumprod(_slot_weights(reward, target, behaviour), axis=1, dtype=np.float64)
    return _over_slots(reward, weights, self_normalised)


def cascade_dr(
    reward: Slots,
    target: Slots,
    behaviour: Slots,
    model: Slots,
    model_target: Slots,
    *,
    self_normalised: bool = False,
) -> Ratios:
    """The model's value, corrected slot by slot by weighted residuals; all arguments [N, K].

    `model` is the expected reward from the slot on, given the items down to it; `model_target` is its mean over the
    target's choice in that slot. With a model of 0 this is `reward_interaction_ips`, with one slot the bandit's `dr`.
    """
    weights: Floats = np.cumprod(_slot_weights(reward, target, behaviour), axis=1, dtype=np.float64)
    for name, values in (("model", model), ("model_target", model_target)):
        if np.shape(values) != np.shape(reward) or not np.isfinite(values).all():
            raise SpecError(f"{name} has shape {np.shape(values)}: expected finite numbers of shape {np.shape(reward)}")
    before = np.hstack([np.ones((len(weights), 1)), weights[:, :-1]])
    residual, value = weights * (np.asarray(reward, np.float64) - model), before * np.asarray(model_target, np.float64)
    if not self_normalised:
        return means((residual + value).sum(1))
    return Ratios(np.hstack([residual, value]), np.hstack([weights, before]))


def _over_slots(reward: Slots, weights: Floats, self_normalised: bool) -> Ratios:
    return Ratios(weights * reward, weights) if self_normalised else means((weights * reward).sum(1))


def _slot_weights(reward: Slots, target: Slots, behaviour: Slots) -> Floats:
    shapes = [np.shape(part) for part in (reward, target, behaviour)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or 0 in shapes[0]:
        raise SpecError(f"reward, target and behaviour have shapes {shapes}: expected equal shapes [slates, slots]")
    if not (np.asarray(behaviour) > 0).all() or not (np.asarray(target) >= 0).all():
        raise SpecError("target or behaviour is out of range: expected target >= 0 and behaviour > 0 in every slot")
    return np.asarray(target, np.float64) / np.asarray(behaviour, np.float64)


# name -> the items on which a slot's reward may depend
SLATE_ESTIMATORS: dict[str, str] = {
    "independent": "the slot's own item",
    "sn_independent": "the slot's own item; divided by the sum of weights",
    "reward_interaction": "the items down to the slot",
    "sn_reward_interaction": "the items down to the slot; divided by the sum of weights",
    "cascade_dr": "the items down to the slot; a corrected model",
    "sn_cascade_dr": "the items down to the slot; a corrected model, divided by the sum of weights",
}
SHRINKAGE = 10.0  # pseudo-lists that shrink an item's mean towards its slot's mean


def estimate_slates(
    reward: NDArray[Any],
    target: NDArray[Any],
    behaviour: NDArray[Any],
    names: Sequence[str] | str | None = None,
    *,
    model: NDArray[Any] | None = None,
    model_target: NDArray[Any] | None = None,
    logged: NDArray[np.bool_] | None = None,
    estimated: bool = False,
    method: str = "bca",
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Estimates:
    """Estimate the mean total reward of a list under a target policy, one row per estimator with interval and support.

    `reward`, `target` and `behaviour` are [N, K]: a slot's reward, and the target's and the logger's probability of its
    item there, given the items above. "cascade_dr" needs `model` and `model_target` [N, K] from `slot_model`. `logged`
    [N, K] marks the slots in the log (None: all); if some are missing, only "independent" can be computed, each slot
    over the lists that logged it. `estimated`: `behaviour` was estimated. Intervals resample lists. Raises ConfigError
    for unknown names, SpecError if arrays do not fit or a named estimator cannot be computed.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> reward = (generator.random((500, 3)) < 0.2).astype(float)  # 500 lists of 3 slots
        >>> same = np.full((500, 3), 0.25)
        >>> found = tl.estimate_slates(reward, same, same, "independent")["independent"]
        >>> found.low < 0.6 < found.high
        True
    """
    chosen = _check_names(names)
    check_seed(seed)
    if method not in METHODS or method == "bernstein":
        raise ConfigError(f"method = {method!r}: {nearest(str(method), set(METHODS) - {'bernstein'})}")
    confidence = Confidence(level, replicates, seed)
    known = _checked(reward, target, behaviour, logged)
    whole = bool(known.logged.all())
    if (model is None) != (model_target is None):
        raise SpecError("found only one of model and model_target: expected both or none. fix: pass both")
    for name in chosen or ():
        obstacle = _obstacle(name, whole, model is not None)
        if obstacle:
            raise SpecError(f"'{name}' cannot be computed: {obstacle}")
    rows = []
    for name in chosen or [name for name in SLATE_ESTIMATORS if not _obstacle(name, whole, model is not None)]:
        ratios = _ratios(name, known, model, model_target)
        ends = interval(ratios.grouped(MOST_GROUPS), method, confidence)
        support, note = _support(name, known)
        how = f"{method}, {replicates:,} replicates" if method in ("bca", "percentile") else method
        note = note if np.isfinite(ends.estimate) else "no weight is left in some slot"
        rows.append(Estimate(name, *ends, how, level, support, estimated, ratios.contributions, note))
    return Estimates(rows)


@dataclass(frozen=True, eq=False)
class _Known:
    """Checked arrays, [N, K] each; a slot that was not logged has reward 0 and both probabilities 1."""

    reward: Floats
    target: Floats
    behaviour: Floats
    logged: NDArray[np.bool_]


def _checked(reward: Any, target: Any, behaviour: Any, logged: Any) -> _Known:
    shapes = [np.shape(part) for part in (reward, target, behaviour)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or 0 in shapes[0]:
        raise SpecError(f"reward, target and behaviour have shapes {shapes}: expected equal shapes [lists, slots]")
    there = np.ones(shapes[0], bool) if logged is None else np.asarray(logged)
    if there.shape != shapes[0] or there.dtype != np.bool_:
        raise SpecError(f"logged has shape {there.shape} and type {there.dtype}: expected {shapes[0]} of type bool")
    if not there.any(0).all():
        slot = int(np.flatnonzero(~there.any(0))[0])
        raise SpecError(f"slot {slot + 1} was never logged: expected at least one list per slot. fix: drop that slot")
    parts = []
    for name, values, absent in (("reward", reward, 0.0), ("target", target, 1.0), ("behaviour", behaviour, 1.0)):
        numbers = np.where(there, np.asarray(values, np.float64), absent)
        if not np.isfinite(numbers).all():
            row, slot = np.argwhere(~np.isfinite(numbers))[0]
            raise SpecError(
                f"{name} is {numbers[row, slot]} in list {row}, slot {slot + 1}: expected a finite number. fix: mark "
                "slots that were not logged in `logged`"
            )
        parts.append(numbers)
    if not (parts[2] > 0).all() or (parts[2] > 1 + 1e-9).any() or (parts[1] < 0).any() or (parts[1] > 1 + 1e-9).any():
        raise SpecError("target or behaviour is out of range: expected behaviour in (0, 1], target in [0, 1], per slot")
    return _Known(parts[0], parts[1], parts[2], there)


def _check_names(names: Sequence[str] | str | None) -> list[str] | None:
    if names is None:
        return None
    chosen = list(dict.fromkeys([names] if isinstance(names, str) else names))
    for name in chosen:
        if name not in SLATE_ESTIMATORS:
            raise ConfigError(f"unknown slate estimator '{name}': {nearest(str(name), SLATE_ESTIMATORS)}")
    if not chosen:
        raise ConfigError(f"no slate estimator was named: expected one or more of {', '.join(SLATE_ESTIMATORS)}")
    return chosen


def _obstacle(name: str, whole: bool, modelled: bool) -> str | None:
    if not whole and "independent" not in name:
        return "some slots were not logged, so the items above a slot are unknown. fix: use 'independent'"
    if "cascade" in name and not modelled:
        return "it needs model= and model_target= [lists, slots]. fix: compute them with slot_model"
    return None


def _ratios(name: str, known: _Known, model: Any, model_target: Any) -> Ratios:
    arrays, normalised = (known.reward, known.target, known.behaviour), name.startswith("sn_")
    if "cascade" in name:
        return cascade_dr(*arrays, model, model_target, self_normalised=normalised)
    if "interaction" in name:
        return reward_interaction_ips(*arrays, self_normalised=normalised)
    if known.logged.all():
        return independent_ips(*arrays, self_normalised=normalised)
    weights = np.where(known.logged, known.target / known.behaviour, 0.0)
    return Ratios(weights * known.reward, weights if normalised else known.logged.astype(np.float64))


def _support(name: str, known: _Known) -> tuple[Support, str]:
    """Support of whole lists; for independent slots that of the slot with the lowest effective sample size."""
    count, slots = known.reward.shape
    if "independent" not in name:
        starts = np.arange(count + 1) * slots
        return support_of(Evidence(starts, known.reward.ravel(), known.target.ravel(), known.behaviour.ravel())), ""
    supports = []
    for slot in range(slots):
        there = known.logged[:, slot]
        reward, target, behaviour = (part[there, slot] for part in (known.reward, known.target, known.behaviour))
        supports.append(support_of(Evidence(np.arange(len(reward) + 1), reward, target, behaviour)))
    least = int(np.argmin([support.effective_sample_size for support in supports]))
    note = f"support is that of slot {least + 1}, which has the least" if slots > 1 else ""
    return replace(supports[least], horizon=slots), note


def slot_model(
    reward: NDArray[Any], item: NDArray[Any], target_all: NDArray[Any], *, folds: int = 5, seed: int = 0
) -> tuple[Floats, Floats]:
    """Cross-fitted model for "cascade_dr": `model` and `model_target`, [N, K] each.

    A table of slots by items, from the last slot up: the mean, over lists with that item in that slot, of the slot's
    reward plus the model's expected reward of the slots below under the target. Ten pseudo-lists shrink it towards the
    slot's mean. Each list uses the tables of the other folds. `item` [N, K] counts from 0, `target_all` [N, K, A] is
    the target's probability of every item in each slot, given the items above. Raises SpecError if arrays do not fit.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> item = generator.integers(4, size=(500, 3))
        >>> reward = (generator.random((500, 3)) < 0.1 * item).astype(float)
        >>> uniform = np.full((500, 3, 4), 0.25)
        >>> model, model_target = tl.slot_model(reward, item, uniform)
        >>> model.shape
        (500, 3)
    """
    earned, chosen, chances = np.asarray(reward, np.float64), np.asarray(item), np.asarray(target_all, np.float64)
    if earned.ndim != 2 or chosen.shape != earned.shape or chances.shape[:-1] != earned.shape or chances.ndim != 3:
        shapes = (earned.shape, chosen.shape, chances.shape)
        raise SpecError(f"reward, item and target_all have shapes {shapes}: expected [N, K], [N, K] and [N, K, A]")
    items = chances.shape[2]
    if not np.issubdtype(chosen.dtype, np.integer) or chosen.min() < 0 or chosen.max() >= items:
        raise SpecError(
            f"item is out of range: expected whole numbers from 0 to {items - 1}, one for each column of target_all"
        )
    if not np.isfinite(chances).all() or (chances < 0).any() or (np.abs(chances.sum(2) - 1) > 1e-4).any():
        raise SpecError("target_all is invalid: expected probabilities that sum to 1 in each slot")
    if not 2 <= folds <= len(earned):
        raise ConfigError(f"folds = {folds}: expected 2 to the number of lists ({len(earned)})")
    fold = np.random.default_rng(seed).permutation(len(earned)) % folds
    model, model_target = np.zeros(earned.shape), np.zeros(earned.shape)
    for one in range(folds):
        learnt, rated = fold != one, fold == one
        ahead = np.zeros(int(learnt.sum()))  # [learnt]: value of the slots below under the target
        for slot in range(earned.shape[1])[::-1]:
            returns = earned[learnt, slot] + ahead
            counts = np.bincount(chosen[learnt, slot], minlength=items)
            sums = np.bincount(chosen[learnt, slot], returns, items)
            table = (sums + SHRINKAGE * returns.mean()) / (counts + SHRINKAGE)  # [A]
            ahead = chances[learnt, slot] @ table
            model[rated, slot], model_target[rated, slot] = table[chosen[rated, slot]], chances[rated, slot] @ table
    return model, model_target


@dataclass(frozen=True, eq=False)
class Slates:
    """Lists [N, K] from a log with one row per slot; `row` is the source of each cell, -1 if it was not logged."""

    lists: NDArray[Any]  # [N]: list ids, rising
    positions: NDArray[Any]  # [K]: positions, rising
    row: Integers  # [N, K]
    logged: NDArray[np.bool_]  # [N, K]
    reward: Floats  # [N, K]; 0 if not logged
    behaviour: Floats  # [N, K]: the logger's propensity; 1 if not logged
    item: NDArray[Any] | None  # [N, K]; the first row's item if not logged

    def arrange(self, values: NDArray[Any], absent: Any = 0.0) -> NDArray[Any]:
        """Values of the log's rows [R, ...] as [N, K, ...], `absent` if a slot was not logged."""
        rows = np.asarray(values)
        if len(rows) <= self.row.max():
            raise SpecError(
                f"values has {len(rows):,} rows: expected one per row of the log, more than {self.row.max():,}"
            )
        cells = rows[np.maximum(self.row, 0)]
        there = self.logged.reshape(*self.logged.shape, *[1] * (cells.ndim - 2))
        return np.where(there, cells, absent)


def assemble_slates(
    list_id: NDArray[Any] | None,
    position: NDArray[Any],
    reward: NDArray[Any],
    propensity: NDArray[Any],
    item: NDArray[Any] | None = None,
    *,
    incomplete: bool = False,
) -> Slates:
    """Assemble lists from the columns of a log with one row per slot, all [R].

    `list_id` identifies the rows that were shown together; None: each row is one slot of a list whose other slots were
    not logged, which requires `incomplete`. `position` orders slots from the top; every list must have every position
    unless `incomplete`. Raises SpecError for a position that is missing or repeated in a list, for columns that do not
    fit, and for propensities that are not above 0 and at most 1.

    Example:
        >>> slates = tl.assemble_slates(
        ...     list_id=np.array([0, 0, 1, 1]),
        ...     position=np.array([0, 1, 0, 1]),
        ...     reward=np.array([1.0, 0.0, 0.0, 1.0]),
        ...     propensity=np.array([0.5, 0.5, 0.25, 0.75]),
        ... )
        >>> slates.reward
        array([[1., 0.],
               [0., 1.]])
    """
    places = np.asarray(position)
    ids = np.arange(len(places)) if list_id is None else np.asarray(list_id)
    named = {"list_id": ids, "position": places, "reward": reward, "propensity": propensity}
    named |= {} if item is None else {"item": item}
    shapes = {name: np.shape(values) for name, values in named.items()}
    if len(set(shapes.values())) > 1 or places.ndim != 1 or not len(places):
        raise SpecError(f"columns have shapes {shapes}: expected the same number of rows in each, [R]")
    earned, chance = np.asarray(reward, np.float64), np.asarray(propensity, np.float64)
    for name, values, right in (
        ("reward", earned, np.isfinite(earned)),
        ("propensity", chance, (chance > 0) & (chance <= 1)),
    ):
        if not right.all():
            row = int(np.flatnonzero(~right)[0])
            expected = "a finite number" if name == "reward" else "above 0 and at most 1"
            raise SpecError(
                f"{name} is {values[row]} in row {row}: expected {expected}. fix: correct or remove that list"
            )
    lists, of_list = np.unique(ids, return_inverse=True)
    positions, slot = np.unique(places, return_inverse=True)
    cell = of_list * len(positions) + slot
    times = np.bincount(cell, minlength=len(lists) * len(positions)).reshape(len(lists), len(positions))
    _check_cells(times, lists, positions, incomplete, list_id is None)
    rows = np.full(times.size, -1, np.int64)
    rows[cell] = np.arange(len(places))
    slates = Slates(lists, positions, rows.reshape(times.shape), times > 0, earned[:0], chance[:0], None)
    return replace(
        slates,
        reward=slates.arrange(earned),
        behaviour=slates.arrange(chance, 1.0),
        item=None if item is None else slates.arrange(np.asarray(item), np.asarray(item)[0]),
    )


def _check_cells(times: Integers, lists: Any, positions: Any, incomplete: bool, alone: bool) -> None:
    """Raise SpecError unless each position occurs at most once per list, and exactly once unless `incomplete`."""
    if times.max() > 1:
        one, slot = np.argwhere(times > 1)[0]
        more = f" ({int((times > 1).any(1).sum()):,} lists have this problem)"
        raise SpecError(
            f"list {lists[one]} has position {positions[slot]} {times[one, slot]} times: expected once{more}. fix: use "
            "an id that is different for each showing of a list, or drop repeated rows"
        )
    if incomplete or times.min() == 1:
        return
    if alone:
        raise SpecError(
            "list_id = None: each row is one slot of a list whose other slots were not logged. fix: pass the column "
            "that identifies rows shown together, or incomplete=True (then only 'independent' can be estimated)"
        )
    one, slot = np.argwhere(times == 0)[0]
    raise SpecError(
        f"list {lists[one]} lacks position {positions[slot]}: expected all of {positions.tolist()[:10]} in every list "
        f"({int((times == 0).any(1).sum()):,} of {len(lists):,} lists lack some). fix: remove those lists, or pass "
        "incomplete=True (then only 'independent' can be estimated)"
    )
