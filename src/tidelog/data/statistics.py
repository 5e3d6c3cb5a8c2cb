"""Statistics of a log, the overlap of two logs, and their figure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelog._text import in_unit
from tidelog.data.log_columns import LogColumns, ranges
from tidelog.data.raw import Values
from tidelog.errors import CheckpointError, ConfigError
from tidelog.plots import WIDTH, Plot, bars, figure, histogram
from tidelog.schema import Count, typed
from tidelog.types import Codes, Discrete, Hybrid, Image, MultiDiscrete, Vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Statistics of a log.

_CHUNK = 65_536
_PIXELS = 1 << 22
_MOST_COUNTED = 1_000_000  # codes


@dataclass(frozen=True)
class Statistics:
    """Plain numbers, lists and dictionaries; returns are undiscounted sums of an episode's rewards.

    `lengths`, `returns` and `propensities` hold min, mean, median and max. `actions` holds counts (discrete) or mean,
    std, min and max per dimension. `features` holds mean, std, min and max of each numeric column, and of all pixels of
    an image, over all stored observations. `categories` holds the count of each code in the stored observations.
    `missing_propensities` is a share of the rows.
    """

    episodes: int
    steps: int
    observations: int
    terminated: int
    truncated: int
    without_target: int
    lengths: dict[str, float]
    returns: dict[str, Any] | None
    rewards: dict[str, Any] | None
    actions: dict[str, Any]
    propensities: dict[str, Any] | None
    missing_propensities: float
    features: dict[str, dict[str, float]]
    categories: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return asdict(self)


def describe(log: LogColumns) -> Statistics:
    """Compute the statistics of a log."""
    returns = episode_returns(log)
    return Statistics(
        episodes=len(log.episode_ids),
        steps=log.steps,
        observations=int(log.next_position[-1]) + 1,
        terminated=int(log.terminated.sum()),
        truncated=int(log.truncated.sum()),
        without_target=int((~log.has_target).sum()),
        lengths=summary(np.diff(log.starts)),
        returns=None if returns is None else summary(returns),
        rewards=None if log.reward is None else summary(_known(log.reward, log.reward_known)),
        actions=_actions(log),
        propensities=None if log.propensity is None else summary(log.propensity),
        missing_propensities=1.0 if log.propensity is None else 0.0,
        features=dict(_features(log)),
        categories=dict(_categories(log)),
    )


def elapsed_times(log: LogColumns) -> dict[str, Any] | None:
    """The times to the next decision that count (`LogColumns.continues`), summed up; None without any."""
    times = None if log.elapsed is None else np.asarray(log.elapsed)[log.continues]
    return None if times is None or not len(times) else summary(times)


def _known(values: Values, known: Values | None) -> Values:
    return values if known is None else values[known]


def episode_returns(log: LogColumns) -> Values | None:
    """[E'] or [E', K] float64: the undiscounted sum of rewards of each episode that has them all; None without any."""
    if log.reward is None:
        return None
    returns: Values = np.add.reduceat(log.reward.astype(np.float64), log.starts[:-1], axis=0)
    return _known(returns, None if log.reward_known is None else log.has_return)


def returns_to_go(reward: Values, starts: Any, discount: Any) -> Values:
    """Discounted returns [N] or [N, K] from each step on; `discount` is a number, or that of what follows each step."""
    returns, lengths = reward.copy(), np.diff(starts)
    factors = discount if np.ndim(discount) else None
    for before in range(1, int(lengths.max())):
        rows = starts[1:][lengths > before] - 1 - before
        returns[rows] += (discount if factors is None else factors[rows]) * returns[rows + 1]
    return returns


def rewards_are_equal(log: LogColumns) -> bool:
    """Whether all rewards and all returns are equal, so that nothing can be learnt from them; False without rewards."""
    if log.reward is None:
        return False
    reward = _known(log.reward, log.reward_known)
    if reward.min() != reward.max():
        return False
    lengths = np.diff(log.starts)
    return float(reward.flat[0]) == 0.0 or bool((lengths == lengths[0]).all())


def actions_are_equal(log: LogColumns) -> bool:
    """Whether every decision is the same action, so that nothing shows what another action earns."""
    return bool((log.action.min(axis=0) == log.action.max(axis=0)).all())


def summary(values: Values) -> dict[str, Any]:
    """Minimum, mean, median and maximum along the first axis, as numbers or lists."""
    wide = values.astype(np.float64)
    measures = {"min": wide.min(axis=0), "mean": wide.mean(axis=0)}
    measures |= {"median": np.median(wide, axis=0), "max": wide.max(axis=0)}
    return {name: np.asarray(value).tolist() for name, value in measures.items()}


def moments(values: Any) -> tuple[Values, Values]:
    """Mean and standard deviation [O] float64 of `[M, O]`, in two passes over chunks to limit memory."""
    chunks = range(0, len(values), _CHUNK)
    mean = sum(values[at : at + _CHUNK].astype(np.float64).sum(axis=0) for at in chunks) / len(values)
    squares = sum(np.square(values[at : at + _CHUNK].astype(np.float64) - mean).sum(axis=0) for at in chunks)
    return np.asarray(mean), np.sqrt(np.asarray(squares) / len(values))


def whole_columns(values: Any, fills: Values) -> list[int]:
    """Return the columns of `[M, O]` that have only whole numbers, or the values of `fills` [O], in one pass."""
    columns = np.arange(len(fills))
    for at in range(0, len(values), _CHUNK):
        if not len(columns):
            break
        chunk = values[at : at + _CHUNK][:, columns]
        columns = columns[((chunk == np.round(chunk)) | (chunk == fills[columns])).all(axis=0)]
    return [int(column) for column in columns]


def _actions(log: LogColumns) -> dict[str, Any]:
    space = log.spec.action
    if isinstance(space, Discrete):
        return {"counts": _counts(log.action, space.n, space.names)}
    if isinstance(space, MultiDiscrete):
        columns = (_counts(log.action[:, position], size) for position, size in enumerate(space.sizes))
        return {"counts": {str(position): list(counts.values()) for position, counts in enumerate(columns)}}
    numbers, counts = log.action, {}
    if isinstance(space, Hybrid):
        codes = np.asarray(space.codes)
        numbers = np.asarray(log.action)[:, codes == 0]
        choices = {name: part.names for name, part in space.parts if isinstance(part, Discrete)}
        for column in np.flatnonzero(codes):
            label = space.labels[column]
            each = _counts(log.action[:, column].astype(np.int64), int(codes[column]), choices.get(label, ()))
            counts[label] = list(each.values())
    mean, std = moments(numbers)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    measures = {"mean": mean.tolist(), "std": std.tolist(), "min": low.tolist(), "max": high.tolist()}
    return (measures if numbers.size else {}) | ({"counts": counts} if counts else {})


def _features(log: LogColumns) -> Iterator[tuple[str, dict[str, float]]]:
    for name, leaf in log.observation.items():
        if isinstance(log.spec.observation[name], Codes):
            continue
        if isinstance(log.spec.observation[name], Image):
            yield name, _image(leaf)
            continue
        mean, std = moments(leaf)
        measures = {"mean": mean, "std": std, "min": leaf.min(axis=0), "max": leaf.max(axis=0)}
        for position, label in enumerate(labels_of_leaf(log, name)):
            yield label, {measure: float(values[position]) for measure, values in measures.items()}


def _image(leaf: Values) -> dict[str, float]:
    """Statistics of all pixels of `[M, H, W, C]`, computed in chunks."""
    chunk = max(1, _PIXELS // leaf[0].size)
    sums = np.zeros(2)
    for at in range(0, len(leaf), chunk):
        counts = np.bincount(leaf[at : at + chunk].reshape(-1), minlength=256)
        sums += counts @ np.arange(256), counts @ np.arange(256) ** 2
    mean, square = sums / leaf.size
    std = float(np.sqrt(max(square - mean**2, 0.0)))
    return {"mean": float(mean), "std": std, "min": float(leaf.min()), "max": float(leaf.max())}


def _categories(log: LogColumns) -> Iterator[tuple[str, dict[str, int]]]:
    for name, leaf in log.observation.items():
        spec = log.spec.observation[name]
        if isinstance(spec, Codes):
            for position, label in enumerate(labels_of_leaf(log, name)):
                words = spec.vocabularies[position] if spec.vocabularies else ()
                yield label, _counts(leaf[:, position], spec.sizes[position], words)


def _counts(codes: Values, size: int, names: Sequence[str] = ()) -> dict[str, int]:
    """The number of rows with each code by its name; of very many codes, only those that occur."""
    if size > _MOST_COUNTED:
        found, counts = np.unique(codes, return_counts=True)
    else:
        found, counts = np.arange(size), np.bincount(codes, minlength=size)
    return {
        names[code] if names else str(code): count for code, count in zip(found.tolist(), counts.tolist(), strict=True)
    }


def labels_of_leaf(log: LogColumns, name: str) -> list[str]:
    """The names of the columns of a leaf; positions where they have none."""
    leaf = log.spec.observation[name]
    if isinstance(leaf, Image):
        return [name]
    width = len(leaf.sizes) if isinstance(leaf, Codes) else leaf.size
    return list(leaf.names) or [f"{name}[{position}]" for position in range(width)]


# Overlap between training and evaluation episodes, estimated from a sketch of 16 kB.
#
# Every episode has a 64-bit fingerprint of its name, its actions, its rewards and its first observation. A sketch holds
# the smallest fingerprints (a bottom-k sketch, Cohen & Kaplan 2007). It answers for the episodes of another log with
# fingerprints in its range whether the first log contains them. Up to `SIZE` episodes this is exact.
#
# Categories are hashed by label and features by name: the order of columns and of codes does not matter.
# Letters: `E` episodes, `N` steps.

Hashes = NDArray[np.uint64]
SIZE = 1024  # fingerprints in a sketch
BLOCK = 1 << 21  # steps hashed at once
PIXELS = 1 << 22  # pixels hashed at once
SURE = 0.05  # significance level: an excess with a larger p-value does not count


class Overlap(NamedTuple):
    """The number of evaluation episodes within a sketch's range, and how many of them the sketch contains."""

    known: int  # evaluation episodes with fingerprints in the sketch's range
    shared: int  # those of them that the sketch contains
    exact: bool  # whether the sketch holds all episodes
    chance: float = 0.0  # share of other episodes that look the same: those of one number in two logs (`chance_of`)

    @property
    def share(self) -> float:
        """The estimated share of shared episodes; NaN if no episode is in the sketch's range."""
        return self.shared / self.known if self.known else math.nan

    def exceeds(self, share: float) -> bool:
        """Whether the overlap is larger than `share`, and chance alone does not explain it.

        For a sampled sketch it must be significantly larger (binomial test).
        """
        if not self.shared or self.share <= share:
            return False
        if self.exact or share in (0.0, 1.0):
            return not self.chance or self._odds_of_so_many(self.chance) < SURE
        return self._odds_of_so_many(share + (1.0 - share) * self.chance) < SURE

    def _odds_of_so_many(self, share: float) -> float:
        """The probability that at least so many are shared if each is with this probability."""
        from scipy.special import bdtrc

        return float(bdtrc(self.shared - 1, self.known, share))


