"""The split of a log into training and held-out episodes, in memory or on disk.

From a log on disk, only the held-out episodes for validation are read into memory.
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
VALIDATION_STEPS = MOST_BATCHES * 1024  # approximate limit of the held-out steps in memory


class EpisodeSplit:
    """A log split by episode; with `held_out` 0 nothing is held out."""

    def __init__(self, log: Log, held_out: float, seed: int) -> None:
        self.log, self.mapped = log, is_mapped(log)
        self._train: Ordinals | None = None
        self._held_out: Ordinals | None = None
        if held_out > 0:
            self._train, self._held_out = log.split_ordinals(1.0 - held_out, seed)

    @property
    def held_out_ids(self) -> list[Any]:
        """The user's ids of the held-out episodes."""
        return [] if self._held_out is None else np.asarray(self.log.episode_ids[self._held_out]).tolist()

    def sketches(self) -> dict[str, Any]:
        """Return JSON sketches of the training and the held-out episodes, which identify these episodes later."""
        sketches = {"learnt_from": Sketch.of(self.log, self._train).to_json()}
        return (
            sketches
            if self._held_out is None
            else {**sketches, "held_out": Sketch.of(self.log, self._held_out).to_json()}
        )

    def scaler(self, observations: bool, rewards: RewardScaling | None) -> Scaler:
        """Fit scales on the training episodes only."""
        if not self.mapped:
            return Scaler.fit(self._in_memory, observations=observations, rewards=rewards)
        fitted = Scaler.fit(self.log, observations=observations, episodes=self._train)
        if rewards is None or self.log.reward is None:
            return fitted
        scale, shift = rewards(self._without_observations.statistics())
        return replace(fitted, reward_scale=float(scale), reward_shift=float(shift))

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """Return the stores that training reads."""
        if not self.mapped:
            return stores_of(algorithm, self._in_memory, scaler)
        store_specs = algorithm.stores(self.log.spec).items()
        return {name: Stream(self.log, store_spec, scaler, self._train) for name, store_spec in store_specs}

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, Stored] | None:
        """Return the stores that validation reads, or None if nothing is held out."""
        if self._held_out is None:
            return None
        held_out = self._held_out
        if self.mapped:
            lengths = np.diff(self.log.starts)[held_out]
            held_out = held_out[: max(1, int(np.searchsorted(lengths.cumsum(), VALIDATION_STEPS)))]
        return stores_of(algorithm, self.log.take_episodes(held_out), scaler)

    @cached_property
    def _in_memory(self) -> Log:
        return self.log if self._train is None else self.log.take_episodes(self._train)

    @property
    def _without_observations(self) -> Log:
        slim = replace(
            self.log, observation={}, spec=replace(self.log.spec, observation={}), action_mask=None, extra={}
        )
        return slim if self._train is None else slim.take_episodes(self._train)
