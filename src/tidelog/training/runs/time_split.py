"""The two periods of interactions: what came first is learnt from, what came later is held out.

The held-out period also chooses how much Q counts in the score of a list. A log of what was taken teaches what being
taken is worth, not what showing is worth; how far that helps is seen on events that nothing was learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidelog.algorithms.core.contract import Algorithm, StoreSpec
from tidelog.data.scaling import Scaler
from tidelog.errors import ConfigError, LogError
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.windows import StoredInteractions, visits
from tidelog.runtime.ranking import MARKS, Found, ordered
from tidelog.training.engine.learner import Stores

WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MOST_EVENTS = 2_048  # of the held-out period that lists are made for
LENGTH = 10  # of those lists
_DECIDES = f"reward_ndcg@{LENGTH}"
LISTS = tuple(  # what reports say of lists for the held-out period
    f"held_out/{name}"
    for name in (f"hit@{LENGTH}", f"ndcg@{LENGTH}", f"reward@{LENGTH}", _DECIDES, "coverage", "entropy", "q_weight")
)


class TimeSplit:
    """Interactions split by time; `held_out` 0 holds nothing out."""

    mapped = False

    def __init__(self, log: Interactions, held_out: float) -> None:
        self.log = log
        self._split = log.split(share=held_out) if held_out > 0 else None
        self.train = log if self._split is None else self._split.train

    @property
    def held_out_ids(self) -> list[Any]:
        """Since when events are held out."""
        return [] if self._split is None else [f"from {self._split.at}"]

    def sketches(self) -> dict[str, Any]:
        """Nothing: lists are not judged as decisions are."""
        return {}

    def scaler(self, observations: bool, rewards: Any) -> Scaler:
        """Nothing is scaled; an algorithm may scale its rewards as it sees them."""
        return Scaler()

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """The stores that training reads."""
        return self._stores(algorithm, self.train)

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, StoredInteractions] | None:
        """The stores that validation reads, or None where nothing is held out."""
        return None if self._split is None else self._stores(algorithm, self._split.test)

    def weighing(self) -> Weighing | None:
        """What chooses the weight of Q, or None where nothing is held out."""
        return None if self._split is None else Weighing(self._split.test)

    def _stores(self, algorithm: Algorithm, log: Interactions) -> dict[str, StoredInteractions]:
        return {name: _stored(log, keep) for name, keep in algorithm.stores(self.log.spec).items()}


def _stored(log: Interactions, keep: StoreSpec) -> StoredInteractions:
    if len(log) < 2:
        raise LogError(f"{len(log)} event is too little to learn from: at least 2 are needed", log.report)
    return visits(log, keep.targets, "slate" in keep.columns, "user" in keep.columns)


def refuse_what_lists_lack(scale: str | None, split_seed: int, episodes: Mapping[str, int]) -> None:
    """ConfigError for settings of fit that would have no effect on interactions."""
    if scale is not None:
        raise ConfigError(f"scale = {scale!r}: interactions have no observations to scale; leave it away")
    if split_seed:
        raise ConfigError(f"split_seed = {split_seed}: interactions are split by time, not by chance; leave it away")
    if episodes:
        raise ConfigError(f"evaluate: lists are not played in {', '.join(episodes)}; pass a function of the policy")


class Weighing:
    """Lists for some events of a held-out period, at every report the same."""

    def __init__(self, log: Interactions) -> None:
        targets = log.targets
        most = max(1, min(MOST_EVENTS, MARKS // (len(log.items) + 1)))
        if len(targets) > most:
            targets = np.sort(np.random.default_rng(0).permutation(targets)[:most])
        self._log, self._rows = log, targets

    def __call__(self, policy: Policy) -> tuple[float, dict[str, float]]:
        """The weight whose lists hold the most reward, near their heads; and how those lists do."""
        ranker = policy.ranker()
        k = min(LENGTH, ranker.items)
        histories, events = self._log.histories(self._rows, policy.algorithm.history)
        allowed = np.ones((len(self._rows), ranker.items + 1), bool)
        allowed[:, 0] = False
        users = self._log.described(self._log.user[self._rows])
        found = ranker.find(histories, events, k, allowed, users)
        given = policy.algorithm.q_weight
        results = [(w, self._measured(found, k, w)) for w in (WEIGHTS if given is None else (float(given),))]
        weight, best = max(results, key=lambda pair: (pair[1][_DECIDES], -pair[0]))
        return weight, {f"held_out/{name}": value for name, value in best.items()} | {"held_out/q_weight": weight}

    def _measured(self, found: Found, k: int, weight: float) -> dict[str, float]:
        items, _ = ordered(found, k, weight)
        hits = items == self._log.item[self._rows][:, None]
        gain = np.where(hits, 1.0 / np.log2(np.arange(k) + 2.0), 0.0).sum(axis=1)
        reward = self._log.reward[self._rows].astype(np.float64)
        often = np.bincount(items.reshape(-1)).astype(np.float64)
        share = often[often > 0] / often.sum()
        return {
            f"hit@{LENGTH}": float(hits.any(axis=1).mean()),
            f"ndcg@{LENGTH}": float(gain.mean()),
            f"reward@{LENGTH}": float((hits.any(axis=1) * reward).mean()),
            _DECIDES: float((gain * reward).mean()),
            "coverage": float((often > 0).sum() / len(self._log.items)),
            "entropy": float(-(share * np.log(share)).sum()),
        }