@dataclass(frozen=True, eq=False)
class Sketch:
    """The smallest fingerprints of a log's episodes."""

    episodes: int
    smallest: Hashes  # [at most SIZE], sorted
    rewards: bool  # whether fingerprints include rewards

    @classmethod
    def of(cls, log: LogColumns, ordinals: NDArray[Any] | None = None) -> Sketch:
        """Build the sketch of a log, or of the episodes with these ordinals."""
        fingerprints, count, rewards = np.zeros(0, np.uint64), 0, log.reward is not None
        for hashes in _blocks(log, ordinals, rewards):
            count += len(hashes)
            few = hashes if len(hashes) <= SIZE else np.partition(hashes, SIZE - 1)[:SIZE]
            smallest = np.unique(np.concatenate([fingerprints, few]))
            fingerprints = smallest[:SIZE]
        return cls(count, fingerprints, rewards)

    @property
    def exact(self) -> bool:
        """Whether the sketch holds all episodes."""
        return self.episodes <= SIZE

    def overlap(self, log: LogColumns, ordinals: NDArray[Any] | None = None) -> Overlap:
        """Count the episodes of a log that this sketch contains."""
        known = shared = 0
        for hashes in _blocks(log, ordinals, self.rewards and log.reward is not None):
            part = self.among(hashes)
            known, shared = known + part.known, shared + part.shared
        chance = chance_of(log, self.rewards and log.reward is not None) if shared else 0.0
        chance *= min(1.0, self.episodes / len(log.episode_ids))  # numbers that the sketched log has as well
        return Overlap(known, shared, self.exact, chance)

    def among(self, hashes: Hashes) -> Overlap:
        """Count the fingerprints [E] that this sketch contains; they must include rewards if the sketch does."""
        near = hashes if self.exact else hashes[hashes <= self.smallest[-1]]
        return Overlap(len(near), int(np.isin(near, self.smallest).sum()), self.exact)

    def joined(self, other: Sketch) -> Sketch | None:
        """The sketch of the episodes of both; None if only one of them includes rewards."""
        if self.rewards != other.rewards:
            return None
        both = np.unique(np.concatenate([self.smallest, other.smallest]))
        exact = max(self.episodes, other.episodes) <= SIZE
        return Sketch(len(both) if exact else self.episodes + other.episodes, both[:SIZE], self.rewards)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads back."""
        return {
            "episodes": self.episodes,
            "rewards": self.rewards,
            "smallest": self.smallest.astype(">u8").tobytes().hex(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Sketch:
        """Rebuild from `to_json`; CheckpointError for malformed data."""
        file = typed(data, _SketchFile, "the sketch of the training episodes is malformed")
        try:
            smallest = np.frombuffer(bytes.fromhex(file.smallest), ">u8").astype(np.uint64)
        except ValueError as error:
            raise CheckpointError(
                f"the sketch of the training episodes is malformed: {error}", fix="restore the file"
            ) from error
        fits = len(smallest) <= min(file.episodes, SIZE) and bool(file.episodes) == bool(len(smallest))
        if not fits or not (smallest[1:] > smallest[:-1]).all():
            raise CheckpointError(
                "the sketch of the training episodes is malformed: its fingerprints are not sorted",
                fix="restore the file",
            )
        return cls(file.episodes, smallest, file.rewards)


class _SketchFile(msgspec.Struct, forbid_unknown_fields=True):
    episodes: Count
    rewards: bool
    smallest: str


def episode_hashes(log: LogColumns, ordinals: NDArray[Any] | None = None, *, rewards: bool = True) -> Hashes:
    """Fingerprints [E] of all episodes of a log, or of those with these ordinals."""
    return np.concatenate(list(_blocks(log, ordinals, rewards and log.reward is not None)))


def chance_of(log: LogColumns, rewards: bool) -> float:
    """The chance that two episodes look alike but for their names, where these are only their numbers; else 0.

    Two logs without a column of names have the same numbers: of clicks in a few contexts, many rows of one number are
    alike in both, and no decision is.
    """
    if not np.array_equal(np.asarray(log.episode_ids), np.arange(len(log.episode_ids))):
        return 0.0
    contents = np.concatenate(list(_blocks(log, None, rewards, names=False)))
    counts = np.unique(contents, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1.0)).sum() / max(len(contents) * (len(contents) - 1.0), 1.0))


def _blocks(log: LogColumns, ordinals: NDArray[Any] | None, rewards: bool, names: bool = True) -> Iterator[Hashes]:
    chosen = np.arange(len(log.episode_ids)) if ordinals is None else np.asarray(ordinals, np.int64)
    steps = int((log.starts[chosen + 1] - log.starts[chosen]).sum())
    for part in np.array_split(chosen, max(1, math.ceil(steps / BLOCK))):
        if len(part):
            yield _hashed(log, part, rewards, names)


def _hashed(log: LogColumns, chosen: NDArray[Any], rewards: bool, by_name: bool) -> Hashes:
    first, after = np.asarray(log.starts[chosen]), np.asarray(log.starts[chosen + 1])
    whole = len(chosen) == chosen[-1] - chosen[0] + 1  # consecutive ordinals: a view, no copy
    rows: Any = slice(int(first[0]), int(after[-1])) if whole else ranges(first, after)
    steps = np.asarray(log.step[rows]).astype(np.uint64) * _constant("step")
    action, names = np.asarray(log.action[rows]), getattr(log.spec.action, "names", ())
    named = bool(names) and isinstance(log.spec.action, Discrete)
    steps += _words(names)[action] * _constant("action") if named else _numbers(action, "action")
    if rewards and log.reward is not None:
        steps += _numbers(np.asarray(log.reward[rows]), "reward")
    sums = np.add.reduceat(_mixed(steps), np.concatenate([[0], np.cumsum(after - first)[:-1]]))
    if by_name:
        sums += _numbers(np.asarray(log.episode_ids[chosen]), "episode")
    positions = np.asarray(log.position[first])
    for name in log.spec.observation:
        sums += _observed(log, name, positions)
    return _mixed(sums)


def _observed(log: LogColumns, name: str, positions: NDArray[Any]) -> Hashes:
    leaf, values = log.spec.observation[name], log.observation[name]
    if isinstance(leaf, Image):
        size = int(np.prod(values.shape[1:]))
        constants = _mixed(np.arange(1, size + 1, dtype=np.uint64) * _constant(name)) | np.uint64(1)
        parts = np.array_split(positions, max(1, math.ceil(len(positions) * size / PIXELS)))
        flat = (np.asarray(values[part]).reshape(len(part), -1) for part in parts)
        return np.concatenate([(pixels * constants).sum(axis=1) for pixels in flat])
    total = np.zeros(len(positions), np.uint64)
    rows = np.asarray(values[positions])
    filled = dict(leaf.fills) if isinstance(leaf, Vector) else {}
    for column in range(rows.shape[1]):
        label = leaf.names[column] if leaf.names else f"{name}/{column}"
        if label in filled:  # the fill value of missing cells depends on the log
            continue
        if isinstance(leaf, Codes) and leaf.vocabularies and leaf.vocabularies[column]:
            total += _words(leaf.vocabularies[column])[rows[:, column]] * _constant(label)
        else:
            total += _numbers(rows[:, column], label)
    return total


def _numbers(values: NDArray[Any], name: str) -> Hashes:
    """Hash numbers or text [E] or [E, columns] to one number per row; equal values of any integer type agree."""
    if values.dtype.kind == "U":
        letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)
        return _summed(letters, name)
    if values.dtype.kind == "f":
        bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        return _summed((bits ^ (bits >> np.uint64(29))).reshape(len(values), -1), name)
    return _summed(values.astype(np.int64).view(np.uint64).reshape(len(values), -1), name)


def _summed(columns: NDArray[Any], name: str) -> Hashes:
    total = columns[:, 0] * _constant(name)
    for position in range(1, columns.shape[1]):
        total += columns[:, position] * _constant(f"{name}/{position}")
    return np.asarray(total)


def _words(words: tuple[str, ...]) -> Hashes:
    return np.asarray([_constant(f"word {word}") for word in words], np.uint64)


def _constant(name: str) -> np.uint64:
    """An odd number derived from a name, the same in every process."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1)


