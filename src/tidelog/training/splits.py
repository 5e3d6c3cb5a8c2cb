"""Held-out episodes, held-out time, and what they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.contract import Algorithm, StoreSpec
from tidelog.algorithms.sampling import Stored
from tidelog.data.log import Log
from tidelog.data.statistics import LoggedRewards, RewardScaling, Scaler, Sketch
from tidelog.errors import ConfigError, LogError
from tidelog.networks.layers import float32
from tidelog.policies.policy import Policy
from tidelog.policies.statistics import simultaneous_differences
from tidelog.recommend.interactions import (
    OTHER_SHARE,
    UNEVEN,
    Cases,
    Interactions,
    held_out_cases,
    moment_text,
    split_users,
)
from tidelog.recommend.next_item import StoredInteractions, store_interactions
from tidelog.runtime.ranking import MARKS, Found, order_found
from tidelog.training.loop import MOST_BATCHES, Stores
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


# The weight of Q in the score of a list, selected by held-out events.
#
# A log of chosen items shows the value of chosen items, not the value of shown items; the held-out events, which are
# not used for training, measure how much Q helps. The weight is 0 unless a gain over likelihood alone is shown: the 95%
# intervals of the gains of all weights hold together.
#
# Where the log has the propensity of each item, a gain counts all rewards until the session's end. It is that of one
# decision by the policy, after which the logger goes on: whole sessions under the policy are hardly ever in a log.

WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
MOST_EVENTS = 2_048  # limit of held-out events, or baskets, with lists
LENGTH = 10  # of those lists
MOST_WITH_PROPENSITIES = 16_384  # in place of MOST_EVENTS: only events count that showed the first item of a list
LEAST_USERS = 30  # that such a gain rests on
_DECIDES = f"reward_ndcg@{LENGTH}"
LISTS = tuple(  # metric names of the lists for the held-out period
    f"held_out/{name}"
    for name in (f"hit@{LENGTH}", f"ndcg@{LENGTH}", f"reward@{LENGTH}", _DECIDES, "coverage", "entropy", "q_weight")
)


class QWeightSelection:
    """Lists for a sample of held-out events, or of users with their first held-out basket; always the same sample.

    `reported` has the held-out events that choose nothing, where there are such; else it is `log`.
    """

    def __init__(
        self,
        log: Interactions,
        notes: Sequence[str] = (),
        train: Interactions | None = None,
        reported: Interactions | None = None,
    ) -> None:
        self.notes, self.train, self.reported = tuple(notes), train, log if reported is None else reported
        most = MOST_WITH_PROPENSITIES if log.has_item_propensities else MOST_EVENTS
        self.log, self._most = log, max(1, min(most, MARKS // (len(log.items) + 1)))

    def __call__(self, policy: Policy) -> tuple[float, dict[str, float]]:
        """Return the weight of Q whose lists have the most reward, and the metrics of these lists.

        That is the reward near their top for the next event; with propensities, the reward until the session's end if
        the first item is shown. It is 0 unless the interval of its gain over weight 0 is above 0, simultaneously with
        those of the other weights. A Q without updates has weight 0; no other weight is tried.
        """
        ranker = policy.ranker()
        k = min(LENGTH, ranker.items)
        cases = held_out_cases(self.log, self._most, policy.algorithm.reach)
        allowed = np.ones((len(cases), ranker.items + 1), bool)
        allowed[:, 0] = False
        scores = ranker.find(cases.histories, k, allowed)
        weights = _weights(policy)
        results = [self._metrics(scores, cases, k, weight) for weight in weights]
        earned = [one for one, _ in results]
        if self.log.has_item_propensities:
            first = [order_found(scores, 1, weight)[0][:, 0] for weight in weights]
            earned = rewards_if_shown(self.log, cases, first, float(policy.algorithm.discount))
        best = _best_weight(earned, cases.user)
        metrics = {f"held_out/{name}": value for name, value in results[best][1].items()}
        return weights[best], metrics | {"held_out/q_weight": weights[best]}

    def _metrics(
        self, scores: Found, cases: Cases, k: int, weight: float
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Return the discounted reward of the lists of each case [C], and the metrics of all lists."""
        items, _ = order_found(scores, k, weight)
        hits, earned = np.zeros(items.shape, bool), np.zeros(items.shape)
        for place, listed in enumerate(items.T):
            same = listed[:, None] == cases.targets
            hits[:, place], earned[:, place] = same.any(axis=1), (same * cases.rewards).sum(axis=1)
        gain = 1.0 / np.log2(np.arange(k) + 2.0)
        ideal = np.cumsum(gain)[np.minimum((cases.targets > 0).sum(axis=1), k) - 1]
        counts = np.bincount(items.reshape(-1)).astype(np.float64)
        share = counts[counts > 0] / counts.sum()
        discounted = (earned * gain).sum(axis=1)
        return discounted, {
            f"hit@{LENGTH}": float(hits.any(axis=1).mean()),
            f"ndcg@{LENGTH}": float(((hits * gain).sum(axis=1) / ideal).mean()),
            f"reward@{LENGTH}": float(earned.sum(axis=1).mean()),
            _DECIDES: float(discounted.mean()),
            "coverage": float((counts > 0).sum() / len(self.log.items)),
            "entropy": float(-(share * np.log(share)).sum()),
        }


