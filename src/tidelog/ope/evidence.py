"""Input of the estimators: a log's steps, the behaviour policy's and the target's probabilities, and a model's values.

Letters: `N` steps, `M` stored observations, `E` episodes, `A` number of actions or action size, `K` draws, `T` steps of
the longest episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.errors import ConfigError, LogError, SpecError
from tidelog.types import Codes, Continuous

# Episodes of a log as models read them: checks, clusters, folds for cross-fitting, elapsed time and recorded ends.
#
# Letters: `N` steps, `M` stored observations, `I` numbers in an observation, `E` episodes, `F` folds.

Ordinals = NDArray[np.int64]


def check_kind(log: Any) -> None:
    """Raise LogError if this is not a log."""
    if not isinstance(log, Log):
        raise LogError(f"expected a log, found {type(log).__name__}", fix="read it with tl.read_log(path, columns)")


def check_log(log: Log, discount: float) -> None:
    """Raise SpecError if a log has no reward or several, or goals in hindsight, ConfigError for an invalid discount."""
    if log.hindsight is not None:
        raise SpecError(
            f"this log's goals and rewards were chosen by what happened after the decisions ({log.hindsight})",
            "a log as it was recorded",
            "judge on episodes that were collected with a goal, or measure the policy in an environment",
        )
    if log.reward is None:
        raise SpecError(
            "this log has no rewards",
            "one reward column",
            "name it in the mapping, or add an array `reward` to the file, and train again",
        )
    if log.spec.rewards is not None:
        raise SpecError(
            f"this log has {log.spec.rewards} rewards",
            "one",
            'name one column as reward in the mapping, as in reward = "survived", or compute a '
            "weighted sum before reading the log",
        )
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0.0 <= discount <= 1.0:
        raise ConfigError(f"discount = {discount!r}", "a number in [0, 1]", "use 0.99")


LARGEST_SEED = 2**31 - 1  # of networks, and below what trees take


def check_risk(alpha: float, bad_outcome: float | None) -> None:
    """Raise ConfigError for an invalid share of worst episodes or an invalid bad outcome."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0.0 < alpha < 1.0:
        raise ConfigError(f"cvar = {alpha!r}", "a share of episodes between 0 and 1", "use cvar=0.1 for the worst 10%")
    if bad_outcome is None:
        return
    if isinstance(bad_outcome, bool) or not isinstance(bad_outcome, int | float) or not np.isfinite(bad_outcome):
        raise ConfigError(f"bad_outcome = {bad_outcome!r}", "a finite return", "use bad_outcome=-5.0, or remove it")


def clusters_of(log: Log) -> Ordinals | None:
    """Cluster of each episode, [E] from 0 without gaps; None if every episode is its own cluster."""
    clusters = np.asarray(log.clusters, np.int64)
    return None if int(clusters.max(initial=-1)) + 1 == len(clusters) else clusters


def episode_folds(log: Log, count: int, seed: int) -> Ordinals:
    """Fold of each episode, [E], determined by the seed; episodes of one cluster are in one fold.

    The folds' numbers of clusters (without a cluster column, of episodes) differ by at most one. Raises ConfigError for
    fewer than two folds, LogError for fewer clusters or episodes than folds.
    """
    clusters = log.clusters
    members = int(clusters.max(initial=-1)) + 1
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
        raise ConfigError(f"folds = {count!r}", "a whole number of at least 2", "use folds=5")
    if members < count:
        units = "episodes" if log.cluster is None else "clusters"
        raise LogError(
            f"this log has {members} {units}",
            f"at least {count}, one per fold",
            "judge on a longer log, or use fewer folds",
        )
    return np.asarray(np.random.default_rng([seed, 2]).permutation(members) % count, np.int64)[clusters]


def without(folds: Ordinals, fold: int) -> Ordinals:
    """Ordinals of the episodes for training a fold's models: all except the fold's own."""
    return np.flatnonzero(folds != fold)


def fold_of_steps(log: Log, folds: Ordinals) -> Ordinals:
    """Fold of each step, [N]."""
    return np.asarray(folds[np.asarray(log.episode)])


def out_of_fold(log: Log, folds: Ordinals, found: Sequence[NDArray[Any]], at: NDArray[Any] | None = None) -> Any:
    """Values of each step from its own fold: a list over folds of [N, ...], or [M, ...] read `at` [N] -> [N, ...]."""
    of, where = fold_of_steps(log, folds), np.arange(log.steps) if at is None else np.asarray(at)
    joined = np.empty((log.steps, *found[0].shape[1:]), bool if found[0].dtype == bool else np.float64)
    for fold, values in enumerate(found):
        joined[of == fold] = values[where[of == fold]]
    return joined