def _mixed(values: Hashes) -> Hashes:
    """Mix the bits of each number (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# A figure about a log: returns, lengths of episodes, actions.

MOST_BARS = 20  # actions with a bar of their own
MOST_DIMENSIONS = 6  # of actions, each with a panel


def log_figure(log: LogColumns) -> Figure:
    """Draw histograms of returns and lengths over episodes, and the actions over steps."""
    pictures: list[Plot] = []
    returns = episode_returns(log)
    if returns is not None:
        wide = returns.reshape(len(returns), -1).T
        unit = in_unit(log.reward_unit, "in ")
        for index, values in enumerate(wide):
            which = f" of reward {index}" if len(wide) > 1 else ""
            pictures.append(histogram(f"return{which} of an episode{unit}", values, "episodes", WIDTH))
    pictures.append(histogram("steps of an episode", np.diff(log.starts), "episodes", WIDTH))
    if isinstance(log.spec.action, Discrete):
        counts = describe(log).actions["counts"]
        listed = [*counts.items()]
        if len(listed) > MOST_BARS:  # the most frequent ones, and the picture says so
            listed = sorted(listed, key=lambda pair: -pair[1])[:MOST_BARS]
        numbers, more = np.array([count for _, count in listed], np.float64), len(counts) - len(listed)
        labels, written = [name for name, _ in listed], "{:,.0f}".format
        return figure([*pictures, bars("Steps by action", labels, [("bar", numbers)], written, "steps", more)])
    wide = log.action.reshape(log.steps, -1).T
    space = log.spec.action
    named = space.labels if isinstance(space, Hybrid) else getattr(space, "names", ())
    names = [str(name) for name in named] or [f"action[{i}]" for i in range(len(wide))]
    for index, values in enumerate(wide[:MOST_DIMENSIONS]):
        which = f", {index + 1} of {len(wide)}" if len(wide) > 1 else ""
        pictures.append(histogram(f"{names[index]}{which}", values, "steps", WIDTH))
    return figure(pictures)


# Scales of observations and rewards, computed from a log and saved with the policy.
#
# Letters: `N` steps, `E` episodes, `K` rewards of a step, `O` features.

_SMALLEST_STD = 1e-6
_EQUAL = 1e-12  # largest range of equal numbers, relative to the largest of them: sums round
ENDLESS = 0  # `RewardScale.steps` where no episode ends by itself


class LoggedRewards(NamedTuple):
    """The rewards of the training episodes, in the log's unit."""

    reward: Values  # [N] or [N, K] float64
    starts: Values  # [E + 1] int64: the first row of each episode, and N
    ended: Values  # [E] bool: the environment ended it
    weights: Values | None = None  # [K] float64: of several rewards
    absolute: bool = False  # a reward of 0 has a meaning of its own, so that no constant may be subtracted
    spacing: Values | None = None  # [N]: times to the next decisions, if they are unequal (`LogColumns.spacing`)

    @classmethod
    def of(cls, log: LogColumns, weights: Sequence[float] | None = None) -> LoggedRewards:
        """Return the rewards of a log; weights of several ones are 1 by default."""
        reward, starts = np.asarray(log.reward, np.float64), np.asarray(log.starts, np.int64)
        several = None if reward.ndim == 1 else np.ones(reward.shape[1])
        weigh = several if weights is None or several is None else np.asarray(weights, np.float64)
        return cls(reward, starts, np.asarray(log.terminated)[starts[1:] - 1], weigh, spacing=log.spacing)

    @property
    def total(self) -> Values:
        """[N]: the weighted sum of the rewards of each step."""
        total: Values = self.reward if self.reward.ndim == 1 else self.reward @ self.weights
        return total

    @property
    def returns(self) -> Values:
        """[E]: the undiscounted sum of each episode's rewards."""
        returns: Values = np.add.reduceat(self.total, self.starts[:-1])
        return returns

    @property
    def constant_steps(self) -> int | None:
        """The number of decisions over which a constant in the rewards is summed, the same for every policy.

        `ENDLESS` if no episode ends by itself: value learning continues after a truncated one. Else the common length
        of all episodes, 1 for single decisions: all actions of a step have the same number of rewards to come. None
        where neither holds: there a policy that ends episodes later collects the constant more often, and where
        decisions are unequally spaced in time, one that decides sooner is discounted less.
        """
        if self.absolute or self.spacing is not None:
            return None
        lengths = np.diff(self.starts)
        if not self.ended.any():
            return ENDLESS
        return int(lengths[0]) if lengths.min() == lengths.max() else None


