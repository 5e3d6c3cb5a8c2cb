"""Propensities: the behaviour policy's probabilities of its actions, recorded or estimated by cross-fitted models.

Recorded propensities are used if there are any; the probabilities of all actions are then estimated, unless they follow
from them (`known_probabilities`). Declared ones are used as they are, or as shares of the other folds' episodes.
Otherwise each fold of episodes gets a model of the behaviour policy, fitted on the other folds:

* counts, for few different observations. Weights divide by the propensity, and one over an estimated share is too large
  on average, most of all for rare actions. For an action taken `k` times in `n`, `(n + 1) / (k + 1)` has the mean
  `(1 - (1 - p)^(n + 1)) / p`, so weights use `(k + 1) / (n + 1)`. The probabilities of all actions, which sum to 1, are
  their shares in each state, shrunk towards their shares in the whole log by `m` pseudo-steps; `m` maximises the
  leave-one-out likelihood of the training steps;
* if asked for, boosted trees or another classifier, calibrated as networks are;
* for continuous actions with atoms, the probability of each pattern of them, counted or by a network, and
  off the atoms its density by cloning those steps alone;
* otherwise behaviour cloning, early-stopped on part of the training episodes and calibrated on that part by maximum
  likelihood: one temperature for discrete actions (Guo et al. 2017, "On Calibration of Modern Neural Networks"), one
  factor on the standard deviation for continuous ones.

Estimates use only what the log contains: a behaviour policy with more information is estimated on average. The models
of the behaviour policy are also the baseline "behaviour cloning"; one fit serves both.

Letters: `N` steps, `M` stored observations, `E` episodes, `S` states, `A` number of actions or action size, `K` draws.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from tidelog._machine import one_thread
from tidelog.algorithms.bc import BC
from tidelog.algorithms.optimisation import cosine
from tidelog.data import parse
from tidelog.data.columns import known_probabilities
from tidelog.data.formats import TABLES, ending_of
from tidelog.data.log import Log, States, is_tabular, number_observations
from tidelog.data.log_columns import PLAIN, STORED
from tidelog.data.parse import ParsedTable
from tidelog.data.raw import Values, number_by_appearance
from tidelog.data.read import one_table
from tidelog.errors import ConfigError, SpecError, install, nearest
from tidelog.networks import native
from tidelog.networks.actors import Gaussian, state_gaussian
from tidelog.ope.assumptions import time_basis
from tidelog.ope.estimators import LONGEST_PRODUCT, RARE, logged_return, required_part, weighted_dr
from tidelog.ope.evidence import (
    Atoms,
    Evidence,
    Floats,
    Ordinals,
    Target,
    atoms_of,
    fold_of_steps,
    observed_numbers,
    out_of_fold,
    without,
)
from tidelog.ope.networks import in_chunks
from tidelog.ope.policies import DRAWS, common_bounds, estimator_name, is_estimator, with_kernel
from tidelog.policies.policy import Policy
from tidelog.training.fit import fit
from tidelog.types import Codes, Continuous, Discrete, Image, Vector

# Boosted trees often predict a table of words and numbers better than a network does: Friedman 2001, "Greedy Function
# Approximation: A Gradient Boosting Machine". They are scikit-learn's `HistGradientBoostingClassifier`, with the number
# of rounds that gives held-out actions the largest likelihood. A classifier of the user is fitted in the same folds.
#
# Letters: `M` stored observations, `A` number of actions.

TREES, BEST = "trees", "best"
ROUNDS = 200  # of boosting, at most
MOST_WORDS = 255  # of a column that trees split by its words; a larger vocabulary is read as numbers
SMALLEST = 1e-6  # of estimated probabilities


def log_chances(source: Any, log: Log, learnt: Ordinals, held: Ordinals | None, seed: int) -> NDArray[np.float64]:
    """Logarithms [M, A] of the chances of actions at all stored observations, fitted on the steps of `learnt` episodes.

    By trees, or by a copy of a classifier. `held` are other episodes, for the number of rounds. Actions that are not
    learnt have the smallest chance.
    """
    own = not isinstance(source, str)
    parts, words, width = [observed_numbers(log, learnt).astype(np.float64)] if own else [], [], 0
    for name, leaf in () if own else sorted(log.observation.items()):
        kind = log.spec.observation[name]
        if isinstance(kind, Image):
            raise SpecError(
                f"propensities = '{TREES}': observation '{name}' is a picture",
                "columns of a table",
                "use propensities='estimated', which fits a network",
            )
        if isinstance(kind, Codes):
            words += [width + column for column, size in enumerate(kind.sizes) if size <= MOST_WORDS]
        parts.append(np.asarray(leaf, np.float64).reshape(len(leaf), -1))
        width += parts[-1].shape[1]
    numbers = np.concatenate(parts, axis=1)
    position, action, episode = np.asarray(log.position), np.asarray(log.action), np.asarray(log.episode)
    rows = np.isin(episode, learnt)
    classes, chances = np.unique(action[rows]), np.ones((len(numbers), 1))
    if own and len(classes) > 1:
        chances = _of_classifier(source, numbers[position[rows]], action[rows], numbers, seed)
    elif len(classes) > 1:
        from sklearn.ensemble import HistGradientBoostingClassifier

        with one_thread("openmp"):  # the same last bits on every machine
            model = HistGradientBoostingClassifier(
                max_iter=ROUNDS, categorical_features=words or None, early_stopping=False, random_state=seed
            ).fit(numbers[position[rows]], action[rows])
            stage, known = ROUNDS, np.isin(episode, [] if held is None else held) & np.isin(action, classes)
            if known.any():
                taken = np.searchsorted(classes, action[known])
                losses = [
                    -float(np.log(np.maximum(one[np.arange(len(taken)), taken], SMALLEST)).mean())
                    for one in model.staged_predict_proba(numbers[position[known]])
                ]
                stage = int(np.argmin(losses)) + 1
            chances = next(islice(model.staged_predict_proba(numbers), stage - 1, None))
    everything = np.full((len(numbers), log.spec.action.n), SMALLEST)  # type: ignore[union-attr]
    everything[:, classes] = np.maximum(chances, SMALLEST)
    return np.asarray(np.log(everything))


def _of_classifier(source: Any, observed: Floats, action: NDArray[Any], numbers: Floats, seed: int) -> Floats:
    """Probabilities [M, C] by a copy, with this seed wherever it has one; ConfigError if it fails or they are none."""
    from sklearn.base import clone

    name, classes = estimator_name(source), np.unique(action)
    try:
        model = clone(source)
        seeds = {one: seed for one in model.get_params() if one.split("__")[-1] == "random_state"}  # of steps too
        model.set_params(**seeds).fit(observed, action)
        chances = np.asarray(model.predict_proba(numbers), np.float64)
        same = np.array_equal(model.classes_, classes)
    except Exception as error:  # of foreign code
        raise ConfigError(
            f"propensities: {name} failed with {type(error).__name__}: {error}",
            "a classifier with get_params, set_params, fit, predict_proba and classes_, as scikit-learn's have",
        ) from error
    right = same and chances.shape == (len(numbers), len(classes)) and (chances >= 0).all()
    if not (right and np.allclose(chances.sum(axis=1), 1.0)):
        raise ConfigError(
            f"propensities: {name}.predict_proba returned shape {chances.shape} without probabilities of the actions",
            f"{len(numbers):,} rows over {len(classes)} classes, each with the sum 1",
        )
    return chances


# Values of networks, shrunk towards their mean where this cannot bias the estimate.
#
# A doubly robust estimate with right propensities is consistent with any values, but poor ones add noise: networks that
# learn from few rare rewards predict worse than a constant, and then another seed of the judge could be another
# verdict. Here `value = mean + share (network - mean)`. The mean is that of the policy's values at the same step of an
# episode, so it contains no logged reward. The share is from 0 to 1; at 0 the estimate is importance sampling with a
# baseline.
#
# - Recorded propensities, products of weights: the share minimises the variance of the policy's estimated difference
# from the behaviour policy. It is the coefficient of a control variate (Vlassis et al. 2019, "On the Design of
# Estimators for Bandit Off-Policy Evaluation"; Farajtabar et al. 2018, arXiv:1802.03493, choose the whole model so).
# - Estimated propensities, one step: right values must be able to repair wrong weights, so the share is the slope of
# the logged rewards on the values, which is 1 for right values and near 0 for noise.
# - Otherwise nothing is shrunk: estimated weights over several steps, and occupancy ratios, need the values.
#
# One number is chosen on many episodes: its bias is of order 1 / E.
#
# Letters: `N` steps, `E` episodes.


def shrunk(evidence: Evidence) -> tuple[Evidence, float]:
    """The evidence with shrunk values, and their share; unchanged, with 1, where shrinkage could bias the estimate."""
    if evidence.model is None or evidence.model_target is None:
        return evidence, 1.0
    if evidence.horizon > (1 if evidence.estimated else LONGEST_PRODUCT):
        return evidence, 1.0
    step, sums = evidence.step, np.bincount(evidence.step, weights=required_part(evidence, "model_target"))
    mean = np.asarray((sums / np.bincount(step))[step])  # [N]: the policy's value at the same step of all episodes
    if evidence.estimated:
        share = _slope(required_part(evidence, "model") - mean, np.asarray(evidence.reward, np.float64))
    else:
        without = _differences(replace(evidence, model=mean, model_target=mean))
        share = _slope(_differences(evidence) - without, -without)
    if share == 1.0:
        return evidence, 1.0
    return replace(
        evidence,
        model=mean + share * (required_part(evidence, "model") - mean),
        model_target=mean + share * (required_part(evidence, "model_target") - mean),
        model_all=None if evidence.model_all is None else mean[:, None] + share * (evidence.model_all - mean[:, None]),
    ), share


def _differences(evidence: Evidence) -> Floats:
    """Contributions to the estimate minus the logged returns, [E] (or clusters)."""
    return weighted_dr(evidence).minus(logged_return(evidence)).clustered(evidence.clusters).contributions


def _slope(cause: Floats, outcome: Floats) -> float:
    """The slope of a least-squares line, from 0 to 1; 1 if it is unknown."""
    centred = cause - cause.mean()
    squares = float(centred @ centred)
    if not squares > 0:  # also NaN: no weight is left at some step
        return 1.0
    return float(np.clip(centred @ (outcome - outcome.mean()) / squares, 0.0, 1.0))


# Propensities from a file: recorded or estimated elsewhere, matched to the steps of a log.
#
# The file is a table that `read_log` could read. Its column `propensity` has recorded probabilities of the logged
# actions (densities of continuous ones), `estimated_propensity` those of somebody's model, which a verdict trusts less.
# `episode` and `step` name the decision; steps are in their order, whatever number the first one has. In a log of
# episodes of one step, `step` may be absent.
#
# Letter: `N` steps.

RECORDED, ESTIMATED = "propensity", "estimated_propensity"
EPISODE, STEP = "episode", "step"


@dataclass(frozen=True, eq=False)
class FilePropensities:
    """Propensities of the steps of a log from a file."""

    values: Floats  # [N]
    estimated: bool  # whether they are those of a model
    file: str
    unused: int = 0  # rows of episodes that are not in the log, which may be a part of the one that the file is about


def read_propensities(path: str | Path, log: Log) -> FilePropensities:
    """Read the propensities of a log's steps from a file; LogError for no table, SpecError if it does not fit."""
    table = one_table(path)
    columns = [name for name in (RECORDED, ESTIMATED) if name in table.names]
    if len(columns) != 1:
        seen = "both of them" if columns else f"the columns {', '.join(sorted(table.names)[:10])}"
        raise SpecError(
            table.source,
            f"one column '{RECORDED}' (recorded) or '{ESTIMATED}' (from a model), found {seen}",
            "rename or remove columns",
        )
    if not table.rows:
        raise SpecError(f"{table.source}: no row", "one for each step of the log", "write the file again")
    (name,), continuous = columns, isinstance(log.spec.action, Continuous)
    values = _numbers(table, name)
    bad = np.flatnonzero(~((values > 0) & (continuous | (values <= 1.0)) & np.isfinite(values)))
    if len(bad):
        cell = table.series(name)[int(bad[0])]
        raise SpecError(
            f"{table.source}: the {name} of row {bad[0] + 1:,} is {'empty' if cell is None else cell} "
            f"({len(bad):,} such row(s))",
            "a number above 0" if continuous else "a probability above 0 and at most 1",
            "correct the file",
        )
    rows = _matched_rows(table, log)
    return FilePropensities(values[rows], name == ESTIMATED, str(path), table.rows - len(rows))


