"""The held-out period of interactions: the split by time, its lists, and the weight of Q that they choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.algorithms.contract import Algorithm
from tidelog.data.statistics import LoggedRewards, RewardScaling, Scaler
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
from tidelog.runtime.ranking import MARKS, FoundItems, order_found

# The weight of Q in the score of a list, selected by held-out events.
#
# A log of chosen items shows the value of chosen items, not the value of shown items; the held-out events, which are
# not used for training, measure how much Q helps. The weight is 0 unless a gain over likelihood alone is shown: the 95%
# intervals of the gains of all weights hold together.
#
# Where the log has the propensity of each item, a gain counts all rewards until the session's end. It is that of one
# decision by the policy, after which the behaviour policy goes on: whole sessions under the policy are hardly ever in a
# log.

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

    def measure(self, policy: Policy) -> tuple[float, dict[str, float]]:
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
        weights: tuple[float, ...] = WEIGHTS
        if not policy.algorithm.policy_metrics(policy.params)["q_updates"]:
            weights = (0.0,)
        elif policy.algorithm.q_weight is not None:
            weights = (float(policy.algorithm.q_weight),)
        results = [self._metrics(scores, cases, k, weight) for weight in weights]
        earned = [one for one, _ in results]
        if self.log.has_item_propensities:
            first = [order_found(scores, 1, weight)[0][:, 0] for weight in weights]
            earned = rewards_if_shown(self.log, cases, first, float(policy.algorithm.discount))
        best = _best_weight(earned, cases.user)
        metrics = {f"held_out/{name}": value for name, value in results[best][1].items()}
        return weights[best], metrics | {"held_out/q_weight": weights[best]}

    def apply(self, algorithm: Any, state: Any, choice: float) -> Any:
        """Return the state of a member with a weight of Q."""
        return algorithm.with_q_weight(state, choice)

    def _metrics(
        self, scores: FoundItems, cases: Cases, k: int, weight: float
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Return the discounted reward of the lists of each case [C], and the metrics of all lists."""
        items, _ = order_found(scores, k, weight)
        hits, earned = np.zeros(items.shape, bool), np.zeros(items.shape)
        for position, listed in enumerate(items.T):
            same = listed[:, None] == cases.targets
            hits[:, position], earned[:, position] = same.any(axis=1), (same * cases.rewards).sum(axis=1)
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
    """Return parts [C] of the mean reward until the session's end, if an item is shown once and the behaviour policy
    goes on.

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


# The split of interactions by time: the earlier period is for training, the later period is held out.

REPORTS_OF_LISTS = 20  # reports of a run by default: each makes lists for the held-out period
SELECTION_OF_USERS = 0.5  # share of the held-out users that choose the policy, by default


class TimeSplit:
    """Interactions split by time; with `held_out` 0 nothing is held out.

    Of the users with held-out events, the share `selection` chooses the policy and the weight of Q, and the lists of
    the others are reported. With 1, all of them are for both.
    """

    metrics = LISTS  # of its choosers, in reports

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

    def prepared(self, member: Any, learner: Any, policy: Policy | None = None) -> Any:
        """Return a fresh learner with the facts of the items of the training period, and a policy's weight of Q."""
        algorithm = member.algorithm
        state = algorithm.with_item_facts(learner.state, self.train, member.seed)
        if policy is not None:
            weight = policy.algorithm.policy_metrics(policy.params)["q_weight"]
            state = algorithm.with_q_weight(state, weight)
        return learner._replace(state=state)

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

    def stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, StoredInteractions]:
        """Return the stores that training reads."""
        return self._stores(algorithm, self.train, scaler)

    def validation_stores(self, algorithm: Algorithm, scaler: Scaler) -> dict[str, StoredInteractions] | None:
        """Return the stores that validation reads, or None if nothing is held out."""
        return None if self._choosing is None else self._stores(algorithm, self._choosing, scaler)

    @property
    def chooser(self) -> QWeightSelection | None:
        """The selection of the weight of Q, or None if nothing is held out."""
        if self._choosing is None:
            return None
        return QWeightSelection(self._choosing, self.notes(), self.train, self._reported)

    def _stores(self, algorithm: Algorithm, log: Interactions, scaler: Scaler) -> dict[str, StoredInteractions]:
        parts = {}
        for name, store_spec in algorithm.stores(self.log.spec).items():
            if len(log) < 2:
                raise LogError(f"the log has {len(log)} event(s)", "at least 2", "use a longer log", report=log.report)
            stored = store_interactions(log, store_spec.targets, store_spec.columns)
            parts[name] = stored._replace(reward=float32(scaler.reward(log.reward)))
        return parts


def held_out_users(log: Interactions, share: float) -> int:
    """Return the number of users with events in the held-out period."""
    test = log.split(share=share).test
    return len(np.unique(test.user[test.targets]))


def check_list_options(options: Mapping[str, Any], episodes: Mapping[str, int]) -> None:
    """Raise ConfigError for options of `fit` that have no effect on interactions."""
    for name, default, why in (
        ("scale", None, "have no observations to scale"),
        ("data_share", 1.0, "are split by time, not by episode"),
        ("split_seed", 0, "are split by time, not at random"),
    ):
        value = options.get(name, default)
        if value != default:
            raise ConfigError(f"{name} = {value!r}: interactions {why}", fix=f"drop {name}")
    if episodes:
        raise ConfigError(
            f"evaluate: found the environments {', '.join(episodes)}, but a policy of lists cannot act in them",
            fix="pass a function of the policy",
        )