class RewardScale(NamedTuple):
    """Rewards in the unit of the networks: `reward * scale + shift`."""

    scale: float = 1.0
    shift: float | tuple[float, ...] = 0.0  # one number for each of several rewards
    steps: int | None = None  # `LoggedRewards.constant_steps`; None: the shift is not undone in values
    starts_at_mean: bool = False  # Q and V start at the mean return to come


RewardScaling: TypeAlias = Callable[[LoggedRewards], RewardScale]


def unscaled(rewards: LoggedRewards) -> RewardScale:
    """Leave rewards unchanged: scale 1, shift 0."""
    return RewardScale()


def by_return_deviation(rewards: LoggedRewards) -> RewardScale:
    """Rewards in deviations: the standard deviation of episode returns over the mean length of an episode.

    Where a constant in the rewards cannot change the ranking of policies (`LoggedRewards.constant_steps`), their mean
    is subtracted; elsewhere Q and V start at the mean return to come. Rewards in another unit are thus the same to the
    networks. Where all returns are equal, the deviation is that of the rewards of single steps; 1 if these are equal.
    """
    steps, lengths = rewards.constant_steps, np.diff(rewards.starts)
    mean = rewards.reward.mean(axis=0) if steps is not None else np.zeros(rewards.reward.shape[1:])
    centred = rewards._replace(reward=rewards.reward - mean)  # else the lengths of truncated episodes would count
    of_returns, of_steps = _deviation(centred.returns, rewards.returns), _deviation(centred.total, rewards.total)
    unit = of_returns / float(lengths.mean()) or of_steps or 1.0
    shift = 0.0 - mean / unit
    return RewardScale(1.0 / unit, tuple(shift.tolist()) if shift.ndim else float(shift), steps, steps is None)