def _numbers(table: ParsedTable, name: str) -> Floats:
    """A column as numbers, NaN where a cell is none; SpecError for lists."""
    column = parse.number(table.series(name))
    if column.values.ndim != 1:
        raise SpecError(f"{table.source}: '{name}' holds lists", "one number in each row", "split the lists")
    return np.where(column.usable, column.values, np.nan).astype(np.float64)


def _matched_rows(table: ParsedTable, log: Log) -> Values:
    """The rows of the file for the steps [N], by episode and step; SpecError unless there is one for each."""
    if EPISODE not in table.names:
        raise SpecError(
            f"{table.source}: there is no column '{EPISODE}', by which rows are matched",
            fix="add the column of the log (where it has none: the numbers of its rows, from 0)",
        )
    episodes = parse.identity(table.series(EPISODE))
    names = episodes.values if episodes.vocabulary is None else np.asarray(episodes.vocabulary)[episodes.values]
    moments = _numbers(table, STEP) if STEP in table.names else None
    empty = ~episodes.usable if moments is None else ~(episodes.usable & np.isfinite(moments))
    if empty.any():
        raise SpecError(
            f"{table.source}: row {np.flatnonzero(empty)[0] + 1:,} has no '{EPISODE}' or no number in "
            f"'{STEP}' ({empty.sum():,} such row(s))",
            fix="fill these cells",
        )
    longest = int(np.diff(log.starts).max())
    if moments is None and longest > 1:
        raise SpecError(
            f"{table.source}: there is no column '{STEP}', and episodes have up to {longest:,} steps", fix="add it"
        )
    known = pl.DataFrame({"name": [str(one) for one in log.episode_ids.tolist()]}).with_row_index("place")
    keys = pl.DataFrame({
        "name": pl.Series([str(one) for one in names.tolist()], dtype=pl.String),
        "step": np.zeros(table.rows) if moments is None else moments,
    }).with_row_index("row")  # fmt: skip
    mine = keys.join(known, on="name", how="inner").sort("place", "step", "row")
    if not len(mine):
        raise SpecError(
            f"{table.source}: none of its episodes, such as '{keys['name'][0]}', is in the log, whose "
            f"first one is '{known['name'][0]}'",
            fix=f"write the log's own episodes into the column '{EPISODE}'",
        )
    repeated = mine.filter(mine.select("place", "step").is_duplicated())
    if len(repeated):
        raise SpecError(
            f"{table.source}: step {repeated['step'][0]:g} of episode '{repeated['name'][0]}' stands in "
            f"several rows ({len(repeated):,} such rows)",
            fix="keep one row for each step",
        )
    counts = np.bincount(mine["place"].to_numpy(), minlength=len(known))
    lengths = np.diff(log.starts)
    wrong = np.flatnonzero(counts != lengths)
    if len(wrong):
        one = int(wrong[0])
        raise SpecError(
            f"{table.source}: {counts[one]:,} row(s) for the {lengths[one]:,} step(s) of episode "
            f"'{known['name'][one]}' ({len(wrong):,} such episode(s))",
            fix="write one row for each step of the log",
        )
    return mine["row"].to_numpy()


