"""The two parts of a log: episodes to learn from and episodes held out; in memory, or left on disk.

Of a log on disk only the held-out episodes that validation needs are read into memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tidelog.algorithms.core.contract import Algorithm
from tidelog.algorithms.core.sampling import Stored
from tidelog.data.log import Log
from tidelog.data.overlap import Sketch
from tidelog.data.scaling import RewardScaling, Scaler
from tidelog.training.engine.learner import Stores
from tidelog.training.engine.log_streaming import Stream, is_mapped
from tidelog.training.engine.stores import stores_of
from tidelog.training.engine.validation import MOST_BATCHES

Ordinals = np.ndarray[Any, Any]
VALIDATION_STEPS = MOST_BATCHES * 1024  # read into memory for validation, at most about so many


class EpisodeSplit:
    """A log split by episode; `held_out` 0 holds nothing out."""

    def __init__(self, log: Log, held_out: float, seed: int) -> None:
        self.log, self.mapped = log, is_mapped(log)
        self._train: Ordinals | None = None
        self._kept: Ordinals | None = None
        if held_out > 0:
            self._train, self._kept = log.split_ordinals(1.0 - held_out, seed)

    @property
    def held_out_ids(self) -> list[Any]:
        """The user's names of the held-out episodes."""
        return [] if self._kept is None else np.asarray(self.log.episode_ids[self._kept]).tolist()

    def sketches(self) -> dict[str, Any]:
        """What tells later whether an episode was learnt from, or held out: JSON of a sketch each."""
        found = {"learnt_from": Sketch.of(self.log, self._train).to_json()}
        return found if self._kept is None else {**found, "held_out": Sketch.of(self.log, self._kept).to_json()}

    def scaler(self, observations: bool, rewards: RewardScaling | None) -> Scaler:
        """Scales from the training episodes alone."""
        if not self.mapped:
            return Scaler.fit(self._in_memory, observations=observations, rewards=rewards)
        fitted = Scaler.fit(self.log, observations=observations, episodes=self._train)
        if rewards is None or self.log.reward is None:
            return fitted
        scale, shift = rewards(self._without_observations.statistics())
        return replace(fitted, reward_scale=float(scale), reward_shift=float(shift))

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """The stores that training reads."""
        if not self.mapped:
            return stores_of(algorithm, self._in_memory, scaler)
        keeps = algorithm.stores(self.log.spec).items()
        return {name: Stream(self.log, keep, scaler, self._train) for name, keep in keeps}

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, Stored] | None:
        """The stores that validation reads, or None where nothing is held out."""
        if self._kept is None:
            return None
        kept = self._kept
        if self.mapped:
            lengths = np.diff(self.log.starts)[kept]
            kept = kept[: max(1, int(np.searchsorted(lengths.cumsum(), VALIDATION_STEPS)))]
        return stores_of(algorithm, self.log.take_episodes(kept), scaler)

    @cached_property
    def _in_memory(self) -> Log:
        return self.log if self._train is None else self.log.take_episodes(self._train)

    @property
    def _without_observations(self) -> Log:
        slim = replace(
            self.log, observation={}, spec=replace(self.log.spec, observation={}), action_mask=None, extra={}
        )
        return slim if self._train is None else slim.take_episodes(self._train)
