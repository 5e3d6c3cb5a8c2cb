"""Estimates of a policy's reward from slates: lists of items that are shown together, with one reward per slot.

Independent importance sampling assumes that a slot's reward depends only on its own item, `sum_k w_k r_k` (Li et al.
2018, arXiv:1804.10488). Reward interaction also allows the items above, `sum_k w_1 ... w_k r_k` (McInerney et al. 2020,
arXiv:2007.12986): per-decision importance sampling with slots as steps. The cascade doubly robust estimator corrects a
model of slots in the same way, `sum_k (w_1 ... w_k (r_k - Q_k) + w_1 ... w_(k-1) V_k)` (Kiyohara et al. 2022,
arXiv:2202.01562), where `Q_k` is the expected reward from slot k on, given the items down to it, and `V_k` its mean
over the target's choice in slot k. A whole slate as one action is an ordinary bandit decision.

Each has a self-normalised form, which divides each slot by its sum of weights. `estimate_slates` makes a table.

Letters: `N` slates, `K` slots, `A` items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.ope.estimators.ratios import Ratios, means
from tidelog.ope.evidence.evidence import Floats

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
