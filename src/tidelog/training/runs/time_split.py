"""The split of interactions by time: the earlier period is for training, the later period is held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidelog.algorithms.core.contract import Algorithm, StoreSpec
from tidelog.data.scaling import LoggedRewards, RewardScaling, Scaler
from tidelog.errors import ConfigError, LogError
from tidelog.networks.arrays import float32
from tidelog.recommend.interactions.held_out import split_users
from tidelog.recommend.interactions.log import OTHER_SHARE, UNEVEN, Interactions
from tidelog.recommend.interactions.session_gap import moment_text
from tidelog.recommend.next_item import StoredInteractions, store_interactions
from tidelog.training.engine.learner import Stores
from tidelog.training.runs.episode_split import selection_share as share_of
from tidelog.training.runs.q_weight import QWeightSelection

REPORTS = 20  # reports of a run by default: each makes lists for the held-out period
SELECTION = 0.5  # share of the held-out users that choose the policy, by default


class TimeSplit:
    """Interactions split by time; with `held_out` 0 nothing is held out.

    Of the users with held-out events, the share `selection` chooses the policy and the weight of Q, and the lists of
    the others are reported. With 1, all of them are for both.
    """

    mapped = False

    def __init__(self, log: Interactions, held_out: float, selection: float = 1.0) -> None:
        self.log, self._selection = log, selection
        self._split = log.split(share=held_out) if held_out > 0 else None
        self.train = log if self._split is None else self._split.train
        self._choosing = self._reported = None if self._split is None else self._split.test
        if self._split is not None and selection < 1.0:
            self._choosing, self._reported = split_users(self._split.test, selection)

    def check_periods(self) -> None:
        """Raise ConfigError if a period has much less than its share of the events."""
        for problem in () if self._split is None else self._split.report.problems:
            if problem.check == UNEVEN:
                raise ConfigError(f"held_out: {problem.found}; expected {problem.expected}. fix: {problem.fix}")

    def notes(self) -> list[str]:
        """Return what is held out, in one sentence, and a warning if it is far from the asked share."""
        if self._split is None:
            return []
        events, at = len(self._split.test.targets), self._split.at
        share = events / (events + len(self.train))
        unit = "each user's first basket there" if self.log.has_baskets else "the next event"
        chosen = f"; {self._selection:.0%} of its users choose the policy, the others measure it"
        apart = chosen if self._selection < 1.0 else ""
        later = "; the weight of Q by rewards until the session's end" if self.log.has_item_propensities else ""
        problems = [one for one in self._split.report.problems if one.check == OTHER_SHARE]
        return [
            f"held out: {events:,} events ({share:.1%}) from {moment_text(at)} on; lists are measured by {unit}{apart}"
            f"{later}",
            *(f"{one.found}, expected {one.expected}: {one.fix}" for one in problems),
        ]

    @property
    def held_out_ids(self) -> list[Any]:
        """The time from which events are held out."""
        return [] if self._split is None else [f"from {self._split.at}"]

    def sketches(self) -> dict[str, Any]:
        """Return no sketches, because lists are not judged as decisions are."""
        return {}

    def scaler(self, observations: bool, algorithm: Any) -> Scaler:
        """Fit the scale of rewards on the training period, by the algorithm's `reward_scaling` if it has one."""
        rule: RewardScaling | None = getattr(algorithm, "reward_scaling", None)
        return Scaler() if rule is None else Scaler({}, {}, *rule(self.rewards(algorithm)))

    def rewards(self, algorithm: Any) -> LoggedRewards:
        """Return the rewards of the training period; its episodes are sessions."""
        log, ends = self.train, self.train.episodes
        absolute = bool(getattr(algorithm, "absolute_rewards", False))
        return LoggedRewards(
            log.reward.astype(np.float64), np.append(0, ends + 1), log.terminated[ends], absolute=absolute
        )

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> Stores:
        """Return the stores that training reads."""
        return self._stores(algorithm, self.train, scaler)

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, StoredInteractions] | None:
        """Return the stores that validation reads, or None if nothing is held out."""
        return None if self._choosing is None else self._stores(algorithm, self._choosing, scaler)

    def q_weight_selection(self) -> QWeightSelection | None:
        """Return the selection of the weight of Q, or None if nothing is held out."""
        if self._choosing is None:
            return None
        return QWeightSelection(self._choosing, self.notes(), self.train, self._reported)

    def _stores(self, algorithm: Algorithm, log: Interactions, scaler: Scaler) -> dict[str, StoredInteractions]:
        return {name: _stored(log, store_spec, scaler) for name, store_spec in algorithm.stores(self.log.spec).items()}


def _stored(log: Interactions, store_spec: StoreSpec, scaler: Scaler) -> StoredInteractions:
    if len(log) < 2:
        raise LogError(f"the log has {len(log)} event(s), expected at least 2. fix: use a longer log", log.report)
    slates, users, gaps, user_ids = (name in store_spec.columns for name in ("slate", "user", "time", "user_id"))
    stored = store_interactions(log, store_spec.targets, slates, users, gaps, user_ids)
    return stored._replace(reward=float32(scaler.reward(log.reward)))


def user_selection_share(share: float | None, best: str | None, held_out: float, log: Interactions) -> float:
    """Return the share of the held-out users that choose the policy: `share`, or by default half of many."""
    users = 0
    if best is not None and share is None and held_out > 0:
        test = log.split(share=held_out).test
        users = len(np.unique(test.user[test.targets]))
    return share_of(share, best, held_out, users / (held_out or 1.0), SELECTION)


def check_list_options(
    scale: str | None,
    split_seed: int,
    episodes: Mapping[str, int],
    data_share: float = 1.0,
) -> None:
    """Raise ConfigError for options of `fit` that have no effect on interactions."""
    if scale is not None:
        raise ConfigError(f"scale = {scale!r}: interactions have no observations to scale. fix: drop scale")
    if data_share != 1.0:
        raise ConfigError(
            f"data_share = {data_share}: interactions are split by time, not by episode. fix: drop data_share"
        )
    if split_seed:
        raise ConfigError(
            f"split_seed = {split_seed}: interactions are split by time, not at random. fix: drop split_seed"
        )
    if episodes:
        raise ConfigError(
            f"evaluate: found the environments {', '.join(episodes)}, but a policy of lists cannot act in them. fix: "
            "pass a function of the policy"
        )