# Logs of some steps: the first ones of every episode, a shorter question, or any as episodes of one step.
#
# The weight of an episode is a product over its steps, so that a few long episodes can have all the weight of a log of
# short ones. The return of the first `K` steps needs `K` factors only. It is another quantity than the whole return:
# what follows those steps is in no number.
#
# Letters: `N` steps, `M` stored observations, `E` episodes.


def check_first_steps(log: Log, steps: Any) -> None:
    """Raise ConfigError unless `steps` is None, or a whole number from 1 to below the longest episode's steps."""
    if steps is None:
        return
    longest = int(np.diff(log.starts).max())
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ConfigError(f"first_steps = {steps!r}", "a whole number of at least 1", "use first_steps=5")
    if steps >= longest:
        raise ConfigError(
            f"first_steps = {steps}: it has no effect, because the longest episode has {longest:,} "
            f"{'step' if longest == 1 else 'steps'}",
            fix="remove first_steps",
        )


def cut_log(log: Log, steps: int) -> Log:
    """The log of the first `steps` steps of each episode; an episode that goes on is truncated there."""
    rows = np.flatnonzero(np.asarray(log.step) < steps)
    columns = _columns_at(log, rows)
    last = np.append(np.diff(columns["episode"]) > 0, True)
    columns["truncated"] = columns["truncated"] | (last & ~columns["terminated"])
    return _with_rows(log, rows, np.asarray(log.next_position)[rows], columns)