class Values(NamedTuple):
    """Cross-fitted model values at every step."""

    logged: Floats  # [N]: of the logged action
    target: Floats  # [N]: mean over the target's actions
    all_actions: Floats | None  # [N, A], of discrete actions


def join_folds(log: Log, folds: Ordinals, found: Sequence[Values]) -> Values:
    """Values at every step from those at the rows of each fold."""
    of = fold_of_steps(log, folds)
    back = np.argsort(np.concatenate([np.flatnonzero(of == fold) for fold in range(len(found))]))
    columns = zip(*found, strict=True)
    joined = [None if any(x is None for x in one) else np.concatenate(one)[back] for one in columns]
    return Values(*joined)  # type: ignore[arg-type]


def centred_rewards(log: Log, discount: float) -> tuple[Log, NDArray[np.float64]]:
    """The log with the rewards that models of values learn, and the value of the rest from each step, [N] or [1].

    If all episodes have the same length, these are the rewards minus their mean, and the value of that mean is added to
    the model's values: a constant added to every reward then changes no comparison.
    """
    lengths = np.diff(log.starts)
    if lengths.min() != lengths.max() or (log.spacing is not None and discount < 1.0):
        return log, np.zeros(1)  # the number of rewards to come, or when they come, depends on the actions
    reward = np.asarray(log.reward, np.float64)
    left = np.cumsum(float(discount) ** np.arange(lengths[0]))[::-1]
    known = np.tile(left * reward.mean(), len(lengths))
    return replace(log, reward=(reward - reward.mean()).astype(np.float32)), known


def elapsed_share(log: Log) -> NDArray[np.float32]:
    """[M, 1]: elapsed steps at each stored observation, as a share of the longest episode."""
    share = np.zeros((len(next(iter(log.observation.values()))), 1), np.float32)
    longest = np.diff(log.starts).max()
    share[np.asarray(log.next_position), 0] = (np.asarray(log.step) + 1) / longest
    share[np.asarray(log.position), 0] = np.asarray(log.step) / longest
    return share


def ends_by_clock(log: Log) -> bool:
    """Whether episodes end by a time limit: some are truncated, or all have the same length."""
    lengths = np.diff(log.starts)
    last = np.asarray(log.starts[1:]) - 1
    return bool(not np.asarray(log.terminated)[last].all() or (lengths.max() > 1 and lengths.min() == lengths.max()))


def observed_numbers(log: Log, episodes: Ordinals | None = None) -> NDArray[np.float32]:
    """[M, I]: observations as numbers scaled by these episodes (None: all), one-hot codes, images divided by 255."""
    leaves, parts = {name: np.asarray(leaf) for name, leaf in log.observation.items()}, list[NDArray[Any]]()
    for name, leaf in sorted(Scaler.fit(log, episodes=episodes).observation(leaves).items()):
        kind = log.spec.observation[name]
        if isinstance(kind, Codes):
            parts += [np.eye(size, dtype=np.float32)[leaf[:, c]] for c, size in enumerate(kind.sizes)]
        else:
            flat = leaf.reshape(len(leaf), -1).astype(np.float32)
            parts.append(flat / 255.0 if leaf.dtype == np.uint8 else flat)
    return np.concatenate(parts, axis=1)


# Atoms: values of continuous actions that a behaviour policy takes again and again, each with a probability of its own.
#
# "No change" is exactly 0, a dose is one of five strengths: such a behaviour policy has a probability at each of these
# values and a density elsewhere, and no single density describes both. A policy with a density never takes exactly an
# atom, so that rows there have no weight for it; a deterministic policy that takes one exactly has the probability 1 of
# it.
#
# A log may declare its atoms. Others are found by how often values repeat, compared with their neighbours: a value that
# stands out from these is an atom, and so is every repeated value of a coarse grid. The fine grid of rounded numbers is
# none: there a density is right. A value on a bound is not counted here (`checks.py` refuses clipped actions).
#
# Letters: `N` steps, `A` action size, `P` patterns, `V` different values of one dimension.

FEWEST, SHARE = 5, 0.005  # rows of an atom, and share of all rows: fewer are tolerated
TIMES, NEIGHBOURS = 5.0, 3  # an atom has more than so many times the rows of its neighbours, so many on each side
COARSE = 0.05  # of a grid, largest share of a value for which a density is right
_LISTED = 3