def rewards_if_shown(
    log: Interactions, cases: Cases, first: Sequence[NDArray[Any]], discount: float
) -> list[NDArray[np.float64]]:
    """Return parts [C] of the mean reward until the session's end, if an item is shown once and the logger goes on.

    `first` are several choices of an item for each case [C], of which the first is compared with the others: one that
    differs from it for the events of fewer than `LEAST_USERS` users has its rewards. Inverse propensities weigh the
    events that showed the item; less the mean reward, which lowers the variance of a difference, and not its mean.
    """
    later = log.rewards_to_end(discount)[cases.row]
    weight = (later - later.mean()) / np.asarray(log.propensity, np.float64)[cases.row]
    shown = [one == log.item[cases.row] for one in first]
    users = [len(np.unique(cases.user[one != shown[0]])) for one in shown]
    return [
        np.where(one if number >= LEAST_USERS else shown[0], weight, 0.0)
        for one, number in zip(shown, users, strict=True)
    ]


def _best_weight(earned: Sequence[NDArray[np.float64]], user: NDArray[Any]) -> int:
    """Return the place of the largest gain over the first one that is shown to be above 0; without one the first.

    `earned` [C] are the rewards of cases, whose users are `user` [C]; intervals resample users. The mean over cases is
    a ratio of sums over users, whose part in it is linear in their sums and their numbers of cases.
    """
    users, owner = np.unique(user, return_inverse=True)
    if len(earned) == 1 or len(users) < 2:
        return 0
    cases = np.bincount(owner, minlength=len(users)) * len(users) / len(owner)  # [U], mean 1
    sums = np.stack([np.bincount(owner, one, len(users)) for one in earned]) * len(users) / len(owner)
    parts = sums + sums.mean(axis=1, keepdims=True) * (1.0 - cases)  # [weights, U]: their means are those over cases
    gains = [one for one in simultaneous_differences(parts, replicates=2_000, other=0) if one.interval.low > 0.0]
    return max(gains, key=lambda gain: (gain.interval.estimate, -gain.one)).one if gains else 0


def _weights(policy: Policy) -> tuple[float, ...]:
    """Return the weights of Q to choose from: only 0 without updates of Q, else the set one or all."""
    if not policy.algorithm.q_metrics(policy.params)["q_updates"]:
        return (0.0,)
    q_weight = policy.algorithm.q_weight
    return WEIGHTS if q_weight is None else (float(q_weight),)


# The split of interactions by time: the earlier period is for training, the later period is held out.

REPORTS = 20  # reports of a run by default: each makes lists for the held-out period
SELECTION_OF_USERS = 0.5  # share of the held-out users that choose the policy, by default


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
                raise ConfigError(f"held_out: {problem.found}", problem.expected, problem.fix)

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
        raise LogError(f"the log has {len(log)} event(s)", "at least 2", "use a longer log", report=log.report)
    stored = store_interactions(log, store_spec.targets, store_spec.columns)
    return stored._replace(reward=float32(scaler.reward(log.reward)))


def user_selection_share(share: float | None, best: str | None, held_out: float, log: Interactions) -> float:
    """Return the share of the held-out users that choose the policy: `share`, or by default half of many."""
    users = 0
    if best is not None and share is None and held_out > 0:
        test = log.split(share=held_out).test
        users = len(np.unique(test.user[test.targets]))
    return selection_share(share, best, held_out, users / (held_out or 1.0), SELECTION_OF_USERS)


def check_list_options(
    scale: str | None,
    split_seed: int,
    episodes: Mapping[str, int],
    data_share: float = 1.0,
) -> None:
    """Raise ConfigError for options of `fit` that have no effect on interactions."""
    if scale is not None:
        raise ConfigError(f"scale = {scale!r}: interactions have no observations to scale", fix="drop scale")
    if data_share != 1.0:
        raise ConfigError(
            f"data_share = {data_share}: interactions are split by time, not by episode", fix="drop data_share"
        )
    if split_seed:
        raise ConfigError(
            f"split_seed = {split_seed}: interactions are split by time, not at random", fix="drop split_seed"
        )
    if episodes:
        raise ConfigError(
            f"evaluate: found the environments {', '.join(episodes)}, but a policy of lists cannot act in them",
            fix="pass a function of the policy",
        )
