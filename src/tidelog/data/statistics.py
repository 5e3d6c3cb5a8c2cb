"""Statistics of a log, the overlap of two logs, and their figure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelog._text import in_unit
from tidelog.data.log_columns import LogColumns, ranges
from tidelog.data.raw import Values
from tidelog.errors import CheckpointError
from tidelog.plots import WIDTH, Plot, bars, figure, histogram
from tidelog.schema import Count, typed
from tidelog.types import Codes, Discrete, Image, MultiDiscrete, Vector

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
        observations=stored(log),
        terminated=int(log.terminated.sum()),
        truncated=int(log.truncated.sum()),
        without_target=int((~log.has_target).sum()),
        lengths=summary(np.diff(log.starts)),
        returns=None if returns is None else summary(returns),
        rewards=None if log.reward is None else summary(log.reward),
        actions=_actions(log),
        propensities=None if log.propensity is None else summary(log.propensity),
        missing_propensities=1.0 if log.propensity is None else 0.0,
        features=dict(_features(log)),
        categories=dict(_categories(log)),
    )


def episode_returns(log: LogColumns) -> Values | None:
    """[E] or [E, K] float64: the undiscounted sum of each episode's rewards; None without rewards."""
    if log.reward is None:
        return None
    returns: Values = np.add.reduceat(log.reward.astype(np.float64), log.starts[:-1], axis=0)
    return returns


def rewards_are_equal(log: LogColumns) -> bool:
    """Whether all rewards and all returns are equal, so that nothing can be learnt from them; False without rewards."""
    if log.reward is None or log.reward.min() != log.reward.max():
        return False
    lengths = np.diff(log.starts)
    return float(log.reward.flat[0]) == 0.0 or bool((lengths == lengths[0]).all())


def actions_are_equal(log: LogColumns) -> bool:
    """Whether every decision is the same action, so that nothing shows what another action earns."""
    return bool((log.action.min(axis=0) == log.action.max(axis=0)).all())


def stored(log: LogColumns) -> int:
    """M: the number of stored observations."""
    return int(log.next_position[-1]) + 1


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
        columns = (_counts(log.action[:, place], size) for place, size in enumerate(space.sizes))
        return {"counts": {str(place): list(counts.values()) for place, counts in enumerate(columns)}}
    mean, std = moments(log.action)
    low, high = log.action.min(axis=0), log.action.max(axis=0)
    return {"mean": mean.tolist(), "std": std.tolist(), "min": low.tolist(), "max": high.tolist()}


def _features(log: LogColumns) -> Iterator[tuple[str, dict[str, float]]]:
    for name, leaf in log.observation.items():
        if isinstance(log.spec.observation[name], Codes):
            continue
        if isinstance(log.spec.observation[name], Image):
            yield name, _image(leaf)
            continue
        mean, std = moments(leaf)
        measures = {"mean": mean, "std": std, "min": leaf.min(axis=0), "max": leaf.max(axis=0)}
        for place, label in enumerate(_labels(log, name)):
            yield label, {measure: float(values[place]) for measure, values in measures.items()}


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
            for place, label in enumerate(_labels(log, name)):
                words = spec.vocabularies[place] if spec.vocabularies else ()
                yield label, _counts(leaf[:, place], spec.sizes[place], words)


def _counts(codes: Values, size: int, names: Sequence[str] = ()) -> dict[str, int]:
    """The number of rows with each code by its name; of very many codes, only those that occur."""
    if size > _MOST_COUNTED:
        found, counts = np.unique(codes, return_counts=True)
    else:
        found, counts = np.arange(size), np.bincount(codes, minlength=size)
    return {
        names[code] if names else str(code): count for code, count in zip(found.tolist(), counts.tolist(), strict=True)
    }


