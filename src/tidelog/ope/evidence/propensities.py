"""How likely the logger took what it took: as recorded, or estimated by models that never saw the episode.

Where propensities were recorded they are used, and the chances of all actions are estimated beside them. Otherwise each
fold of episodes gets a model of the logger learnt from the other folds:

* counts, where few different observations are seen. Weights divide by the propensity, and one over an estimated share
  is too large on average, the more so the rarer the action; of an action taken `k` times in `n`, `(n + 1) / (k + 1)`
  has the mean `(1 - (1 - p)^(n + 1)) / p`, so that `(k + 1) / (n + 1)` is what weights are made with. What the logger
  would do, as probabilities that add up to 1, are the shares of actions in each state, drawn towards their shares in
  the whole log as if `m` more steps had been seen; `m` is the one under which each learnt step is most likely given the
  others (leave-one-out likelihood);
* else behaviour cloning, kept where it does best on part of the learnt episodes, and calibrated on that part: one
  temperature for discrete actions (Guo et al. 2017, "On Calibration of Modern Neural Networks"), one factor on the
  spread for continuous ones, both by maximum likelihood.

Estimates see what the log shows: a logger who saw more is estimated on average. The models of the logger are the
baseline "behaviour cloning" as well, so that one fit serves both.

Letters: `N` steps, `M` stored observations, `E` episodes, `S` states, `A` number of actions or action size, `K` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from tidelog.algorithms.bc import BC
from tidelog.algorithms.core.optimisation import cosine
from tidelog.data.log import Log
from tidelog.errors import ConfigError, SpecError
from tidelog.networks.actor import state_gaussian
from tidelog.networks.distributions import Gaussian
from tidelog.ope.assumptions.assumptions import time_basis
from tidelog.ope.evidence.folds import Ordinals, fold_of_steps, without
from tidelog.ope.evidence.target import DRAWS, Floats, Target, hull, smoothed
from tidelog.ope.models.tabular import States
from tidelog.policies.policy import CHUNK, Policy
from tidelog.training.fit import fit
from tidelog.types import Continuous, Discrete, Vector

By = Literal["counts", "network"]
SMALLEST = 1e-6  # of estimated probabilities
PULLS = np.geomspace(0.1, 1000.0, 25)  # candidates for m
CALIBRATION = 0.2  # share of the learnt episodes that choose the checkpoint and the temperature
EPOCHS, BATCH, FEWEST, MOST = 15, 256, 1_000, 15_000  # updates of cloning: so many passes, within these limits
PATIENCE = 10  # reports, of which a run makes 50
ENOUGH = 1_000  # steps from which a network can tell where the logger takes an action and where it does not,
CLEAR, FAR = 0.3, 2.5  # by this share of an even chance; by so many standard deviations where actions are continuous
OFTEN = 2  # times that a table must hold an action in a state
LEAST_SCALE, LEAST_DENSITY = 1e-3, 1e-12  # of spreads and densities, in units of [-1, 1]


@dataclass(frozen=True, eq=False)
class Clone:
    """The logger along a log, as one fold's model repeats it."""

    logged: Floats  # [N]: probability or density of the logged action, to divide by
    probabilities: Floats | None = None  # [M, A] of discrete actions
    mode: NDArray[np.float32] | None = None  # [M, A]: the likeliest continuous action,
    spread: Floats | None = None  # [M, A]: and the standard deviation around it
    supported: NDArray[np.bool_] | None = None  # [M, A] of discrete actions: the learnt episodes show it taken here
    rows: int = 0  # steps that it learnt from

    def supports(self, target: Target, space: Any) -> NDArray[np.bool_]:
        """Whether the learnt episodes show the logger doing it: each discrete action [M, A], or all draws [M, 1].

        A network that learnt from few steps shows nothing: it would take one context's habits for another's. Nor is an
        action on a bound shown: the logger's density there is none of a cut action.
        """
        if self.supported is not None:
            return self.supported
        if self.mode is None or self.spread is None or target.actions is None:
            raise TypeError("a clone of continuous actions is asked about drawn actions")
        far = np.abs(target.actions - self.mode[:, None]) > FAR * self.spread[:, None]  # [M, K, A]
        cut = (target.actions <= np.asarray(space.low)) | (target.actions >= np.asarray(space.high))
        near = ~(far | cut).any(axis=(1, 2)) & (self.rows >= ENOUGH)
        return np.asarray(near[:, None])

    def target(self, log: Log, *, sample: bool, bandwidth: float | None = None, seed: int = 0) -> Target:
        """The clone as a policy to be judged: sampled, or its likeliest action."""
        if self.probabilities is not None:
            found = self.probabilities if sample else np.eye(self.probabilities.shape[1])[self.probabilities.argmax(1)]
            return Target(found[np.asarray(log.position), np.asarray(log.action)], found)
        space = log.spec.action
        if self.mode is None or self.spread is None or not isinstance(space, Continuous):
            raise TypeError("a clone has probabilities, or a mode and a spread")
        if not sample:
            return smoothed(self.mode, log, hull(space, space), bandwidth, seed)
        noise = np.random.default_rng([seed, 5]).standard_normal((len(self.mode), DRAWS, self.mode.shape[1]))
        drawn = np.clip(self.mode[:, None] + self.spread[:, None] * noise, space.low, space.high)
        return Target(self.logged, actions=drawn.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Propensities:
    """Chances of the logger's choices, and the clones behind them, one a fold."""

    logged: Floats  # [N]
    every: Floats | None  # [N, A]: of all discrete actions, always estimated
    estimated: bool  # whether `logged` is
    clones: tuple[Clone, ...]
    by: By | None = None  # what `logged` was estimated by


def propensities_of(
    log: Log,
    folds: Ordinals,
    asked: Any = None,
    *,
    states: States | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Propensities:
    """Recorded or estimated propensities; `states` makes tables of counts, None networks.

    `asked`: None takes what was recorded if anything was; "logged" insists on it, "estimated" ignores it; numbers [N]
    are taken as they are, and so are propensities that were made before, of this log and with the same folds. Raises
    ConfigError for anything else, SpecError where it cannot be done.
    """
    if isinstance(asked, Propensities):
        return asked
    recorded = _recorded(log, asked)
    able = isinstance(log.spec.action, Discrete | Continuous)
    if not able and recorded is None:
        raise SpecError(
            "this log has several choices at once and no propensities: no model of the logger takes such actions; "
            "record the propensities, or pass them as propensities=..."
        )
    count = int(folds.max()) + 1
    clones = () if not able else _clones(log, folds, range(count), states, seed, progress)
    chances = [clone.probabilities for clone in clones]
    every = None
    if chances and all(one is not None for one in chances):
        every = out_of_fold(log, folds, [one for one in chances if one is not None], log.position)
    if recorded is not None:
        return Propensities(recorded, every, False, clones)
    by: By = "network" if states is None else "counts"
    return Propensities(out_of_fold(log, folds, [clone.logged for clone in clones]), every, True, clones, by)


TIME_BINS = (1, 2, 4, 8, 16, 32)  # of equally many rows, in which a table counts what the logger did
TIME = "relative time"  # the leaf that shows a network the time


def in_time(
    log: Log, states: States | None, folds: Ordinals, when: Floats, suffices: Callable[[States], bool]
) -> tuple[Log, States | None]:
    """The log and its table as a model of a logger who changed over time reads them; `when` [N] from 0 to 1.

    A table is divided into as many bins of time as make the actions of held-out episodes likeliest, and into more while
    these do not suffice; a network is shown the time.
    """
    position, stored = np.asarray(log.position), len(next(iter(log.observation.values())))
    seen_at = np.zeros(stored)
    seen_at[np.asarray(log.next_position)] = when
    seen_at[position] = when
    if states is None:
        basis = time_basis(seen_at).astype(np.float32)
        spec = replace(log.spec, observation={**log.spec.observation, TIME: Vector(basis.shape[1])})
        return replace(log, spec=spec, observation={**log.observation, TIME: basis}), None

    def binned(bins: int) -> States:
        edges = np.quantile(when, np.arange(1, bins) / bins)
        cell = states.stored * bins + np.searchsorted(edges, seen_at, side="right")
        found, where = np.unique(cell, return_inverse=True)
        return States(where.astype(np.int64), len(found))

    def likelihood(table: States) -> float:
        of, total = fold_of_steps(log, folds), 0.0
        for fold in range(int(folds.max()) + 1):
            chances = clone_by_counts(log, table, without(folds, fold)).probabilities
            rows = np.flatnonzero(of == fold)
            if chances is not None:
                total += float(np.log(chances[position[rows], np.asarray(log.action)[rows]]).sum())
        return total

    tables = [binned(bins) for bins in TIME_BINS]
    best = max(range(len(tables)), key=lambda place: likelihood(tables[place]))
    return log, next((table for table in tables[best:] if suffices(table)), tables[best])


def out_of_fold(log: Log, folds: Ordinals, found: Sequence[NDArray[Any]], at: NDArray[Any] | None = None) -> Any:
    """What each step's own fold found: a list over folds of [N, ...], or of [M, ...] read `at` [N] -> [N, ...].

    Numbers come back as float64, flags as flags.
    """
    of, where = fold_of_steps(log, folds), np.arange(log.steps) if at is None else np.asarray(at)
    made = np.empty((log.steps, *found[0].shape[1:]), bool if found[0].dtype == bool else np.float64)
    for fold, values in enumerate(found):
        made[of == fold] = values[where[of == fold]]
    return made


def _recorded(log: Log, asked: Any) -> Floats | None:
    if asked is None or isinstance(asked, str):
        if asked not in (None, "logged", "estimated"):
            raise ConfigError(f"propensities = {asked!r}: expected None, 'logged', 'estimated', or a number a step")
        if asked == "logged" and log.propensity is None:
            raise SpecError("this log has no propensities: map their column, or let them be estimated")
        found = None if asked == "estimated" else log.propensity
    else:
        found = np.asarray(asked)
    if found is None:
        return None
    if found.shape != (log.steps,) or found.dtype.kind not in "fiu":
        raise ConfigError(f"propensities must be {log.steps} numbers, one for each step, found shape {found.shape}")
    values = np.asarray(found, np.float64)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        raise SpecError(
            f"the propensity of step {int(bad[0])} is {values[bad[0]]:g} ({len(bad)} such step(s)): what was done had "
            "a chance above 0; correct it, or pass propensities='estimated'"
        )
    return values


def _clones(
    log: Log,
    folds: Ordinals,
    which: Sequence[int],
    states: States | None,
    seed: int,
    progress: Callable[[int], None] | None,
) -> tuple[Clone, ...]:
    def one(fold: int) -> Clone:
        learnt = without(folds, fold)
        found = clone_by_counts(log, states, learnt) if states else clone_by_network(log, learnt, seed + fold)
        if progress is not None:
            progress(fold)
        return found

    if states is not None:
        return tuple(one(fold) for fold in which)
    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(one, which))


def clone_by_counts(log: Log, states: States, learnt: Ordinals) -> Clone:
    """Shares of actions in each state, from these episodes, drawn towards their shares over all."""
    if not isinstance(log.spec.action, Discrete):
        raise TypeError("a table needs discrete actions")
    of = np.isin(np.asarray(log.episode), learnt)
    here, action = states.stored[np.asarray(log.position)], np.asarray(log.action)
    counts = np.zeros((states.size, log.spec.action.n))
    np.add.at(counts, (here[of], action[of]), 1.0)
    may = np.ones(counts.shape, bool)
    if log.action_mask is not None:
        may[states.stored] = np.asarray(log.action_mask)
    overall = np.where(may, counts.sum(0) + 1.0, 0.0)
    overall /= overall.sum(1, keepdims=True)
    pull, times = _best_pull(counts, overall), counts.sum(1, keepdims=True)
    probabilities = ((counts + pull * overall) / (times + pull))[states.stored]
    return Clone(
        ((counts + 1.0) / (times + 1.0))[here, action],
        probabilities,
        supported=(counts >= OFTEN)[states.stored],
        rows=int(of.sum()),
    )


def _best_pull(counts: Floats, overall: Floats) -> float:
    """The number of added steps under which each counted step [S, A] is likeliest given the others."""
    seen = counts > 0
    times, share, total = counts[seen], overall[seen], np.broadcast_to(counts.sum(1, keepdims=True), counts.shape)[seen]

    def likelihood(pull: float) -> float:
        return float((times * np.log((times - 1.0 + pull * share) / (total - 1.0 + pull))).sum())

    return float(max(PULLS, key=likelihood))


def clone_by_network(log: Log, learnt: Ordinals, seed: int) -> Clone:
    """Behaviour cloning on these episodes, calibrated on some of them; a memory of the logger's is not modelled."""
    mine = log.take_episodes(learnt)
    policy, kept = _cloned(mine, seed)
    held = None if kept is None else mine.take_episodes(kept)
    found = _distribution(policy, log.observation, log.action_mask, slice(None))
    there = () if held is None else _distribution(policy, held.observation, held.action_mask, held.position)
    position, action = np.asarray(log.position), np.asarray(log.action)
    space = log.spec.action
    if isinstance(space, Continuous):
        mean, spread = found
        factor = 1.0 if held is None else best_factor(there[0], there[1], space.to_unit(np.asarray(held.action)))
        spread = np.maximum(spread * factor, LEAST_SCALE)
        half = np.exp(space.log_volume())
        likely = _normal_density(mean[position], spread[position], space.to_unit(action)) / half
        middle = np.clip(space.from_unit(mean), space.low, space.high).astype(np.float32)
        own = spread * (space.from_unit(np.ones(space.size)) - space.from_unit(np.zeros(space.size)))
        return Clone(np.maximum(likely, LEAST_DENSITY / half), mode=middle, spread=own, rows=mine.steps)
    temperature = 1.0 if held is None else best_temperature(there[0], np.asarray(held.action))
    chances = tempered(found[0], temperature)
    possible = np.isfinite(found[0]).sum(1, keepdims=True)
    supported = (chances * possible >= CLEAR) & (mine.steps >= ENOUGH)
    return Clone(chances[position, action], chances, supported=supported, rows=mine.steps)


def best_temperature(logits: Floats, action: NDArray[Any]) -> float:
    """The temperature that makes actions [N] likeliest under `softmax(logits / temperature)`, logits [N, A]."""

    def error(log_temperature: float) -> float:
        return float(-np.mean(log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(action)), action]))

    return float(np.exp(minimize_scalar(error, bounds=(-2.0, 3.0), method="bounded").x))