def single_steps(log: Log, rows: NDArray[np.int64]) -> Log:
    """These rows [R] as episodes of one step, in the clusters of their episodes."""
    columns, number = _columns_at(log, rows), np.arange(len(rows), dtype=np.int32)
    cluster = number_by_appearance(log.clusters[columns["episode"]])[0]
    columns |= {"episode": number, "episode_ids": number, "cluster": cluster.astype(np.int32)}
    columns |= {"step": np.zeros_like(number), "terminated": np.ones(len(rows), bool)}
    columns |= {"truncated": np.zeros(len(rows), bool)}
    return _with_rows(log, rows, np.asarray(log.position)[rows], columns)


def _columns_at(log: Log, rows: NDArray[np.int64]) -> dict[str, Any]:
    """The columns with one number for each step, at some of the steps."""
    others = {name for name in PLAIN if name not in (*STORED, "episode_ids", "position", "next_position")}
    return {name: np.asarray(getattr(log, name))[rows] for name in others if getattr(log, name) is not None}


def _with_rows(log: Log, rows: NDArray[np.int64], following: NDArray[Any], columns: dict[str, Any]) -> Log:
    """The log of these rows, with what they have in place of its columns; `following`: their next positions."""
    position = np.asarray(log.position)[rows]
    stored = np.union1d(position, following)
    return replace(
        log,
        observation={name: np.asarray(leaf)[stored] for name, leaf in log.observation.items()},
        action_mask=None if log.action_mask is None else np.asarray(log.action_mask)[stored],
        position=np.searchsorted(stored, position).astype(np.int32),
        next_position=np.searchsorted(stored, following).astype(np.int32),
        extra={name: values[rows] for name, values in log.extra.items()},
        origin=None,
        **columns,
    )


def cut_propensities(source: Any, log: Log, steps: int) -> Any:
    """Propensities of the first `steps` steps of each episode of a log, if `source` has one for each step."""
    kept = np.asarray(log.step) < steps
    if isinstance(source, FilePropensities):
        return replace(source, values=source.values[kept])
    numbers = source is not None and not isinstance(source, str) and np.shape(source) == kept.shape
    return np.asarray(source)[kept] if numbers else source


def cut_evidence(evidence: Evidence, steps: int) -> Evidence:
    """The evidence about the first `steps` steps of each episode, with the values of whole episodes."""
    return evidence.of_rows(evidence.step < steps, np.minimum(evidence.lengths, steps))


By = Literal["counts", "network", "trees", "classifier", "file"]
_WORDS = ("logged", "estimated", TREES, BEST)
PULLS = np.geomspace(0.1, 1000.0, 25)  # candidates for m
CALIBRATED = 1.5  # largest mean weight of a uniform choice
CALIBRATION = 0.2  # share of the training episodes that select the checkpoint and the temperature
EPOCHS, BATCH, FEWEST, MOST = 15, 256, 1_000, 15_000  # updates of cloning: this many passes, within these limits
PATIENCE = 10  # reports; a run makes 50
ENOUGH = 1_000  # smallest number of training steps from which a network's supported actions are trusted
CLEAR, FAR = 0.3, 2.5  # supported: at least this share of the uniform probability; within this many standard deviations
OFTEN = 2  # smallest count of a supported action in a state of a table
FEWEST_OFF = 20  # steps off all atoms below which no density is learnt
LEAST_SCALE, LEAST_DENSITY = 1e-3, 1e-12  # of standard deviations and densities, in units of [-1, 1]