def _labels(log: LogColumns, name: str) -> list[str]:
    leaf = log.spec.observation[name]
    if isinstance(leaf, Image):
        return [name]
    width = len(leaf.sizes) if isinstance(leaf, Codes) else leaf.size
    return list(leaf.names) or [f"{name}[{place}]" for place in range(width)]


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

    @property
    def share(self) -> float:
        """The estimated share of shared episodes; NaN if no episode is in the sketch's range."""
        return self.shared / self.known if self.known else math.nan

    def exceeds(self, share: float) -> bool:
        """Whether the overlap is larger than `share`; for a sampled sketch, significantly larger (binomial test)."""
        if not self.shared or self.exact or share in (0.0, 1.0):
            return bool(self.shared) and self.share > share
        below = np.arange(self.shared)
        chances = [
            math.lgamma(self.known + 1) - math.lgamma(k + 1) - math.lgamma(self.known - k + 1)
            for k in below.tolist()
        ] + below * math.log(share) + (self.known - below) * math.log1p(-share)  # fmt: skip
        return 1.0 - float(np.exp(chances).sum()) < SURE


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
        return Overlap(known, shared, self.exact)

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


def _blocks(log: LogColumns, ordinals: NDArray[Any] | None, rewards: bool) -> Iterator[Hashes]:
    chosen = np.arange(len(log.episode_ids)) if ordinals is None else np.asarray(ordinals, np.int64)
    steps = int((log.starts[chosen + 1] - log.starts[chosen]).sum())
    for part in np.array_split(chosen, max(1, math.ceil(steps / BLOCK))):
        if len(part):
            yield _hashed(log, part, rewards)


def _hashed(log: LogColumns, chosen: NDArray[Any], rewards: bool) -> Hashes:
    first, after = np.asarray(log.starts[chosen]), np.asarray(log.starts[chosen + 1])
    whole = len(chosen) == chosen[-1] - chosen[0] + 1  # consecutive ordinals: a view, no copy
    rows: Any = slice(int(first[0]), int(after[-1])) if whole else ranges(first, after)
    steps = np.asarray(log.step[rows]).astype(np.uint64) * _constant("step")
    steps += _action_hashes(log, np.asarray(log.action[rows]))
    if rewards and log.reward is not None:
        steps += _numbers(np.asarray(log.reward[rows]), "reward")
    sums = np.add.reduceat(_mixed(steps), np.concatenate([[0], np.cumsum(after - first)[:-1]]))
    sums += _numbers(np.asarray(log.episode_ids[chosen]), "episode")
    positions = np.asarray(log.position[first])
    for name in log.spec.observation:
        sums += _observed(log, name, positions)
    return _mixed(sums)


def _action_hashes(log: LogColumns, action: NDArray[Any]) -> Hashes:
    space = log.spec.action
    if isinstance(space, Discrete) and space.names:
        return np.asarray(_words(space.names)[action] * _constant("action"))
    return _numbers(action, "action")


def _observed(log: LogColumns, name: str, positions: NDArray[Any]) -> Hashes:
    leaf, values = log.spec.observation[name], log.observation[name]
    if isinstance(leaf, Image):
        return _images(values, positions, name)
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


def _images(values: NDArray[Any], positions: NDArray[Any], name: str) -> Hashes:
    size = int(np.prod(values.shape[1:]))
    constants = _mixed(np.arange(1, size + 1, dtype=np.uint64) * _constant(name)) | np.uint64(1)
    parts = np.array_split(positions, max(1, math.ceil(len(positions) * size / PIXELS)))
    return np.concatenate([(np.asarray(values[part]).reshape(len(part), -1) * constants).sum(axis=1) for part in parts])


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
    for place in range(1, columns.shape[1]):
        total += columns[:, place] * _constant(f"{name}/{place}")
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
        return figure([*pictures, _action_counts(describe(log).actions["counts"])])
    wide = log.action.reshape(log.steps, -1).T
    names = [str(name) for name in getattr(log.spec.action, "names", ())] or [f"action[{i}]" for i in range(len(wide))]
    for index, values in enumerate(wide[:MOST_DIMENSIONS]):
        more = f", {index + 1} of {len(wide)}" if len(wide) > 1 else ""
        pictures.append(histogram(f"{names[index]}{more}", values, "steps", WIDTH))
    return figure(pictures)


def _action_counts(counts: dict[str, int]) -> Plot:
    """One bar for each action; of many actions, only the most frequent ones, and the picture says so."""
    listed = [*counts.items()]
    if len(listed) > MOST_BARS:
        listed = sorted(listed, key=lambda pair: -pair[1])[:MOST_BARS]
    numbers = np.array([count for _, count in listed], np.float64)
    names = [name for name, _ in listed]
    return bars("Steps by action", names, [("bar", numbers)], "{:,.0f}".format, "steps", len(counts) - len(listed))
