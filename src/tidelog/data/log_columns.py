"""The columns of a valid log in episode order, with each observation stored once, and views of them.

Views copy data only when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import msgspec
import numpy as np

from tidelog.data.columns import DeclaredPropensities
from tidelog.data.raw import Report, Values, number_by_appearance
from tidelog.errors import LogError
from tidelog.schema import Count, Share, typed
from tidelog.types import Spec, check_seed

STORED = ("observation", "action_mask")  # these have M rows, indexed by position; all other columns have N
OPTIONAL = ("reward", "reward_known", "propensity", "stratum", "action_mask", "weight", "time", "cluster", "elapsed")
MOST_LISTED = 100_000  # episodes that an origin lists; a larger selection has no origin
PLAIN = ("position", "next_position", "action", "terminated", "truncated", "episode", "step", "episode_ids", *OPTIONAL)


class Part(msgspec.Struct):
    """A part of a log in its origin: one side of a split, or the ordinals of episodes."""

    split: tuple[Share, int] | None = None  # fraction and seed
    part: Literal[0, 1] = 0
    episodes: list[Count] = []


@dataclass(frozen=True, eq=False)
class LogColumns:
    """Recorded decisions: `N` steps of `E` episodes over `M` stored observations.

    An episode of T steps stores T + 1 observations if the last next observation is known, else T; a row whose
    `next_position` equals its `position` has no known next observation. Never changed in place.
    """

    spec: Spec
    observation: dict[str, Values]  # leaves [M, ...]: Vector float32, Codes int32, Image uint8
    position: Values  # [N] int32: the position of the row's observation
    next_position: Values  # [N] int32: the position of the next observation
    action: Values  # [N] int32, [N, D] int32 or [N, A] float32
    reward: Values | None  # [N] or [N, K] float32
    terminated: Values  # [N] bool
    truncated: Values  # [N] bool
    episode: Values  # [N] int32: 0 .. E-1, sorted
    step: Values  # [N] int32: 0 .. within the episode
    propensity: Values | None  # [N] float32; declared ones are those of the whole log, also in a part of it
    action_mask: Values | None  # [M, A] bool, stored by position
    weight: Values | None  # [N] float32
    time: Values | None  # [N] float64, int64 or datetime64
    cluster: Values | None  # [N] int32: 0 .. C-1 by first appearance; episodes of one cluster are dependent
    extra: dict[str, Values]  # further columns [N]
    episode_ids: Values  # [E]: the episode names of the source
    report: Report
    reward_unit: str | None = None  # for people; it changes no number and no fingerprint
    atoms: tuple[float, ...] = ()  # values of continuous actions with a probability of their own, as declared
    declared: DeclaredPropensities | None = None  # how decisions were drawn, if `propensity` was declared
    stratum: Values | None = None  # [N] int32: the stratum of the row, if shares were declared in strata
    reward_known: Values | None = None  # [N] bool: rows with a reward, which is NaN in others; None: all have one
    missing_reward: str | None = None  # what the mapping says of the others: "unknown", or missing "at random"
    origin: Mapping[str, Any] | None = None  # where `tidelog.recommend.read.reopen` reads it again
    elapsed: Values | None = None  # [N] float32: time to the next decision or the episode's end; 0: none counts
    elapsed_unit: str | None = None  # for people
    hindsight: str | None = None  # how goals were chosen by what happened (`tidelog.relabel`): not to be judged

    def __len__(self) -> int:
        return len(self.position)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {type(leaf).__name__}" for name, leaf in self.spec.observation.items())
        action = type(self.spec.action).__name__
        return f"Log({self.steps:,} steps, {len(self.episodes):,} episodes, observation {{{kinds}}}, action {action})"

    @property
    def steps(self) -> int:
        """Number of rows N."""
        return len(self.position)

    @cached_property
    def starts(self) -> Values:
        """[E + 1] int64: the first row of each episode, and N."""
        return np.searchsorted(self.episode, np.arange(len(self.episode_ids) + 1))

    @cached_property
    def clusters(self) -> Values:
        """[E] int64: the cluster of each episode, from 0 by first appearance; without `cluster`, the episode itself."""
        if self.cluster is None:
            return np.arange(len(self.episode_ids))
        return number_by_appearance(np.asarray(self.cluster[self.starts[:-1]]))[0].astype(np.int64)

    @cached_property
    def has_return(self) -> Values:
        """[E] bool: episodes whose rewards are all known."""
        if self.reward_known is None:
            return np.ones(len(self.episode_ids), bool)
        return np.logical_and.reduceat(np.asarray(self.reward_known), self.starts[:-1])

    def with_known_rewards(self) -> Self:
        """The log of the episodes whose rewards are all known; LogError without one."""
        if self.reward_known is None:
            return self
        if not self.has_return.any():
            fix = "judge or learn from more episodes, or declare what an empty reward is (missing_reward = 0)"
            raise LogError("no episode of the log has all its rewards", "some with known rewards", fix)
        known = self if self.has_return.all() else self.take_episodes(np.flatnonzero(self.has_return))
        return replace(known, reward_known=None, missing_reward=None)

    @cached_property
    def open_ends(self) -> Values:
        """[E] bool: episodes whose last row is truncated and has no known next observation: it is no target."""
        last = self.starts[1:] - 1
        return np.asarray(~self.terminated[last] & (self.next_position[last] == self.position[last]))

    @cached_property
    def reach(self) -> Values:
        """[N] int32: the last row that a window starting in the row's episode may use; the one before an open end."""
        reach: Values = (self.starts[1:] - 1 - self.open_ends).astype(np.int32)[self.episode]
        return reach

    @cached_property
    def has_target(self) -> Values:
        """[N] bool: rows with a target for value learning (terminated, or the next observation is known)."""
        has_target: Values = self.reach >= np.arange(self.steps)
        return has_target

    @property
    def discount_unit(self) -> str | None:
        """What a discount is per, if not per step: a unit of elapsed time."""
        return None if self.elapsed is None else self.elapsed_unit or "unit of elapsed time"

    @property
    def continues(self) -> Values:
        """[N] bool: rows that a known observation follows without a termination: the elapsed time counts there."""
        continues: Values = (self.next_position != self.position) & ~self.terminated
        return continues

    @cached_property
    def spacing(self) -> Values | None:
        """[N] float64: `elapsed` where it counts, else 0; None if it is 1 wherever it counts, as without the column."""
        if self.elapsed is None:
            return None
        spacing: Values = np.where(self.continues, self.elapsed, 0.0).astype(np.float64)
        return None if (spacing[self.continues] == 1.0).all() else spacing

    def step_discounts(self, discount: float) -> Any:
        """`discount ** elapsed`, [N] float64: of what follows each step; the discount itself of equal steps."""
        return float(discount) if self.spacing is None else np.power(float(discount), self.spacing)

    def discounts(self, discount: float) -> Values:
        """[N] float64: the discount of each decision at the start of its episode, by the time or steps before it."""
        before = np.asarray(self.step, np.float64)
        if self.spacing is not None:
            sums = np.cumsum(self.spacing) - self.spacing
            before = sums - sums[self.starts[:-1]][self.episode]
        factors: Values = float(discount) ** before
        return factors

    @property
    def transitions(self) -> Transitions:
        """All rows with their next observations; `transitions[rows]` selects some."""
        return Transitions(self)

    @property
    def episodes(self) -> EpisodeSequence:
        """A sequence of episodes, each with all its observations."""
        return EpisodeSequence(self)

    def split(self, fraction: float = 0.8, seed: int = 0) -> tuple[Self, Self]:
        """Split into two logs without a common episode or cluster, the first with about that fraction of episodes.

        Deterministic by `seed`. Raises LogError with fewer than two episodes or clusters, or a fraction outside (0, 1).
        """
        first, second = (
            replace(self._taken(ordinals), origin=self._origin_of({"split": [fraction, seed], "part": part}))
            for part, ordinals in enumerate(self.split_ordinals(fraction, seed))
        )
        return first, second

    def _origin_of(self, part: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The origin of a part of this log: its source, and how the parts of parts are taken from it, in order."""
        if self.origin is None:
            return None
        return {**self.origin, "parts": [*self.origin.get("parts", ()), dict(part)]}

    def part_again(self, part: Mapping[str, Any]) -> Self:
        """Take a part again, as an origin describes it."""
        about = typed(part, Part, "the origin of the log", LogError)
        if about.split is not None:
            return self.split(*about.split)[about.part]
        if max(about.episodes, default=0) >= len(self.episode_ids):
            raise LogError(f"the origin of the log: episodes has {max(about.episodes)}", fix="restore the file")
        return self.take_episodes(about.episodes)

    def split_ordinals(
        self, fraction: float = 0.8, seed: int = 0, among: Values | None = None
    ) -> tuple[Values, Values]:
        """The sorted ordinals of the episodes in the two logs of `split`; of the episodes `among` [E'], if set."""
        seed = check_seed(seed)
        among = np.arange(len(self.episode_ids)) if among is None else np.sort(among)
        count = len(among)
        if count < 2:
            raise LogError(f"the log has {count} episode", "at least 2 for a split by episode", report=self.report)
        if not 0.0 < fraction < 1.0:
            raise LogError(f"fraction = {fraction}", "a number between 0 and 1", "use 0.8", report=self.report)
        size = min(max(round(fraction * count), 1), count - 1)
        if self.cluster is not None:
            chosen = self._split_clusters(np.unique(self.clusters[among], return_inverse=True)[1], size, seed)
            return among[chosen], among[~chosen]
        shuffled = among[np.random.default_rng(seed).permutation(count)]
        return np.sort(shuffled[:size]), np.sort(shuffled[size:])

    def _split_clusters(self, clusters: Values, size: int, seed: int) -> Values:
        """[E'] bool: about `size` episodes, without dividing a cluster; `clusters` [E'] are counted from 0.

        Clusters are visited in random order; each joins the first part if that brings the part nearer to `size`.
        If every cluster is one episode, this is the split of a log without clusters.
        """
        sizes = np.bincount(clusters)
        if len(sizes) < 2:
            raise LogError(
                f"the log has 1 cluster ({len(clusters):,} episodes)",
                "at least 2 for a split by cluster",
                "add episodes of other clusters, or drop the cluster column if the episodes are independent",
                report=self.report,
            )
        shuffled = np.random.default_rng(seed).permutation(len(sizes))
        fitting = int(np.searchsorted(np.cumsum(sizes[shuffled]), size, side="right"))
        first, room = shuffled[:fitting].tolist(), size - int(sizes[shuffled[:fitting]].sum())
        for one in shuffled[fitting:].tolist():
            if room <= 0:
                break
            if sizes[one] < 2 * room:
                first.append(one)
                room -= int(sizes[one])
        if len(first) == len(sizes):
            first.remove(min(first, key=lambda one: (sizes[one], one)))
        elif not first:
            first.append(min(shuffled.tolist(), key=lambda one: sizes[one]))
        in_first = np.zeros(len(sizes), bool)
        in_first[first] = True
        chosen: Values = in_first[clusters]
        return chosen

    def take_episodes(self, ordinals: Sequence[int] | Values) -> Self:
        """Build a log of these episodes [E'] in this order; LogError if an ordinal is out of range."""
        taken = self._taken(ordinals)
        known = {"episodes": np.asarray(ordinals).tolist()} if len(ordinals) <= MOST_LISTED else None
        return replace(taken, origin=None if known is None else self._origin_of(known))

    def _taken(self, ordinals: Sequence[int] | Values) -> Self:
        chosen = np.asarray(ordinals, np.int64)
        if not len(chosen) or chosen.min() < 0 or chosen.max() >= len(self.episode_ids):
            raise LogError(
                "episode ordinals are empty or out of range", f"0 to {len(self.episode_ids) - 1}", report=self.report
            )
        first, after = self.starts[chosen], self.starts[chosen + 1]
        rows, lengths = ranges(first, after), after - first
        stored_first, stored_after = self.position[first], self.next_position[after - 1] + 1
        stored = self.stored_rows(chosen)
        sizes = stored_after - stored_first
        shift = np.repeat(np.cumsum(sizes) - sizes - stored_first, lengths)
        other = ("position", "next_position", "episode", "episode_ids", "action_mask")
        by_row = {name: getattr(self, name) for name in PLAIN if name not in other}
        columns: dict[str, Any] = {name: value[rows] for name, value in by_row.items() if value is not None}
        columns["position"] = (self.position[rows] + shift).astype(np.int32)
        columns["next_position"] = (self.next_position[rows] + shift).astype(np.int32)
        columns["episode"] = np.repeat(np.arange(len(chosen), dtype=np.int32), lengths)
        if self.cluster is not None:
            columns["cluster"] = number_by_appearance(self.clusters[chosen])[0][columns["episode"]]
        if self.action_mask is not None:
            columns["action_mask"] = self.action_mask[stored]
        observation = {name: leaf[stored] for name, leaf in self.observation.items()}
        extra = {name: _compact(value[rows]) for name, value in self.extra.items()}
        columns |= {"episode_ids": _compact(self.episode_ids[chosen]), "origin": None}
        return replace(self, observation=observation, extra=extra, **columns)

    def stored_rows(self, ordinals: Values) -> Values:
        """The positions of the observations of these episodes [E'], in this order."""
        first, last = self.starts[ordinals], self.starts[ordinals + 1] - 1
        return ranges(np.asarray(self.position[first]), np.asarray(self.next_position[last]) + 1)

    def columns(self) -> dict[str, Values]:
        """Every column under one flat name: `observation/<leaf>`, `extra/<name>`, and the fields."""
        flat = {f"observation/{name}": leaf for name, leaf in self.observation.items()}
        flat |= {name: getattr(self, name) for name in PLAIN if getattr(self, name) is not None}
        return flat | {f"extra/{name}": value for name, value in self.extra.items()}

    def optional(self, *names: str) -> dict[str, Any]:
        """The fields of these names that the log has, such as the unit of rewards."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def fingerprint(self) -> str:
        """SHA-256 over the spec, declared atoms and all columns: equal for equal logs, in any process."""
        about = json.dumps(self.spec.to_json(), sort_keys=True) + (f"atoms {self.atoms}" if self.atoms else "")
        return sha256_of(about, self.columns())


class Transitions:
    """A view of rows with their next observations, gathered on attribute access; `transitions[rows]` selects rows."""

    def __init__(self, log: LogColumns, rows: Values | None = None) -> None:
        self._log = log
        self._rows = rows

    def __len__(self) -> int:
        return len(self._log) if self._rows is None else len(self._rows)

    def __getitem__(self, rows: Any) -> Transitions:
        selected = np.arange(len(self._log)) if self._rows is None else self._rows
        return Transitions(self._log, np.atleast_1d(selected[rows]))

    @property
    def observation(self) -> dict[str, Values]:
        """Leaves [B, ...]."""
        where = self._take(self._log.position)
        return {name: leaf[where] for name, leaf in self._log.observation.items()}

    @property
    def next_observation(self) -> dict[str, Values]:
        """Leaves [B, ...]; the row's own observation where `followed` is False."""
        where = self._take(self._log.next_position)
        return {name: leaf[where] for name, leaf in self._log.observation.items()}

    @property
    def followed(self) -> Values:
        """[B] bool: whether the next observation is known."""
        followed: Values = self._take(self._log.next_position) != self._take(self._log.position)
        return followed

    @property
    def action(self) -> Values:
        """[B], [B, D] or [B, A]."""
        return self._take(self._log.action)

    @property
    def reward(self) -> Values | None:
        """[B] or [B, K]."""
        return None if self._log.reward is None else self._take(self._log.reward)

    @property
    def terminated(self) -> Values:
        """[B] bool."""
        return self._take(self._log.terminated)

    @property
    def truncated(self) -> Values:
        """[B] bool."""
        return self._take(self._log.truncated)

    @property
    def propensity(self) -> Values | None:
        """[B]."""
        return None if self._log.propensity is None else self._take(self._log.propensity)

    @property
    def mask(self) -> Values | None:
        """[B, A] bool."""
        return None if self._log.action_mask is None else self._log.action_mask[self._take(self._log.position)]

    @property
    def next_mask(self) -> Values | None:
        """[B, A] bool."""
        return None if self._log.action_mask is None else self._log.action_mask[self._take(self._log.next_position)]

    def _take(self, values: Values) -> Values:
        return values if self._rows is None else values[self._rows]


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps; T + 1 observations if the last next observation is known, else T."""

    id: Any
    rows: slice
    observation: dict[str, Values]  # leaves [T + 1 or T, ...]
    action: Values  # [T], [T, D] or [T, A]
    reward: Values | None  # [T] or [T, K]
    terminated: bool
    truncated: bool
    propensity: Values | None  # [T]
    action_mask: Values | None  # [T + 1 or T, A] bool

    def __len__(self) -> int:
        return len(self.action)


class EpisodeSequence(Sequence[Episode]):
    """The episodes of a log in order; a slice does not copy columns."""

    def __init__(self, log: LogColumns) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log.episode_ids)

    @overload
    def __getitem__(self, ordinal: int) -> Episode: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[Episode]: ...

    def __getitem__(self, ordinal: int | slice) -> Episode | list[Episode]:
        if isinstance(ordinal, slice):
            return [self[place] for place in range(*ordinal.indices(len(self)))]
        place = range(len(self))[ordinal]
        log, rows = self._log, slice(int(self._log.starts[place]), int(self._log.starts[place + 1]))
        stored = slice(int(log.position[rows.start]), int(log.next_position[rows.stop - 1]) + 1)
        return Episode(
            id=log.episode_ids[place].item(),
            rows=rows,
            observation={name: leaf[stored] for name, leaf in log.observation.items()},
            action=log.action[rows],
            reward=None if log.reward is None else log.reward[rows],
            terminated=bool(log.terminated[rows.stop - 1]),
            truncated=bool(log.truncated[rows.stop - 1]),
            propensity=None if log.propensity is None else log.propensity[rows],
            action_mask=None if log.action_mask is None else log.action_mask[stored],
        )


def _compact(values: Values) -> Values:
    """Text as wide as the longest entry: equal text then gives equal arrays."""
    return np.asarray(values.tolist()) if values.dtype.kind == "U" else values


def ranges(first: Values, after: Values) -> Values:
    """Concatenate the integers of half-open ranges."""
    sizes = after - first
    ends = np.cumsum(sizes)
    ranges: Values = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
    return ranges


def sha256_of(about: str, columns: Mapping[str, Values]) -> str:
    """SHA-256 over a text and all columns, whatever their order."""
    digest = hashlib.sha256(about.encode())
    for name, values in sorted(columns.items()):
        digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
        digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()