@dataclass(frozen=True, eq=False)
class Clone:
    """The behaviour policy on a log, imitated by one fold's model."""

    logged: Floats  # [N]: probability or density of the logged action, the divisor of weights
    probabilities: Floats | None = None  # [M, A] of discrete actions
    mode: NDArray[np.float32] | None = None  # [M, A]: most likely continuous action
    spread: Floats | None = None  # [M, A]: standard deviation around the mode
    supported: NDArray[np.bool_] | None = None  # [M, A] of discrete actions: the training episodes show it taken here
    rows: int = 0  # number of training steps, of continuous actions those off all atoms
    atoms: Atoms | None = None  # of continuous actions
    pattern: Clone | None = None  # the behaviour policy's choice among their patterns

    def supports(self, target: Target, space: Any) -> NDArray[np.bool_]:
        """Whether the training episodes show the behaviour policy's discrete actions [M, A], or all draws [M, 1].

        A network trained on few steps supports nothing, because it confuses contexts. An action on a bound is not
        supported either, because the behaviour policy's density does not apply to a clipped action.
        """
        if self.supported is not None:
            return self.supported
        if self.mode is None or self.spread is None or target.actions is None:
            raise TypeError("a clone of continuous actions needs a target with sampled actions")
        far = np.abs(target.actions - self.mode[:, None]) > FAR * self.spread[:, None]  # [M, K, A]
        cut = (target.actions <= np.asarray(space.low)) | (target.actions >= np.asarray(space.high))
        near = ~(far | cut).any(axis=2) & (self.rows >= ENOUGH)  # [M, K]
        if self.atoms is not None and self.pattern is not None and self.pattern.supported is not None:
            taken = self.atoms.pattern_of(target.actions)  # [M, K]
            shown = np.take_along_axis(self.pattern.supported, np.maximum(taken, 0), axis=1)
            whole = np.isfinite(self.atoms.fixed.sum(axis=1))[taken]  # on atoms in all dimensions
            near = (near | whole) & shown & ((taken == 0) | whole)
        return np.asarray(near.all(axis=1)[:, None])

    def target(self, log: Log, *, sample: bool, bandwidth: float | None = None, seed: int = 0) -> Target:
        """The clone as a judged policy: sampled, or its most likely action."""
        own, space = self.probabilities, log.spec.action
        if own is not None:
            chances = own if sample else np.eye(own.shape[1])[own.argmax(1)]
            return Target(chances[np.asarray(log.position), np.asarray(log.action)], chances)
        if self.mode is None or self.spread is None or not isinstance(space, Continuous):
            raise TypeError("a clone needs probabilities, or a mode and a spread")
        chances = None if self.pattern is None else self.pattern.probabilities
        if not sample:
            likeliest = None if chances is None else chances.argmax(axis=1)
            return with_kernel(self._on_atoms(self.mode, likeliest), log, common_bounds(space, space), bandwidth, seed)
        generator = np.random.default_rng([seed, 5])
        noise = generator.standard_normal((len(self.mode), DRAWS, self.mode.shape[1]))
        drawn = np.clip(self.mode[:, None] + self.spread[:, None] * noise, space.low, space.high).astype(np.float32)
        if chances is None:
            return Target(self.logged, actions=drawn)
        levels = generator.random((len(chances), DRAWS, 1)) * chances.sum(axis=1)[:, None, None]
        patterns = (chances.cumsum(axis=1)[:, None] > levels).argmax(axis=2)  # [M, K]
        return Target(self.logged, actions=self._on_atoms(drawn, patterns))

    def _on_atoms(self, actions: NDArray[np.float32], patterns: Ordinals | None) -> NDArray[np.float32]:
        """Actions [..., A] with the atoms of their patterns [...] in place of what they have there."""
        if self.atoms is None or patterns is None:
            return actions
        fixed = self.atoms.fixed[patterns]
        return np.where(np.isnan(fixed), actions, fixed).astype(np.float32)


class Fit(NamedTuple):
    """How well models predict the behaviour policy's actions in episodes that they never saw."""

    loss: float  # mean negative logarithm of the probability of a logged action, in nats
    constant: float  # the same where every step gets the shares of actions in the other folds
    mean_weight: float  # of a uniform choice: 1 for true probabilities, less if some actions are never taken

    @property
    def calibrated(self) -> bool:
        """Whether weights are not too large on average, up to a factor of 1.5."""
        return self.mean_weight <= CALIBRATED


@dataclass(frozen=True, eq=False)
class Propensities:
    """Probabilities of the behaviour policy's actions, and the clones behind them, one per fold."""

    logged: Floats  # [N]
    all_actions: Floats | None  # [N, A]: of all discrete actions, estimated where they are not known
    estimated: bool  # whether `logged` was estimated
    clones: tuple[Clone, ...]
    by: By | None = None  # the kind of model that estimated `logged`
    fit: Fit | None = None  # how well it predicts discrete actions
    classifier: str | None = None  # its name if it is a classifier of the user
    declared: str | None = None  # the declaration in words, if `logged` was declared
    shown: NDArray[np.bool_] | None = None  # [N, A]: known probabilities that are high enough to show an action


def propensities_of(
    log: Log,
    folds: Ordinals,
    source: Any = None,
    *,
    states: States | None = None,
    seed: int = 0,
    clones: bool = True,
) -> Propensities:
    """Recorded or estimated propensities; with `states` by tables of counts, None: by networks.

    `source`: None uses recorded, or declared, propensities if there are any; "logged" requires them, "estimated"
    ignores them; "trees" and a classifier estimate by it, and "best" by trees if they predict other episodes better
    than the default model; numbers [N], those of a file and earlier `Propensities` of this log with the same folds are
    used unchanged. Without `clones` the behaviour policy is not modelled where propensities are recorded.
    Raises ConfigError for anything else, SpecError if it is not possible.
    """
    if isinstance(source, Propensities):
        return source
    if is_by_classifier(source):
        return _by_classifier(log, folds, source, states, seed)
    if log.declared is not None and (source is None or (isinstance(source, str) and source == "logged")):
        return declared_propensities(log, folds)
    of_file = source if isinstance(source, FilePropensities) else None
    recorded = _recorded(log, source) if of_file is None else of_file.values
    able = isinstance(log.spec.action, Discrete | Continuous)
    if not able and recorded is None:
        raise SpecError(
            "this log has several simultaneous choices and no propensities, and no model of the behaviour policy "
            "supports such actions",
            fix="record the propensities, or pass them as propensities=...",
        )
    models = _clones(log, folds, states, seed) if able and (clones or recorded is None) else ()
    found, space = _of_clones(log, folds, models, recorded, "network" if states is None else "counts"), log.spec.action
    if of_file is not None and of_file.estimated:
        fit_of = _fit_of(log, folds, of_file.values, of_file.values) if isinstance(space, Discrete) else None
        return replace(found, estimated=True, by="file", fit=fit_of)
    if recorded is None or not isinstance(space, Discrete) or log.action_mask is not None:
        return found
    position = np.asarray(log.position)  # the probabilities of all actions may follow from recorded ones
    words = [
        np.asarray(log.observation[name])[position, column]
        for name, leaf in log.spec.observation.items()
        if isinstance(leaf, Codes)
        for column in range(len(leaf.sizes))
    ]
    known = known_probabilities(np.asarray(log.action), found.logged, space.n, words)
    return found if known is None else replace(found, all_actions=known, shown=_is_shown(known, space.n))


