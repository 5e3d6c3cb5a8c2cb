"""Held-out episodes, and the share of them that chooses the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tidelog.algorithms.contract import Algorithm
from tidelog.algorithms.sampling import Stored
from tidelog.data.log import Log
from tidelog.data.statistics import LoggedRewards, RewardScaling, Scaler, Sketch
from tidelog.errors import ConfigError
from tidelog.policies.policy import Policy
from tidelog.recommend.held_out import SELECTION_OF_USERS, held_out_users
from tidelog.recommend.interactions import Interactions
from tidelog.training.loop import MOST_BATCHES, LearnerState, Member, Stores
from tidelog.training.stores import Stream, is_mapped, stores_of

# The split of a log into training and held-out episodes, in memory or on disk.
#
# Where held-out losses choose the policy, some of the held-out episodes choose it and the others stay for the judge: an
# episode that chose a policy cannot show that it is better. From a log on disk, only the held-out episodes for
# validation are read into memory.

Ordinals = np.ndarray[Any, Any]
SELECTION = 0.25  # share of the held-out episodes that choose the policy, by default
ENOUGH = 100  # smallest number of episodes that are left for the judge
VALIDATION_STEPS = MOST_BATCHES * 1024  # approximate limit of the held-out steps in memory


class EpisodeSplit:
    """A log split by episode; with `held_out` 0 nothing is held out.

    Of the held-out episodes, the share `selection` is for validation losses, and the others are only for the judge.
    With 1, all of them are for both. Of the training episodes, a share `data` is read; the held-out ones do not depend
    on it.
    """

    metrics = ()  # in reports, besides losses

    def __init__(self, log: Log, held_out: float, seed: int, selection: float = 1.0, data: float = 1.0) -> None:
        self.log, self.mapped = log, is_mapped(log)
        self._validation: Ordinals | None = None
        self._train: Ordinals | None = None
        self._held_out: Ordinals | None = None
        if held_out > 0:
            self._train, self._held_out = log.split_ordinals(1.0 - held_out, seed)
            self._validation = self._held_out
            if selection < 1.0:
                self._validation, self._held_out = log.split_ordinals(selection, seed, self._held_out)
        if data < 1.0:
            self._train = log.split_ordinals(data, seed, self._train)[0]

    def prepared(self, member: Member, learner: LearnerState, policy: Policy | None = None) -> LearnerState:
        """Return a fresh learner as it is: a log of episodes has no facts for its state."""
        return learner

    @property
    def chooser(self) -> None:
        """Nothing: held-out episodes choose no part of a member's state."""

    @property
    def held_out_ids(self) -> list[Any]:
        """The user's ids of the held-out episodes that are left for the judge."""
        return [] if self._held_out is None else np.asarray(self.log.episode_ids[self._held_out]).tolist()

    @property
    def training_log(self) -> Log:
        """The training episodes, in memory."""
        return self._in_memory

    def sketches(self) -> dict[str, Any]:
        """Return JSON sketches of the training and the validation episodes, which identify these episodes later."""
        sketches = {"learnt_from": Sketch.of(self.log, self._train).to_json()}
        return (
            sketches
            if self._validation is None
            else {**sketches, "held_out": Sketch.of(self.log, self._validation).to_json()}
        )

    def scaler(self, observations: bool, algorithm: Any) -> Scaler:
        """Fit scales on the training episodes only, of rewards by the algorithm's `reward_scaling` if it has one."""
        rule: RewardScaling | None = getattr(algorithm, "reward_scaling", None)
        scale = None if rule is None or self.log.reward is None else rule(self.rewards(algorithm))
        if not self.mapped:
            return Scaler.fit(self._in_memory, observations=observations, rewards=scale)
        return Scaler.fit(self.log, observations=observations, rewards=scale, episodes=self._train)

    def rewards(self, algorithm: Any) -> LoggedRewards:
        """Return the rewards of the training episodes, with the weights of an algorithm for several rewards."""
        weights: Sequence[float] | None = getattr(algorithm, "reward_weights", None)
        return LoggedRewards.of(self._without_observations, weights)

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """Return the stores that training reads."""
        if not self.mapped:
            return stores_of(algorithm, self._in_memory, scaler)
        store_specs = algorithm.stores(self.log.spec).items()
        return {name: Stream(self.log, store_spec, scaler, self._train) for name, store_spec in store_specs}

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, Stored] | None:
        """Return the stores that validation reads, or None if nothing is held out."""
        if self._validation is None:
            return None
        held_out = self._validation
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


def selection_share(
    share: float | None, best: str | None, held_out: float, episodes: float, default: float = SELECTION
) -> float:
    """Return the share of the held-out episodes, or users, that choose the policy: `share`, or `default` of many.

    1 where no held-out metric chooses it, or where fewer than `ENOUGH` of them would be left for the judge.
    """
    chooses = (best or "").removeprefix("max:").removeprefix("min:").startswith("held_out/") and held_out > 0.0
    if share is not None and not chooses:
        raise ConfigError(
            f"selection_share = {share}: no held-out metric chooses the policy",
            fix="set best='held_out/...' and held_out=0.5, or drop selection_share",
        )
    if share is not None:
        return share
    return default if chooses and (1.0 - default) * held_out * episodes >= ENOUGH else 1.0


def user_selection_share(share: float | None, best: str | None, held_out: float, log: Interactions) -> float:
    """Return the share of the held-out users that choose the policy: `share`, or by default half of many."""
    counted = best is not None and share is None and held_out > 0
    users = held_out_users(log, held_out) if counted else 0
    return selection_share(share, best, held_out, users / (held_out or 1.0), SELECTION_OF_USERS)