def by_return_range(rewards: LoggedRewards) -> RewardScale:
    """1000 / (largest - smallest episode return), IQL's locomotion rule; ConfigError if all returns are equal."""
    returns = rewards.returns
    if rewards.reward.ndim > 1 or returns.max() <= returns.min():
        raise ConfigError(
            "by_return_range needs one reward and different episode returns", fix="use unscaled or minus_one"
        )
    return RewardScale(1000.0 / float(returns.max() - returns.min()))


def minus_one(rewards: LoggedRewards) -> RewardScale:
    """Rewards minus 1, IQL's rule for sparse goals."""
    return RewardScale(1.0, -1.0, rewards.constant_steps)


REWARD_SCALINGS: Mapping[str, RewardScaling] = {
    "none": unscaled,
    "return-deviation": by_return_deviation,
    "return-range": by_return_range,
    "minus-one": minus_one,
}


def _deviation(centred: Values, values: Values) -> float:
    """The standard deviation of centred values; 0 if they differ by the rounding of `values` only."""
    return 0.0 if np.ptp(centred) <= _EQUAL * np.abs(values).max() else float(centred.std())


@dataclass(frozen=True, eq=False)
class Scaler:
    """The inputs of networks: `(observation - mean) / std` and `reward * reward_scale + reward_shift`.

    `mean` and `std` hold `[size]` float32 for each standardised Vector leaf; other leaves stay unchanged. `whole` holds
    the indices of the columns of a leaf that have whole numbers only, for examples of observations.
    """

    mean: dict[str, Values] = field(default_factory=dict)
    std: dict[str, Values] = field(default_factory=dict)
    reward_scale: float = 1.0
    reward_shift: float | tuple[float, ...] = 0.0  # one number for each of several rewards
    reward_steps: int | None = None  # as in `RewardScale`
    starts_at_mean: bool = False  # as in `RewardScale`
    whole: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        log: LogColumns,
        observations: bool = True,
        rewards: RewardScale | None = None,
        episodes: Values | None = None,
    ) -> Scaler:
        """Compute the scales from all stored observations of a log, or of the `episodes` with these ordinals.

        A column with std below 1e-6 is only centred. `rewards` is the scale of the rewards; None leaves them unchanged.
        """
        mean, std, whole = {}, {}, {}
        for name, leaf in log.spec.observation.items():
            if observations and isinstance(leaf, Vector):
                stored: Any = log.observation[name]
                stored = stored if episodes is None else _Rows(stored, log.stored_rows(episodes))
                centre, std_dev = moments(stored)
                mean[name] = centre.astype(np.float32)
                std[name] = np.where(std_dev < _SMALLEST_STD, 1.0, std_dev).astype(np.float32)
                fills = dict(leaf.fills)
                known = [fills.get(column, 0.0) for column in leaf.names or [""] * leaf.size]
                whole[name] = whole_columns(stored, np.asarray(known, np.float32))
        return cls(mean, std, *(RewardScale() if rewards is None else rewards), whole=whole)

    def observation(self, observation: Mapping[str, Values]) -> dict[str, Values]:
        """Scale leaves `[..., size]` to network inputs, float32."""
        return {
            name: (leaf - self.mean[name]) / self.std[name] if name in self.mean else leaf
            for name, leaf in observation.items()
        }

    def reward(self, reward: Values) -> Values:
        """Scale rewards [N] or [N, K] to network inputs, float32; in float64, so that a large mean costs no digits."""
        if self.reward_scale == 1.0 and not np.any(self.reward_shift):
            return np.asarray(reward, np.float32)
        scaled: Values = np.asarray(reward, np.float64) * self.reward_scale + np.asarray(self.reward_shift)
        return scaled.astype(np.float32)

    def value_unit(self, discount: float | Sequence[float], weights: Sequence[float] | None = None) -> ValueUnit:
        """Return the unit of values of scaled rewards, at a discount; `weights` are those of several rewards."""
        constant = self.value_constant(discount)
        if constant.ndim:
            constant = constant @ (np.ones(len(constant)) if weights is None else np.asarray(weights, np.float64))
        return ValueUnit(1.0 / self.reward_scale, float(constant))

    def value_constant(self, discount: float | Sequence[float]) -> Values:
        """The value of what was subtracted from rewards, in their unit: a number or [K] float64; discounts [K] or one.

        It counts once for each discounted reward that is to come: exact for single decisions, and for episodes that do
        not end by themselves (a discount of 1 has no such sum, and it is 0). In episodes of one length the number of
        decisions that are left is not part of the state; the mean over the episode is used.
        """
        subtracted = 0.0 - np.asarray(self.reward_shift, np.float64) / self.reward_scale
        if self.reward_steps is None:
            return np.zeros_like(subtracted)
        each = np.asarray(discount, np.float64)
        if self.reward_steps == ENDLESS:
            times = np.divide(1.0, 1.0 - each, out=np.zeros_like(each), where=each < 1.0)
        else:
            powers = each[..., None] ** np.arange(self.reward_steps, dtype=np.float64)
            times = np.cumsum(powers, axis=-1).mean(axis=-1)
        constant: Values = np.asarray(subtracted * times)
        return constant

    def initial_value(self, rewards: LoggedRewards, discount: float | Sequence[float]) -> Values:
        """The value at which Q and V start, a number or [K] float64: the mean over steps of the scaled return to come.

        0 unless `starts_at_mean`.
        """
        if not self.starts_at_mean:
            return np.zeros(rewards.reward.shape[1:])
        scaled = rewards.reward * self.reward_scale + np.asarray(self.reward_shift)
        if rewards.spacing is not None:
            passed = rewards.spacing.reshape(-1, *[1] * (scaled.ndim - 1))
            to_come: Values = returns_to_go(scaled, rewards.starts, np.asarray(discount) ** passed).mean(axis=0)
            return to_come
        begun = np.arange(1, len(scaled) + 1) - np.repeat(rewards.starts[:-1], np.diff(rewards.starts))
        # a reward is part of the return of every step of its episode until its own
        each = np.ravel(discount)
        parts = [begun if one == 1.0 else (1.0 - one**begun) / (1.0 - one) for one in each.tolist()]
        starts: list[Values] = [part @ scaled / len(scaled) for part in parts]
        return np.asarray([start[k] for k, start in enumerate(starts)]) if np.ndim(discount) else starts[0]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers that `from_json` reads back exactly."""
        leaves = {
            name: {"mean": self.mean[name].tolist(), "std": self.std[name].tolist()}
            | ({"whole": self.whole[name]} if self.whole.get(name) else {})
            for name in self.mean
        }
        shift = list(self.reward_shift) if isinstance(self.reward_shift, tuple) else self.reward_shift
        return {
            "observation": leaves,
            "reward_scale": self.reward_scale,
            "reward_shift": shift,
            "reward_steps": self.reward_steps,
            "starts_at_mean": self.starts_at_mean,
        }

    @classmethod
    def from_json(cls, data: Any) -> Scaler:
        """Rebuild a scaler from `to_json`; CheckpointError for a field of another type, or unusable numbers."""
        file = typed(data, _ScalerFile, "the scaler is invalid", fix="write it again")
        with np.errstate(over="ignore"):  # infinite values are refused below
            mean = {name: np.asarray(leaf.mean, np.float32) for name, leaf in file.observation.items()}
            std = {name: np.asarray(leaf.std, np.float32) for name, leaf in file.observation.items()}
        for name in mean:
            usable = np.isfinite(mean[name]).all() and np.isfinite(std[name]).all() and (std[name] > 0).all()
            if len(mean[name]) != len(std[name]) or not usable:
                raise CheckpointError(
                    f"the scaler of '{name}' is invalid", "finite numbers, std above 0", "write it again"
                )
        shift = tuple(file.reward_shift) if isinstance(file.reward_shift, list) else file.reward_shift
        finite = bool(np.isfinite(file.reward_scale) and np.isfinite(shift).all())
        if not finite or file.reward_scale <= 0 or (file.reward_steps is not None and file.reward_steps < 0):
            raise CheckpointError(
                "the scaler of rewards is invalid", "finite numbers, a scale above 0", "write it again"
            )
        whole = {name: leaf.whole for name, leaf in file.observation.items()}
        return cls(mean, std, file.reward_scale, shift, file.reward_steps, file.starts_at_mean, whole)


class ValueUnit(NamedTuple):
    """The unit of values in a log: `value * factor + constant`; differences of values have the factor alone."""

    factor: float
    constant: float

    def __call__(self, values: Any) -> Values:
        """Return values of any shape in the log's unit, float64."""
        return np.asarray(values, np.float64) * self.factor + self.constant


class _ScalesFile(msgspec.Struct, forbid_unknown_fields=True):
    mean: list[float]
    std: list[float]
    whole: list[int] = []


class _ScalerFile(msgspec.Struct, forbid_unknown_fields=True):
    observation: dict[str, _ScalesFile]
    reward_scale: float
    reward_shift: float | list[float]
    reward_steps: int | None = None
    starts_at_mean: bool = False


class _Rows:
    """Some rows of a leaf, read slice by slice, which leaves a log on disk."""

    def __init__(self, leaf: Values, rows: Values) -> None:
        self._leaf, self._rows = leaf, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> Values:
        rows: Values = self._leaf[self._rows[part]]
        return rows