def declared_propensities(log: Log, folds: Ordinals) -> Propensities:
    """Declared probabilities of the actions, or shares among other folds' rows of the same stratum, also of clones."""
    declared, space = log.declared, log.spec.action
    if declared is None or not isinstance(space, Discrete):
        raise TypeError("declared propensities need a declaration, and discrete actions")
    stored = len(next(iter(log.observation.values())))
    if declared.probabilities is not None:
        chances = np.tile(np.asarray(declared.probabilities, np.float64), (stored, 1))
        logged = chances[0][np.asarray(log.action)]
        clone = Clone(logged, chances, supported=_is_shown(chances, space.n), rows=log.steps)
        clones = (clone,) * (int(folds.max()) + 1)
    else:
        strata = np.zeros(stored, np.int64)
        if log.stratum is not None:
            strata[np.asarray(log.next_position)] = log.stratum
            strata[np.asarray(log.position)] = log.stratum
        states = States(strata, int(strata.max()) + 1)
        drawn = (clone_by_counts(log, states, without(folds, fold)) for fold in range(int(folds.max()) + 1))
        clones = tuple(replace(one, supported=_is_shown(np.asarray(one.probabilities), space.n)) for one in drawn)
    found = _of_clones(log, folds, clones, out_of_fold(log, folds, [one.logged for one in clones]), "counts")
    return replace(found, declared=declared.text)


def _is_shown(chances: Floats, actions: int) -> NDArray[np.bool_]:
    """Whether known probabilities [.., A] are at least a tenth of uniform ones: the log shows the action by design."""
    return np.asarray(chances * actions >= RARE)


def is_by_classifier(source: Any) -> bool:
    """Whether propensities are estimated by trees or a classifier, also where they are recorded."""
    if isinstance(source, str):
        return source in (TREES, BEST)
    return all(callable(getattr(source, name, None)) for name in ("fit", "predict_proba"))


def _by_classifier(log: Log, folds: Ordinals, source: Any, states: States | None, seed: int) -> Propensities:
    """Propensities of trees or a classifier; with "best" those of the default model if these fit better."""
    own = None if isinstance(source, str) else estimator_name(source)
    shown = own or f"'{source}'"
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigError(f"propensities = {shown} needs scikit-learn", fix=install("trees"))
    if not isinstance(log.spec.action, Discrete):
        raise SpecError(
            f"propensities = {shown}",
            f"discrete actions, found {type(log.spec.action).__name__}",
            "use propensities='estimated'",
        )
    # One fold after the other: OpenMP counts its threads for each thread of Python, so that `one_thread` holds in one.
    clones = tuple(
        clone_by_classifier(log, without(folds, fold), seed + fold, source) for fold in range(int(folds.max()) + 1)
    )
    found = replace(_of_clones(log, folds, clones, None, "classifier" if own else "trees"), classifier=own)
    if own or source == TREES:
        return found
    other = propensities_of(log, folds, "estimated", states=states, seed=seed)
    return min((other, found), key=_misfit)


def _misfit(found: Propensities) -> tuple[bool, float]:
    """What a better model has less of: first miscalibrated weights, then the loss on other episodes."""
    return (True, math.inf) if found.fit is None else (not found.fit.calibrated, found.fit.loss)


def _of_clones(log: Log, folds: Ordinals, clones: tuple[Clone, ...], recorded: Floats | None, by: By) -> Propensities:
    """Propensities of the steps from the clones of their folds, unless they are recorded."""
    chances = [clone.probabilities for clone in clones if clone.probabilities is not None]
    all_actions = out_of_fold(log, folds, chances, log.position) if chances else None
    if recorded is not None:
        return Propensities(recorded, all_actions, False, clones)
    logged = out_of_fold(log, folds, [clone.logged for clone in clones])
    taken = None if all_actions is None else all_actions[np.arange(log.steps), np.asarray(log.action)]
    fit_of = None if taken is None else _fit_of(log, folds, taken, logged)
    return Propensities(logged, all_actions, True, clones, by, fit_of)


def _fit_of(log: Log, folds: Ordinals, taken: Floats, logged: Floats) -> Fit:
    """How well probabilities [N] predict the logged actions that they are of; weights divide by `logged` [N]."""
    action, of, space = np.asarray(log.action), fold_of_steps(log, folds), log.spec.action
    actions = space.n if isinstance(space, Discrete) else 1
    counts = np.zeros((int(of.max()) + 1, actions))
    np.add.at(counts, (of, action), 1.0)
    others = counts.sum(0) - counts + 1.0  # [F, A]
    shares = others / others.sum(1, keepdims=True)
    loss = -np.log(taken).mean()
    possible = actions if log.action_mask is None else np.asarray(log.transitions.mask).sum(1)
    return Fit(float(loss), float(-np.log(shares[of, action]).mean()), float((1.0 / (possible * logged)).mean()))


TIME_BINS = (1, 2, 4, 8, 16, 32)  # candidate numbers of time bins of a table, each bin with equally many rows
TIME = "relative time"  # leaf with the time for a network