def tempered(logits: Floats, temperature: float) -> Floats:
    """`softmax(logits / temperature)` [..., A], no allowed action below a millionth."""
    found = np.exp(log_softmax(logits / temperature, axis=1))
    found = np.where(np.isfinite(logits), np.maximum(found, SMALLEST), 0.0)
    return np.asarray(found / found.sum(1, keepdims=True))


def best_factor(mean: Floats, spread: Floats, action: NDArray[Any]) -> float:
    """The factor on the spreads that makes actions likeliest under independent normals, all [N, A]."""
    return float(np.sqrt(np.mean(np.square((action - mean) / spread))))


def _normal_density(mean: Floats, spread: Floats, action: NDArray[Any]) -> Floats:
    z = (action - mean) / spread
    return np.asarray(np.exp(-0.5 * np.square(z).sum(1)) / (spread * np.sqrt(2.0 * np.pi)).prod(1))


def _cloned(log: Log, seed: int) -> tuple[Policy, Ordinals | None]:
    """A clone of the logger, and the ordinals of the episodes that chose it (None: one episode or cluster only)."""
    updates = min(max(EPOCHS * log.steps // BATCH, FEWEST), MOST)
    algorithm = BC(batch_size=BATCH, hidden=(128, 128), learning_rate=1e-3, schedule=cosine, actor_head=state_gaussian)
    if not log.clusters.any():
        return fit(algorithm, log, updates, seeds=[seed], scale="standard", progress=False).policy(), None
    run = fit(
        algorithm,
        log,
        updates,
        seeds=[seed],
        scale="standard",
        held_out=CALIBRATION,
        split_seed=seed,
        best="held_out/imitation_loss",
        patience=PATIENCE,
        progress=False,
    )
    return run.best_policy(), log.split_ordinals(1.0 - CALIBRATION, seed)[1]


def _distribution(policy: Policy, observation: Any, mask: Any, rows: Any) -> tuple[Floats, ...]:
    """The arrays behind a clone's distribution at some stored observations: logits, or means and spreads in [-1, 1]."""
    leaves = policy.scaler.observation({name: np.asarray(leaf[rows]) for name, leaf in observation.items()})
    allowed = None if mask is None else np.asarray(mask[rows])
    count, parts = len(next(iter(leaves.values()))), []
    for start in range(0, count, CHUNK):
        now = slice(start, start + CHUNK)
        seen = {name: leaf[now] for name, leaf in leaves.items()}
        parts.append(_ask(policy.algorithm, policy.params, seen, None if allowed is None else allowed[now]))
    return tuple(
        np.concatenate([np.asarray(part, np.float64) for part in column]) for column in zip(*parts, strict=True)
    )


@eqx.filter_jit
def _ask(algorithm: Any, params: Any, leaves: Any, mask: Any) -> tuple[Any, ...]:
    found = algorithm.distribution(params, leaves, mask)
    if isinstance(found, Gaussian):
        return found.mean, jnp.exp(jnp.broadcast_to(found.log_std, found.mean.shape))
    return (found.logits,)
