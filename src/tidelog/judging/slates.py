"""Estimates of a policy's reward from slates: a list of items shown at once, with a reward a slot.

Independent importance sampling lets each slot's reward depend on its own item alone, `sum_k w_k r_k` (Li et al. 2018,
arXiv:1804.10488); reward interaction lets it depend on the items above too, `sum_k w_1 ... w_k r_k` (McInerney et al.
2020, arXiv:2007.12986), which is per-decision importance sampling with slots for steps. A whole slate taken as one
action is an ordinary bandit decision.

Letters: `N` slates, `K` slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import SpecError
from tidelog.judging.evidence import Floats
from tidelog.judging.ratios import Ratios, means

Slots = NDArray[np.floating]


def independent_ips(reward: Slots, target: Slots, behaviour: Slots, *, self_normalised: bool = False) -> Ratios:
    """Sum over slots of reward times the weight of the slot's item; reward, target and behaviour [N, K]."""
    return _over_slots(reward, _slot_weights(reward, target, behaviour), self_normalised)


def reward_interaction_ips(reward: Slots, target: Slots, behaviour: Slots, *, self_normalised: bool = False) -> Ratios:
    """Sum over slots of reward times the weight of the items down to it; reward, target and behaviour [N, K]."""
    weights: Floats = np.cumprod(_slot_weights(reward, target, behaviour), axis=1, dtype=np.float64)
    return _over_slots(reward, weights, self_normalised)


def _over_slots(reward: Slots, weights: Floats, self_normalised: bool) -> Ratios:
    return Ratios(weights * reward, weights) if self_normalised else means((weights * reward).sum(1))


def _slot_weights(reward: Slots, target: Slots, behaviour: Slots) -> Floats:
    shapes = [np.shape(part) for part in (reward, target, behaviour)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or 0 in shapes[0]:
        raise SpecError(f"reward, target and behaviour must all be [slates, slots], found {shapes}")
    if not (np.asarray(behaviour) > 0).all() or not (np.asarray(target) >= 0).all():
        raise SpecError("target probabilities must be at least 0 and propensities above 0, slot by slot")
    return np.asarray(target, np.float64) / np.asarray(behaviour, np.float64)