def with_time(
    log: Log, states: States | None, folds: Ordinals, when: Floats, suffices: Callable[[States], bool]
) -> tuple[Log, States | None]:
    """The log and its table for a model of a behaviour policy that changed over time; `when` [N] from 0 to 1.

    A table gets the number of time bins that maximises the likelihood of held-out actions, or more bins while
    `suffices` rejects them; a network gets the time as an input.
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
        cells, where = np.unique(cell, return_inverse=True)
        return States(where.astype(np.int64), len(cells))

    def likelihood(table: States) -> float:
        of, total = fold_of_steps(log, folds), 0.0
        for fold in range(int(folds.max()) + 1):
            logged = clone_by_counts(log, table, without(folds, fold)).logged
            total += float(np.log(logged[of == fold]).sum())
        return total

    tables = [binned(bins) for bins in TIME_BINS]
    best = max(range(len(tables)), key=lambda place: likelihood(tables[place]))
    return log, next((table for table in tables[best:] if suffices(table)), tables[best])


def with_file_read(source: Any, log: Log) -> Any:
    """What `propensities_of` needs of `source` and may take long to find wrong: a file is read, a word is checked."""
    if isinstance(source, Path) or (isinstance(source, str) and ending_of(source, TABLES) is not None):
        return read_propensities(source, log)
    if isinstance(source, str):
        _check_word(source)
    return source


def _check_word(source: str | None) -> None:
    if source not in (None, *_WORDS):
        raise ConfigError(
            f"propensities = {source!r}",
            f"None, {', '.join(map(repr, _WORDS))}, a declaration such as 'shares', a classifier, the "
            f"path of a table, or one number per step; {nearest(source, (*_WORDS, 'shares'))}",
        )


def _recorded(log: Log, source: Any) -> Floats | None:
    if source is None or isinstance(source, str):
        _check_word(source)
        if source == "logged" and log.propensity is None:
            raise SpecError("this log has no propensities", fix="map their column, or use propensities='estimated'")
        propensities = None if source == "estimated" else log.propensity
    elif is_estimator(source):
        raise ConfigError(
            f"propensities: {estimator_name(source)} has no predict_proba",
            "a classifier with probabilities",
            "wrap it in sklearn.calibration.CalibratedClassifierCV, or use propensities='trees'",
        )
    else:
        propensities = np.asarray(source)
    if propensities is None:
        return None
    if propensities.shape != (log.steps,) or propensities.dtype.kind not in "fiu":
        raise ConfigError(f"propensities have shape {propensities.shape}", f"{log.steps} numbers, one for each step")
    values = np.asarray(propensities, np.float64)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        raise SpecError(
            f"the propensity of step {int(bad[0])} is {values[bad[0]]:g} ({len(bad)} such step(s))",
            "a number above 0",
            "correct it, or pass propensities='estimated'",
        )
    return values


def _clones(log: Log, folds: Ordinals, states: States | None, seed: int) -> tuple[Clone, ...]:
    which = range(int(folds.max()) + 1)
    if states is not None:
        return tuple(clone_by_counts(log, states, without(folds, fold)) for fold in which)
    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(lambda fold: clone_by_network(log, without(folds, fold), seed + fold), which))


def clone_by_counts(log: Log, states: States, learnt: Ordinals) -> Clone:
    """Shares of actions in each state, from these episodes, shrunk towards their shares over all states."""
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
    times, taken = counts.sum(1, keepdims=True), counts > 0
    often, share, total = counts[taken], overall[taken], np.broadcast_to(times, counts.shape)[taken]
    likelihoods = [float((often * np.log((often - 1.0 + m * share) / (total - 1.0 + m))).sum()) for m in PULLS]
    pull = float(PULLS[np.argmax(likelihoods)])  # pseudo-steps, by the leave-one-out likelihood
    probabilities = ((counts + pull * overall) / (times + pull))[states.stored]
    return Clone(
        ((counts + 1.0) / (times + 1.0))[here, action],
        probabilities,
        supported=(counts >= OFTEN)[states.stored],
        rows=int(of.sum()),
    )


def clone_by_network(log: Log, learnt: Ordinals, seed: int) -> Clone:
    """Behaviour cloning on these episodes, calibrated on some of them; a behaviour policy's memory is not modelled."""
    atoms = atoms_of(log)
    if atoms is not None:
        return _clone_with_atoms(log, atoms, learnt, seed)
    return _network_clone(log, log.take_episodes(learnt), seed)


def _network_clone(log: Log, mine: Log, seed: int) -> Clone:
    """The clone on a log that a network is when it has learnt from `mine`."""
    policy, held_out = cloned(mine, seed)
    held = None if held_out is None else mine.take_episodes(held_out)
    arrays = _distribution(policy, log.observation, log.action_mask, slice(None))
    there = () if held is None else _distribution(policy, held.observation, held.action_mask, held.position)
    space = log.spec.action
    if isinstance(space, Continuous):
        mean, spread = arrays
        factor = 1.0
        if held is not None:  # of maximum likelihood
            z = (space.to_unit(np.asarray(held.action)) - there[0]) / there[1]
            factor = float(np.sqrt(np.mean(np.square(z))))
        return _normal_clone(log, space, mean, np.maximum(spread * factor, LEAST_SCALE), mine.steps)
    return _calibrated_clone(log, arrays[0], None if held is None else (there[0], np.asarray(held.action)), mine.steps)


def _calibrated_clone(log: Log, logits: Floats, held: tuple[Floats, NDArray[Any]] | None, rows: int) -> Clone:
    """A clone of discrete actions with these logits [M, A], learnt from so many rows, calibrated on held-out ones."""
    chances = tempered(logits, 1.0 if held is None else best_temperature(*held))
    possible = np.isfinite(logits).sum(1, keepdims=True)
    supported = (chances * possible >= CLEAR) & (rows >= ENOUGH)
    return Clone(chances[np.asarray(log.position), np.asarray(log.action)], chances, supported=supported, rows=rows)