Actions = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Atoms:
    """The atoms of each dimension, and the patterns in which a log's actions lie on them.

    Pattern 0 is off all atoms; the others say in which dimensions an action lies on which atom.
    """

    values: tuple[Actions, ...]  # of each dimension, rising
    numbering: tuple[NDArray[np.int64], ...]  # of each dimension, codes of the patterns up to it, rising
    fixed: NDArray[np.float64]  # [P, A]: the atom of each pattern, NaN where it has none

    @property
    def patterns(self) -> int:
        """Number of patterns `P`."""
        return len(self.fixed)

    def lie_on(self, actions: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each number of actions [..., A] is an atom."""
        return np.stack([_codes(actions[..., d], own) > 0 for d, own in enumerate(self.values)], axis=-1)

    def pattern_of(self, actions: NDArray[np.floating]) -> NDArray[np.int64]:
        """The pattern [...] of actions [..., A]; -1 for one that the log has not."""
        pattern = np.zeros(actions.shape[:-1], np.int64)
        for d, (own, known) in enumerate(zip(self.values, self.numbering, strict=True)):
            code = pattern * (len(own) + 1) + _codes(actions[..., d], own)
            position = np.minimum(np.searchsorted(known, code), len(known) - 1)
            pattern = np.where(known[position] == code, position, -1)
        return pattern

    @property
    def text(self) -> str:
        """The atoms in words: "exactly 0", "one of 11 values (0, 0.1, 0.2, ...)"."""
        values = np.unique(np.concatenate(self.values))
        shown = ", ".join(f"{one:.4g}" for one in values[:_LISTED])
        if len(values) == 1:
            return f"exactly {shown}"
        return f"one of {len(values):,} values ({shown}{', ...' if len(values) > _LISTED else ''})"


def atoms_of(log: Log, *, declared: bool = True) -> Atoms | None:
    """The repeated values of a log's continuous actions, and the `declared` ones; None if there are none."""
    space = log.spec.action
    if not isinstance(space, Continuous):
        return None
    action = np.asarray(log.action, np.float32)
    named = np.asarray(log.atoms if declared else (), np.float32)
    values = tuple(
        np.union1d(named[np.isin(named, column)], repeated_values(column, low, high)).astype(np.float32)
        for column, low, high in zip(action.T, space.low, space.high, strict=True)
    )
    if not any(map(len, values)):
        return None
    numbering, pattern = [], np.zeros(len(action), np.int64)
    fixed = np.zeros((1, 0))  # of each pattern so far
    for column, own in zip(action.T, values, strict=True):
        code = pattern * (len(own) + 1) + _codes(column, own)
        known = np.unique(np.append(code, 0))  # the pattern off all atoms comes first, whether a row has it or not
        before, here = known // (len(own) + 1), known % (len(own) + 1)
        fixed = np.column_stack([fixed[before], np.append(np.nan, own)[here]])
        pattern = np.searchsorted(known, code)
        numbering.append(known)
    return Atoms(values, tuple(numbering), fixed)


def repeated_values(column: Actions, low: float, high: float) -> Actions:
    """The atoms of one dimension, [N] -> [V], strictly between its bounds."""
    values, counts = np.unique(column, return_counts=True)
    if len(values) < 2:
        return values[:0]
    inside = (values > np.float32(low)) & (values < np.float32(high))
    often = (counts >= FEWEST) & (counts >= SHARE * len(column)) & inside
    around = np.full((2 * NEIGHBOURS, len(values)), np.nan)
    for away in range(1, min(NEIGHBOURS, len(values) - 1) + 1):
        around[away - 1, away:], around[-away, :-away] = counts[:-away], counts[away:]
    # One more row than their median, for the values of a fine grid vary by chance; none where no neighbour repeats.
    usual = np.where(np.nanmax(around, axis=0) > 1, np.nanmedian(around, axis=0) + 1.0, 1.0)
    stands_out = often & (counts > TIMES * usual)
    most = float(counts[often & ~stands_out].max(initial=0))
    is_coarse = most - 2.0 * np.sqrt(most) > COARSE * len(column)  # more than chance explains
    return values[(counts > 1) & inside] if is_coarse else values[stands_out]


def _codes(column: NDArray[np.floating], own: Actions) -> NDArray[np.int64]:
    """0 for a number that is no atom, else one more than the atom's place among these."""
    if not len(own):
        return np.zeros(column.shape, np.int64)
    numbers = np.asarray(column, np.float32)
    position = np.minimum(np.searchsorted(own, numbers), len(own) - 1)
    return np.where(own[position] == numbers, position + 1, 0)


Floats = NDArray[np.float64]
MODEL_ROUNDING, SUM_ROUNDING = 1e-6, 1e-12  # of 32-bit models, relative to their targets; of 64-bit sums
BY_STEP = (  # fields of `Evidence` with one row per step
    "reward", "target", "behaviour", "model", "model_target", "target_all", "behaviour_all", "model_all", "occupancy",
    "action", "supported", "follows", "logged_reward", "known_chance", "elapsed",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Target:
    """A policy on a log."""

    logged: Floats  # [N]: probability or density of the logged action
    probabilities: Floats | None = None  # [M, A]: of discrete actions, at every stored observation
    actions: NDArray[np.float32] | None = None  # [M, K, A]: actions that represent the policy, where not discrete
    bandwidth: float | None = None  # of the kernel, if there is one
    follows: Floats | None = None  # [M]: of a part, probability that a decision is the policy's


@dataclass(frozen=True, eq=False)
class Evidence:
    """Steps in episode order under one target policy; densities where actions are continuous.

    `target_all`, `behaviour_all` and `model_all` exist only for discrete actions. Model values are cross-fitted: an
    episode's values come from a model that never saw it. None means not requested or not known.
    """

    starts: NDArray[np.int64]  # [E + 1]: first row of each episode, then N
    reward: Floats  # [N]
    target: Floats  # [N]: probability or density of the logged action under the target policy
    behaviour: Floats  # [N]: the same under the behaviour policy
    discount: float = 1.0
    model: Floats | None = None  # [N]: model value of the logged action
    model_target: Floats | None = None  # [N]: mean model value over the target's actions
    target_all: Floats | None = None  # [N, A]
    behaviour_all: Floats | None = None  # [N, A], always estimated, also for recorded propensities
    model_all: Floats | None = None  # [N, A]
    estimated: bool = False  # whether `behaviour` was estimated from the log
    occupancy: Floats | None = None  # [N]: cross-fitted occupancy ratio of (state, action), target over log
    action: NDArray[np.int64] | None = None  # [N]: the logged action, if actions are discrete
    supported: NDArray[np.bool_] | None = None  # [N, A]: other episodes show the action taken; [N, 1]: all of them
    clusters: NDArray[np.int64] | None = None  # [E]: cluster of each episode, 0 .. C-1; None: each is its own cluster
    follows: Floats | None = None  # [N]: of a part (`part_of`), probability that a decision is the policy's; None: 1
    logged_reward: Floats | None = None  # [N]: NaN where it is unknown, and `reward` stands in; None: all are known
    known_chance: Floats | None = None  # [N]: estimated probability that the reward is known
    elapsed: Floats | None = None  # [N]: units of time to the next decision; None: one unit each

    def __post_init__(self) -> None:
        steps = len(self.reward)
        if len(self.starts) < 2 or self.starts[0] != 0 or self.starts[-1] != steps or (np.diff(self.starts) < 1).any():
            raise SpecError("invalid starts", f"numbers rising from 0 to {steps} (the number of steps)")
        for name in ("reward", "target", "behaviour", "model", "model_target", "occupancy", "follows", "elapsed"):
            _check(name, getattr(self, name), (steps,))
        for name in ("target_all", "behaviour_all", "model_all"):
            values = getattr(self, name)
            _check(name, values, (steps, *np.shape(values)[1:2]))
        for name, rows in (("action", steps), ("supported", steps), ("clusters", len(self.starts) - 1)):
            values = getattr(self, name)
            if values is not None and len(values) != rows:
                raise SpecError(f"{name} has {len(values)} rows", f"{rows}")
        if (self.target < 0).any() or not (self.behaviour > 0).all():
            raise SpecError("target or behaviour is out of range", "target >= 0 and behaviour > 0 in every step")

    @cached_property
    def step_discount(self) -> Any:
        """The discount of what follows each step, [N]; a number where all decisions are one unit of time apart."""
        return self.discount if self.elapsed is None else np.power(self.discount, self.elapsed)

    @cached_property
    def step(self) -> NDArray[np.int64]:
        """[N]: how many steps of its episode come before each step."""
        return np.arange(len(self.reward)) - np.repeat(self.starts[:-1], self.lengths)

    @property
    def episodes(self) -> int:
        """Number of episodes `E`."""
        return len(self.starts) - 1

    @property
    def unit_of(self) -> NDArray[np.int64]:
        """[E]: the independent unit of each episode, its cluster or itself."""
        return np.arange(self.episodes) if self.clusters is None else self.clusters

    @property
    def units(self) -> int:
        """Number of independent units: clusters if there are any, else episodes."""
        return self.episodes if self.clusters is None else int(self.clusters.max()) + 1

    @cached_property
    def rounding(self) -> float:
        """The largest difference between returns that rounding may have made.

        Models and weights are 32-bit: their errors are a share of what they are fitted to, the rewards as
        `centred_rewards` returns them. Sums are 64-bit: their errors are a share of the rewards as they are.
        """
        reward, lengths = np.asarray(self.reward, np.float64), self.lengths
        is_centred = lengths.min() == lengths.max() and self.elapsed is None
        fitted = reward - reward.mean() if is_centred else reward
        of_models, of_sums = (np.add.reduceat(np.abs(size), self.starts[:-1]).max() for size in (fitted, reward))
        return float(MODEL_ROUNDING * of_models + SUM_ROUNDING * of_sums)

    @property
    def recorded_reward(self) -> Floats:
        """[N]: rewards as logged; what stands in for an unknown one lies within the range of the known ones."""
        if self.logged_reward is None:
            return self.reward
        logged = self.logged_reward
        return np.where(np.isnan(logged), np.clip(self.reward, np.nanmin(logged), np.nanmax(logged)), logged)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode, [E]."""
        return np.diff(self.starts)

    @property
    def horizon(self) -> int:
        """Steps of the longest episode, `T`."""
        return int(self.lengths.max())

    @property
    def policy_share(self) -> float:
        """The share of decisions that are the policy's, and not left to the present practice: 1 but for a part."""
        return 1.0 if self.follows is None else float(self.follows.mean())

    @property
    def own_all(self) -> Floats | None:
        """[N, A]: the part of `target_all` that the policy decides, and not the present practice."""
        if self.follows is None or self.target_all is None or self.behaviour_all is None:
            return self.target_all
        return np.maximum(self.target_all - (1.0 - self.follows[:, None]) * self.behaviour_all, 0.0)

    def part_of(self, follows: Floats) -> Evidence:
        """The evidence about the policy that decides with these probabilities [N], and else leaves the decision.

        A decision that is left to the present practice is the logged one: its weight is 1, whatever the propensity is,
        and its value is that of the logged action. Sequential doubly robust estimates stay unbiased with the values of
        the whole policy: they are control variates.
        """
        left = 1.0 - follows

        def mixed(own: Floats | None, practice: Floats | None) -> Floats | None:
            if own is None or practice is None:
                return None
            shape = (-1,) + (1,) * (own.ndim - 1)
            return follows.reshape(shape) * own + left.reshape(shape) * practice

        target = np.where(follows == 0.0, self.behaviour, follows * self.target + left * self.behaviour)
        single = self.horizon == 1  # with one decision the ratio of visits is that of the actions
        return replace(
            self,
            target=target,
            target_all=mixed(self.target_all, self.behaviour_all),
            model_target=mixed(self.model_target, self.model),
            occupancy=target / self.behaviour if single and self.occupancy is not None else None,
            follows=follows,
        )

    def of_rows(self, rows: NDArray[Any], lengths: NDArray[np.int64], **changes: Any) -> Evidence:
        """The evidence about these steps, marked in [N] or by number, in episodes of these lengths."""
        arrays = {name: getattr(self, name) for name in BY_STEP}
        parts: dict[str, Any] = {name: None if values is None else values[rows] for name, values in arrays.items()}
        return replace(self, starts=np.append(0, np.cumsum(lengths)), **parts, **changes)

    def of_episodes(self, chosen: NDArray[np.bool_]) -> Evidence:
        """The evidence about these episodes, marked in [E]."""
        clusters = None if self.clusters is None else np.unique(self.clusters[chosen], return_inverse=True)[1]
        return self.of_rows(np.repeat(chosen, self.lengths), self.lengths[chosen], clusters=clusters)


def _check(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if values is None:
        return
    if np.shape(values) != shape:
        raise SpecError(f"{name} has shape {np.shape(values)}", f"{shape}")
    if not np.isfinite(values).all():
        raise SpecError(f"{name} contains {values[~np.isfinite(values)][0]}", "finite numbers")