def _normal_clone(log: Log, space: Continuous, mean: Floats, spread: Floats, rows: int) -> Clone:
    """A clone with these normals, [M, A] in units of [-1, 1], learnt from so many rows."""
    position, half = np.asarray(log.position), np.exp(space.log_volume())
    z = (space.to_unit(np.asarray(log.action)) - mean[position]) / spread[position]
    normal = np.exp(-0.5 * np.square(z).sum(1)) / (spread[position] * np.sqrt(2.0 * np.pi)).prod(1)
    likely = np.asarray(normal) / half
    middle = np.clip(space.from_unit(mean), space.low, space.high).astype(np.float32)
    own = spread * (space.from_unit(np.ones(space.size)) - space.from_unit(np.zeros(space.size)))
    return Clone(np.maximum(likely, LEAST_DENSITY / half), mode=middle, spread=own, rows=rows)


def _clone_with_atoms(log: Log, atoms: Atoms, learnt: Ordinals, seed: int) -> Clone:
    """The probability of each pattern of atoms, and a density off all of them.

    Where an action lies on atoms in some dimensions only, the probability of its pattern stands for the density of the
    others: no policy has a weight there.
    """
    space, action = log.spec.action, np.asarray(log.action)
    if not isinstance(space, Continuous):
        raise TypeError("atoms are values of continuous actions")
    pattern = atoms.pattern_of(action)
    spec = replace(log.spec, action=Discrete(atoms.patterns))
    patterns = replace(log, action=pattern.astype(np.int32), spec=spec, propensity=None)
    states = number_observations(patterns)
    if is_tabular(patterns, states):
        choice = clone_by_counts(patterns, states, learnt)
    else:
        choice = clone_by_network(patterns, learnt, seed)
    off = np.flatnonzero((pattern == 0) & np.isin(np.asarray(log.episode), learnt))
    if len(off) < FEWEST_OFF:  # checks.py refuses a policy that needs a density
        shape = (len(next(iter(log.observation.values()))), space.size)
        density = _normal_clone(log, space, np.zeros(shape), np.ones(shape), 0)
    else:
        density = _network_clone(log, single_steps(log, off), seed)
    logged = choice.logged * np.where(pattern == 0, density.logged, 1.0)
    return replace(density, logged=logged, atoms=atoms, pattern=choice)


def clone_by_classifier(log: Log, learnt: Ordinals, seed: int, source: Any = TREES) -> Clone:
    """Boosted trees or another classifier on these episodes, calibrated on some of them."""
    mine, held = learnt, None
    if len(np.unique(log.clusters[learnt])) > 1:
        mine, held = log.split_ordinals(1.0 - CALIBRATION, seed, learnt)
    logits = log_chances(source, log, mine, held, seed)
    if log.action_mask is not None:
        logits = np.where(np.asarray(log.action_mask), logits, -np.inf)
    rows = np.isin(np.asarray(log.episode), mine if held is None else held)
    apart = None if held is None else (logits[np.asarray(log.position)[rows]], np.asarray(log.action)[rows])
    return _calibrated_clone(log, logits, apart, int(np.isin(np.asarray(log.episode), learnt).sum()))


def best_temperature(logits: Floats, action: NDArray[Any]) -> float:
    """Maximum-likelihood temperature of actions [N] under `softmax(logits / temperature)`, logits [N, A]."""

    def error(log_temperature: float) -> float:
        return float(-np.mean(log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(action)), action]))

    return float(np.exp(minimize_scalar(error, bounds=(-2.0, 3.0), method="bounded").x))


def tempered(logits: Floats, temperature: float) -> Floats:
    """`softmax(logits / temperature)` [..., A], with every allowed action at least `SMALLEST` before normalisation."""
    chances = np.exp(log_softmax(logits / temperature, axis=1))
    chances = np.where(np.isfinite(logits), np.maximum(chances, SMALLEST), 0.0)
    return np.asarray(chances / chances.sum(1, keepdims=True))


@native.off()
def cloned(log: Log, seed: int) -> tuple[Policy, Ordinals | None]:
    """A clone of the behaviour policy, and the episodes that selected it; None with one episode, or one cluster."""
    updates = min(max(EPOCHS * log.steps // BATCH, FEWEST), MOST)
    algorithm = BC(batch_size=BATCH, hidden=(128, 128), learning_rate=1e-3, schedule=cosine, actor_head=state_gaussian)
    several: Any = {"held_out": CALIBRATION, "split_seed": seed, "best_metric": "held_out/imitation_loss"}
    several = {**several, "selection_share": 1.0, "patience": PATIENCE} if log.clusters.any() else {}
    run = fit(algorithm, log, updates, seeds=[seed], scale="standard", progress=False, **several)
    return (run.best_policy(), log.split_ordinals(1.0 - CALIBRATION, seed)[1]) if several else (run.policy(), None)


def _distribution(policy: Policy, observation: Any, mask: Any, rows: Any) -> tuple[Floats, ...]:
    """Parameters of a clone's distribution at some stored observations: logits, or means and stds in [-1, 1]."""
    leaves = policy.scaler.observation({name: np.asarray(leaf[rows]) for name, leaf in observation.items()})
    allowed = None if mask is None else np.asarray(mask[rows])

    def ask(part: slice) -> tuple[Any, ...]:
        seen = {name: leaf[part] for name, leaf in leaves.items()}
        return _ask(policy.algorithm, policy.params, seen, None if allowed is None else allowed[part])

    return in_chunks(ask, len(next(iter(leaves.values()))))


@eqx.filter_jit
def _ask(algorithm: Any, params: Any, leaves: Any, mask: Any) -> tuple[Any, ...]:
    distribution = algorithm.distribution(params, leaves, mask)
    if isinstance(distribution, Gaussian):
        return distribution.mean, jnp.exp(jnp.broadcast_to(distribution.log_std, distribution.mean.shape))
    return (distribution.logits,)
