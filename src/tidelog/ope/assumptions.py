"""Assumptions of an estimate, tested or weakened: independence, support, unrecorded causes, heavy tails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr

from tidelog.data.dependence import cluster_candidates, codes_of, day_labels, find_near_copies
from tidelog.data.log import Log, States, number_observations
from tidelog.data.statistics import returns_to_go
from tidelog.errors import ConfigError, SpecError
from tidelog.ope.estimators import (
    Ratios,
    cluster_sums,
    episode_weights,
    generalised_pareto_shape,
    quotients,
    required_part,
    returns,
)
from tidelog.ope.evidence import Evidence, Floats, Ordinals, clusters_of, ends_by_clock, fold_of_steps, observed_numbers
from tidelog.ope.risk import RULE_OF_THREE
from tidelog.types import Codes, Continuous, Discrete, Hybrid, Vector

# Independence in a log: tests of the Markov state and of a constant behaviour policy, and detection of dependent
# episodes.
#
# Each test is one of conditional independence: given the observation (and the action), does anything else predict the
# outcome? Outcomes are rewards, terminations and next observations given observation and action, and the behaviour
# policy's actions given the observation. The candidates are the history of the episode (counts of past actions, past
# rewards, the last step, the step number) or the calendar time of the row.
#
# Method: the generalised covariance measure (Shah & Peters 2020, "The hardness of conditional independence testing and
# the generalised covariance measure", arXiv:1804.07203). Models of other folds regress outcome and candidate on the
# observation; under independence the mean product of the residuals is 0. The largest of all standardised products is
# compared with its distribution under Gaussian multipliers of whole episodes or clusters, so one level holds for all
# pairs simultaneously. The regression is a table if the log has one or if its many labels were each seen often enough,
# otherwise a ridge regression on random features. An inexact regression leaves a part of the observation in both
# residuals: a candidate that adds less than `LEAST` to the explained variance is ignored, unless noise dominates.
#
# Episodes that depend on one another are resampled together. In a log without a cluster column they are detected:
# exact copies, and columns that look like a person, a session, a store or a day.
#
# Letters: `N` rows, `E` episodes, `U` units (clusters or episodes), `P` outcomes, `Q` candidates, `D` features.

LEVEL = 0.0025  # of each of at most four tests: 1% together
LEAST = 1e-3  # smallest added share of explained variance; below it the regression's error is an equally likely cause,
NOISY = 0.2  # unless at least this share of the variance is not explained by the observation
MOST_ROWS, MOST_COLUMNS, MOST_ACTIONS = 40_000, 12, 12
FEATURES, RIDGE, DRAWS = 160, 1e-4, 1_000
BLOCK = 4_096  # rows whose features are in memory together
SAME = "the same action"
EXACT = 1e-10  # share of the variance up to which a residual counts as rounding
ROUNDING = 1e-6  # share of a column's largest value up to which variation counts as rounding (32-bit observations)
CELL = 10  # smallest number of rows of other folds for a cell's mean; errors of smaller cells correlate many units
FEWEST_UNITS, MOST_UNITS = 20, 2_000
REWARDS, ENDS, NEXT, BEHAVIOR = "rewards", "terminations", "next observations", "the behaviour policy's actions"
ENOUGH = 30  # smallest number of clusters; resampling this many costs little if episodes are independent
SIGNIFICANT = 0.01
COPIES = "duplicated rows"  # check name of the readers' warning


class NamedColumns(NamedTuple):
    """Columns with readable names."""

    names: list[str]
    values: Floats  # [N, columns]


class Dependence(NamedTuple):
    """Result of one test."""

    outcome: str  # one of REWARDS, ENDS, NEXT, BEHAVIOR
    cause: str  # candidate with the largest standardised covariance
    p_value: float  # of the largest over all pairs
    added: float  # share of the outcome's variance that the candidate explains beyond the observation
    correlation: float  # of the residuals
    fails: bool  # whether independence is rejected and the effect exceeds the regression's error

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        return (
            f"{self.cause} still predicts {self.outcome} when the observation is known (partial correlation "
            f"{self.correlation:+.2f}, p {'< 0.001' if self.p_value < 1e-3 else f'= {self.p_value:.3f}'})"
        )


def history_dependence(log: Log, folds: Ordinals, states: States | None, *, seed: int = 0) -> list[Dependence]:
    """Test whether the history of an episode predicts later outcomes that vary; empty for one-step episodes."""
    if int(np.diff(log.starts).max()) < 2:
        return []
    rows = _some_rows(log, seed)
    past = _history(log, rows)
    return _tests(log, folds, states, rows, past, seed, skip_first=True)


def time_dependence(log: Log, folds: Ordinals, states: States | None, *, seed: int = 0) -> list[Dependence]:
    """Test whether calendar time predicts rewards or the behaviour policy's actions; empty without a time column."""
    when = relative_time(log)
    if when is None:
        return []
    rows = _some_rows(log, seed)
    basis = time_basis(when[rows])
    names = ["the time of the row"] * basis.shape[1]
    results = _tests(log, folds, states, rows, NamedColumns(names, basis), seed, skip_first=False)
    return [one for one in results if one.outcome in (REWARDS, BEHAVIOR)]


def relative_time(log: Log) -> Floats | None:
    """[N]: the row's time as a share of the log's ranks, 0 to 1; None without times or if all are equal."""
    if log.time is None:
        return None
    time = np.asarray(log.time)
    number = time.astype("datetime64[us]").astype(np.int64) if time.dtype.kind == "M" else time
    number = np.asarray(number, np.float64)
    known = np.isfinite(number)
    if not known.all() or number.min() == number.max():
        return None
    distinct, where = np.unique(number, return_inverse=True)
    return np.asarray(where / (len(distinct) - 1), np.float64)


def time_basis(when: Floats) -> Floats:
    """[N, 5]: linear term and two harmonics of the relative time, for slow and for periodic changes."""
    waves = [f(2.0 * np.pi * k * when) for k in (1, 2) for f in (np.sin, np.cos)]
    return np.stack([when - 0.5, *waves], axis=1)


def _tests(
    log: Log,
    folds: Ordinals,
    states: States | None,
    rows: Ordinals,
    candidates: NamedColumns,
    seed: int,
    *,
    skip_first: bool,
) -> list[Dependence]:
    """All tests of these candidates, each with its own regression."""
    seen, seen_and_done = _features(log, states, rows, seed)
    episode, clusters = np.asarray(log.episode)[rows], clusters_of(log)
    units = np.asarray(episode if clusters is None else clusters[episode], np.int64)
    fold = fold_of_steps(log, folds)[rows]
    names, own = candidates
    later = np.asarray(log.step)[rows] > 0 if skip_first else np.ones(len(rows), bool)
    results = []
    for name, outcome, given, known in _outcomes(log, rows, seen, seen_and_done):
        of = np.flatnonzero(known & later)
        if len(np.unique(units[of])) < FEWEST_UNITS or not np.ptp(outcome[of], axis=0).any():
            continue
        columns = [i for i, one in enumerate(names) if given is not seen or SAME not in one]
        past = NamedColumns([names[i] for i in columns], own[of][:, columns])
        results.append(_covariance_test(name, outcome[of], past, given.of(of), fold[of], units[of], seed))
    return results


class _Conditions(NamedTuple):
    """Conditioning variables of a regression at `rows` [N]: cells of a table [L], or features [L, D].

    With `actions` [L, A] there are D features for each action: those of the row where it is the row's, else 0. They are
    computed for a block of rows at a time, because all of them take more memory than the log.
    """

    values: NDArray[Any]
    rows: Ordinals
    actions: Floats | None = None

    @property
    def is_table(self) -> bool:
        return self.values.ndim == 1

    def of(self, rows: Ordinals) -> _Conditions:
        return self._replace(rows=self.rows[rows])

    def residuals(self, values: Floats, fold: NDArray[np.int64]) -> Floats:
        """[N, columns]: values minus predictions from other folds; NaN if other folds have too few rows of a cell."""
        residuals, blocks = np.full_like(values, np.nan), {}
        if self.is_table:
            _, cells = np.unique(self.values[self.rows], return_inverse=True)
            size = int(cells.max()) + 1
            for one in np.unique(fold):
                mine, others = fold == one, fold != one
                count = np.bincount(cells[others], minlength=size)
                sums = np.stack([np.bincount(cells[others], column, size) for column in values[others].T], axis=1)
                mean = np.where(count[:, None] >= CELL, sums / np.maximum(count, 1)[:, None], np.nan)
                residuals[mine] = values[mine] - mean[cells[mine]]
            return residuals
        moments: dict[int, list[Any]] = {}  # of each fold: products of features, of features and values, their squares
        for one in np.unique(fold):
            rows = np.flatnonzero(fold == one)
            blocks[one] = np.array_split(rows, -(-len(rows) // BLOCK))
            moments[one] = [0.0, 0.0, 0.0]
            for block in blocks[one]:
                x = self._features(block)
                for position, part in enumerate((x.T @ x, x.T @ values[block], float(np.square(x).sum()))):
                    moments[one][position] = moments[one][position] + part
        for one in blocks if len(blocks) > 1 else ():
            others = [own for fold_of_own, own in moments.items() if fold_of_own != one]
            gram, cross, square = (sum(parts) for parts in zip(*others, strict=True))
            weights = np.linalg.solve(gram + RIDGE * square / len(gram) * np.eye(len(gram)), cross)
            for block in blocks[one]:
                residuals[block] = values[block] - self._features(block) @ weights
        return residuals

    def _features(self, block: Ordinals) -> Floats:
        """The features of some of the rows."""
        own = self.values[self.rows[block]]
        if self.actions is None:
            return own
        return np.concatenate([own * taken[:, None] for taken in self.actions[self.rows[block]].T], axis=1)

    def independent_squares(self, left: Floats, right: Floats) -> Floats:
        """[P * Q]: expected sum of squared products of residuals under independence within each cell.

        If two rare events coincide in few rows, the observed sum underestimates the variance of the products.
        """
        if not self.is_table:
            return np.outer(np.square(left).sum(0), np.square(right).mean(0)).ravel()
        _, cells, count = np.unique(self.values[self.rows], return_inverse=True, return_counts=True)
        squares = [
            np.stack([np.bincount(cells, np.square(column), len(count)) for column in values.T], axis=1)
            for values in (left, right)
        ]
        return np.asarray(squares[0].T @ (squares[1] / count[:, None])).ravel()


def _covariance_test(
    name: str, outcome: Floats, candidates: NamedColumns, given: _Conditions, fold: Any, units: Any, seed: int
) -> Dependence:
    """Largest standardised covariance of residuals over all pairs of columns."""
    both = given.residuals(np.concatenate([outcome, candidates.values], axis=1), fold)
    valid = np.isfinite(both).all(1)
    _, unit = np.unique(units[valid], return_inverse=True)
    count = int(unit.max(initial=-1)) + 1
    if count < FEWEST_UNITS:
        return Dependence(name, candidates.names[0], 1.0, 0.0, 0.0, fails=False)
    left, right = both[valid, : outcome.shape[1]], both[valid, outcome.shape[1] :]
    left = np.where(_has_residual(left, outcome[valid]), left, 0.0)
    right = np.where(_has_residual(right, candidates.values[valid]), right, 0.0)
    if count > MOST_UNITS:
        unit, count = unit * MOST_UNITS // count, MOST_UNITS
    within = sparse.coo_array((np.ones(len(unit)), (unit, np.arange(len(unit)))), shape=(count, len(unit))).tocsr()
    sums = np.concatenate([within @ (column[:, None] * right) for column in left.T], axis=1)  # [U, P * Q]
    energy = np.sqrt(np.outer(np.square(left).sum(0), np.square(right).sum(0))).ravel()
    independent = given.of(np.flatnonzero(valid)).independent_squares(left, right)
    error = np.sqrt(np.maximum(np.square(sums).sum(0), independent))
    real = error > 1e-9 * np.maximum(energy, 1e-300)
    statistic = np.where(real, sums.sum(0) / np.where(real, error, 1.0), 0.0)
    best = int(np.abs(statistic).argmax())
    signs = np.random.default_rng([seed, 8]).standard_normal((DRAWS, count))
    drawn = np.abs(signs @ np.where(real, sums / np.where(real, error, 1.0), 0.0)).max(1)
    largest = float(abs(statistic[best]))
    normal = min(1.0, 2.0 * float(ndtr(-largest)) * len(statistic))  # Bonferroni, for p-values too small for the draws
    p_value = min(float((1 + (drawn >= largest).sum()) / (DRAWS + 1)), max(normal, 1e-12))
    p, q = divmod(best, right.shape[1])
    correlation = float(sums[:, best].sum() / energy[best]) if energy[best] > 0 else 0.0
    total = float(np.square(outcome[valid, p] - outcome[valid, p].mean()).sum())
    unexplained = float(np.square(left[:, p]).sum()) / total if total > 0 else 0.0
    added = correlation**2 * min(unexplained, 1.0)
    fails = p_value < LEVEL and (added >= LEAST or unexplained >= NOISY)
    return Dependence(name, candidates.names[q], p_value, added, correlation, fails)


def _has_residual(residuals: Floats, values: Floats) -> NDArray[np.bool_]:
    """[columns]: whether the residual of each column exceeds the rounding error of a fully explained column."""
    exact = EXACT * np.square(values - values.mean(0)).sum(0) + np.square(ROUNDING * values).sum(0)
    return np.asarray(np.square(residuals).sum(0) > exact)


def _outcomes(
    log: Log, rows: Ordinals, seen: _Conditions, done: _Conditions
) -> list[tuple[str, Floats, _Conditions, Any]]:
    """The tested outcomes: name, values [N, P], conditioning variables, and which rows are known."""
    always = np.ones(len(rows), bool)
    position, after = np.asarray(log.position)[rows], np.asarray(log.next_position)[rows]
    columns = _observed(log)
    reward = _centred_rewards(log)[rows, None]
    ended = np.asarray(log.terminated)[rows, None].astype(np.float64)
    outcomes = [(REWARDS, _unit_scale(reward), done, always)]
    outcomes += [] if ends_by_clock(log) else [(ENDS, ended, done, always)]
    going = (after != position) & ~np.asarray(log.terminated)[rows]
    outcomes.append((NEXT, _unit_scale(columns[after] - columns[position]), done, going))
    return [*outcomes, (BEHAVIOR, _actions(log, rows).values, seen, always)]


def _centred_rewards(log: Log) -> Floats:
    """Rewards [N] minus their mean, 0 without any: beside a large mean, differences would count as rounding."""
    reward = np.zeros(log.steps) if log.reward is None else np.asarray(log.reward, np.float64)
    return np.asarray(reward - reward.mean())


def _unit_scale(values: Floats) -> Floats:
    """Values scaled to a standard deviation of 1; 0 in columns that vary only by rounding."""
    std = values.std(0)
    varies = std > ROUNDING * np.abs(values).max(0, initial=0.0)
    return np.where(varies, values / np.where(varies, std, 1.0), 0.0)


def _standardised(values: Floats) -> Floats:
    scaled = _unit_scale(values)
    return np.asarray(scaled - scaled.mean(0))


def _actions(log: Log, rows: Ordinals) -> NamedColumns:
    """Logged actions as columns, by name."""
    space, action = log.spec.action, np.asarray(log.action)[rows]
    if isinstance(space, Discrete):
        common = np.argsort(-np.bincount(action, minlength=space.n), kind="stable")[:MOST_ACTIONS]
        names = [f"action {space.names[a] if space.names else a}" for a in common]
        return NamedColumns(names, (action[:, None] == common).astype(np.float64))
    flat = action.reshape(len(action), -1)[:, :MOST_ACTIONS].astype(np.float64)
    return NamedColumns([f"action column {i}" for i in range(flat.shape[1])], flat)


def _history(log: Log, rows: Ordinals) -> NamedColumns:
    """The episode's history: sums of past actions and rewards, the last step, the number of the step."""
    everything = np.arange(log.steps)
    actions = _actions(log, everything)
    reward = _centred_rewards(log)
    first = np.repeat(log.starts[:-1], np.diff(log.starts))
    step = np.asarray(log.step)

    def so_far(values: Floats) -> Floats:
        total = np.cumsum(values, axis=0) - values
        return np.asarray(total - total[first])

    def last(values: Floats) -> Floats:
        moved = np.roll(values, 1, axis=0)
        moved[step == 0] = 0.0
        return moved

    counted = "how often {} was taken before" if isinstance(log.spec.action, Discrete) else "the sum of past {}"
    names = [counted.format(name) for name in actions.names] + [f"the last {name}" for name in actions.names]
    columns = [so_far(actions.values), last(actions.values), so_far(reward)[:, None], last(reward)[:, None]]
    names += ["the sum of past rewards", "the last reward", "the number of the step"]
    columns.append(step[:, None].astype(np.float64))
    if isinstance(log.spec.action, Discrete):
        repeated = (columns[0] * actions.values).sum(1)
        often = [repeated > np.quantile(repeated, share) for share in (0.8, 0.95)]
        columns.append(np.stack([repeated, *often], axis=1).astype(np.float64))
        names += [f"how often {SAME} was taken before"] * 3
    seen = _observed(log)[np.asarray(log.position)]
    columns.append(last(seen))
    called = _observed_names(log)
    called = called if len(called) == seen.shape[1] else ["the observation"] * seen.shape[1]  # projected, or an image
    names += [f"{name} of the decision before" for name in called]
    values = np.concatenate(columns, axis=1)[rows]
    return NamedColumns(names, _standardised(values))


def _observed(log: Log) -> Floats:
    """[M, columns]: observations as numbers, at most `MOST_COLUMNS` columns; more are projected at random."""
    seen = observed_numbers(log)
    if seen.shape[1] > MOST_COLUMNS:
        directions = np.random.default_rng(9).standard_normal((seen.shape[1], MOST_COLUMNS)) / np.sqrt(seen.shape[1])
        seen = seen @ directions.astype(np.float32)
    return np.asarray(seen, np.float64)


def _observed_names(log: Log) -> list[str]:
    """The names of the observed labels and numbers, in the order of `observed_numbers`."""
    names: list[str] = []
    for name, leaf in sorted(log.spec.observation.items()):
        if isinstance(leaf, Codes):
            for column, size in enumerate(leaf.sizes):
                labels = leaf.vocabularies[column] if leaf.vocabularies else range(size)
                called = repr(leaf.names[column]) if leaf.names else f"{name} {column}"
                names += [f"{called} = {label}" for label in labels]
        elif isinstance(leaf, Vector):
            names += [repr(one) for one in leaf.names] or [f"{name} {column}" for column in range(leaf.size)]
    return names


def _features(log: Log, states: States | None, rows: Ordinals, seed: int) -> tuple[_Conditions, _Conditions]:
    """Regression inputs: the observation, and the observation with the action."""
    position, all_rows = np.asarray(log.position)[rows], np.arange(len(rows))
    if states is None and len(_observed_names(log)) > MOST_COLUMNS:
        # A projection of many labels cannot tell them apart, so that an exact Markov state would fail the test.
        numbered = number_observations(log)
        visited = len(np.unique(numbered.stored[np.asarray(log.position)]))
        states = numbered if log.steps >= CELL * visited else None
    if states is not None and isinstance(log.spec.action, Discrete):
        here = states.stored[position].astype(np.int64)
        pair = here * log.spec.action.n + np.asarray(log.action)[rows]
        return _Conditions(here, all_rows), _Conditions(pair, all_rows)
    generator = np.random.default_rng([seed, 10])
    seen, actions = _observed(log)[position], _actions(log, rows).values
    actions = _standardised(actions) if isinstance(log.spec.action, Continuous | Hybrid) else actions

    def features(x: Floats) -> Floats:
        directions = generator.standard_normal((x.shape[1], FEATURES)) / np.sqrt(x.shape[1])
        waves = np.cos(x @ directions + generator.uniform(0.0, 2.0 * np.pi, FEATURES))
        return np.concatenate([np.ones((len(x), 1)), x, np.square(x), waves], axis=1)

    alone = features(seen)
    if isinstance(log.spec.action, Discrete) and actions.shape[1] <= 4:
        return _Conditions(alone, all_rows), _Conditions(alone, all_rows, actions)
    return _Conditions(alone, all_rows), _Conditions(features(np.concatenate([seen, actions], axis=1)), all_rows)


def _some_rows(log: Log, seed: int) -> Ordinals:
    """Rows of random whole episodes, as many as fit into `MOST_ROWS`."""
    if log.steps <= MOST_ROWS:
        return np.arange(log.steps)
    order = np.random.default_rng([seed, 11]).permutation(len(log.episode_ids))
    lengths = np.diff(log.starts)
    chosen = order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), MOST_ROWS)))]
    return np.flatnonzero(np.isin(np.asarray(log.episode), chosen))


def failing(found: Sequence[Dependence], outcomes: Sequence[str]) -> list[Dependence]:
    """Failed tests of these outcomes, the strongest effect first."""
    return sorted((one for one in found if one.fails and one.outcome in outcomes), key=lambda one: -one.added)


class ClusteredLog(NamedTuple):
    """The log with its clusters, and notes about them."""

    log: Log
    notes: tuple[str, ...] = ()


def with_detected_clusters(log: Log) -> ClusteredLog:
    """The log with detected clusters, if it has no cluster column, and notes about them.

    Exact copies form one cluster each, and nearly equal episodes that occur too evenly for chance; else the values of
    a column that looks like a person, a session, a store or a day. A column with few values is only reported: so few
    units show little, and rewards that vary with the day are harmless if actions are sampled independently.
    """
    as_one = "are counted as one cluster, not as independent ones"
    if log.cluster is not None:
        return ClusteredLog(log)
    if any(problem.check == COPIES for problem in log.report.warnings):
        codes = _copies(log)
        if len(np.unique(codes)) < len(codes):
            note = f"episodes that are exact copies of one another {as_one}. fix: remove the copies"
            return ClusteredLog(_clustered(log, codes), (note,))
    near = find_near_copies(log)
    if near is not None:
        note = (
            "episodes that are nearly equal to one another, in observations, actions and rewards (up to "
            f"{near.apart:g} standard deviations), {as_one}. fix: remove the copies"
        )
        return ClusteredLog(_clustered(log, near.groups), (note,))
    candidates = sorted(cluster_candidates(log), key=lambda one: (not one.p_value < SIGNIFICANT, -one.correlation))
    for one in candidates:
        if one.values >= ENOUGH:
            why = f"returns correlate within it: {one.correlation:.2g}" if one.p_value < SIGNIFICANT else "by its name"
            note = f"episodes with the same '{one.name}' {as_one} ({why})"
            first = log.starts[:-1]
            if one.name in log.extra:
                codes = np.asarray(codes_of(np.asarray(log.extra[one.name])[first]))
            else:
                codes = np.asarray(day_labels("time", np.asarray(log.time)[first])[0].codes)
            return ClusteredLog(_clustered(log, codes), (f"{note}. fix: {one.fix}",))
    notes = (f"'{one.name}' may identify dependent episodes ({one.found}). fix: {one.fix}" for one in candidates)
    return ClusteredLog(log, tuple(notes))


def _clustered(log: Log, codes: NDArray[Any]) -> Log:
    """Codes [E] as a column; each unknown (negative) code is its own cluster."""
    alone = codes < 0
    codes = np.where(alone, codes.max(initial=0) + 1 + np.arange(len(codes)), codes)
    _, dense = np.unique(codes, return_inverse=True)
    return replace(log, cluster=dense.astype(np.int32)[np.asarray(log.episode)])


def _copies(log: Log) -> NDArray[np.int64]:
    """[E]: equal numbers for episodes with the same observations, actions and rewards."""
    columns = [np.asarray(leaf)[np.asarray(log.position)] for _, leaf in sorted(log.observation.items())]
    columns.append(np.asarray(log.action))
    columns += [np.asarray(one) for one in (log.reward, log.time, log.propensity) if one is not None]
    flat = [np.ascontiguousarray(one.reshape(len(one), -1)) for one in columns]
    rows = np.concatenate([one.view(np.uint8).reshape(len(one), -1) for one in flat], axis=1)
    _, row = np.unique(np.ascontiguousarray(rows).view(f"V{rows.shape[1]}")[:, 0], return_inverse=True)
    lengths = np.diff(log.starts)
    if lengths.max() == 1:
        return np.asarray(row, np.int64)
    parts = [row[a:b].tobytes() for a, b in zip(log.starts[:-1], log.starts[1:], strict=True)]
    names = {part: number for number, part in enumerate(dict.fromkeys(parts))}
    return np.asarray([names[part] for part in parts], np.int64)


# What the log does not show about a policy: bounds of its value, and actions more frequent than in any episode.
#
# An action that the behaviour policy never takes does not appear in importance weights: self-normalised estimates give
# its share to the logged actions. Its value is not identified, only bounded (Manski 1990, "Nonparametric bounds on
# treatment effects"). Here each such action earns, from then on, the worst return to go of any logged episode at that
# step or later; other actions have the model's value. Sequential doubly robust estimation with these values,
#
#     sum_t discount^t (rho_t (r_t - Q_t) + rho_t-1 V_t),
#
# corrects Q for every action that the behaviour policy takes, for any Q, and leaves it unchanged for all others. Its
# mean is therefore the bound. An action counts as shown only if other folds hold it often enough: treating a shown
# action as unshown costs precision but not validity. Weights are not normalised: 1 minus their mean is the missing
# part.
#
# Occupancy ratios need an observation that is a Markov state. A test on the log can find only effects of histories in
# the log: if every logged episode sends nine times, nothing shows the effect of a twentieth send. Therefore the
# target's number of each action per episode is compared with those of logged episodes.
#
# Letters: `N` steps, `E` episodes, `A` actions, `T` steps of the longest episode.

UNKNOWN = 0.5  # share of logged actions that other episodes do not show, from which support counts as unknown
TIMES = 1.5  # ratio of frequencies from which a policy outside the logged range is refused
QUANTILES = (0.01, 0.99)  # quantiles over logged episodes


def unshown_share(evidence: Evidence) -> float:
    """Mean share of the target's actions that other episodes do not show the behaviour policy taking; 1 if unknown."""
    if evidence.supported is None:
        return 1.0
    if evidence.supported.shape[1] > 1 and evidence.own_all is not None:
        return float(np.where(evidence.supported, 0.0, evidence.own_all).sum(1).mean())
    if evidence.follows is None:
        return float(1.0 - evidence.supported.mean())
    return float((evidence.follows * ~evidence.supported.all(axis=1)).mean())  # of the part's own decisions


def excess_unshown(evidence: Evidence) -> float:
    """How many more of the target's actions than of the behaviour policy's own no other episode shows; 0 if unknown.

    A lack of rows, as in rare contexts, does not explain that excess.
    """
    if evidence.supported is None or evidence.target_all is None or evidence.action is None:
        return 0.0
    shown = evidence.supported[np.arange(len(evidence.action)), evidence.action]
    own = 1.0 - float((shown if evidence.follows is None else 1.0 - evidence.follows * ~shown).mean())
    return max(unshown_share(evidence) - own, 0.0) if own < UNKNOWN else 0.0


def extreme_values(evidence: Evidence, *, best: bool = False, known: float | None = None) -> Evidence:
    """The same evidence with the worst (or `best`) return instead of the model's value for unshown actions.

    `known` is the lowest (or highest) possible return of an episode, if known; None: that of the log. Decisions that a
    part leaves to the present practice are shown by the log.
    """
    step = evidence.step
    extreme = extreme_returns(evidence, best)[step] if known is None else np.full(len(step), float(known))
    supported = evidence.supported
    if supported is not None and supported.all():
        return evidence
    if supported is None:
        supported = np.zeros((len(step), 1), bool)
    left = 0.0 if evidence.follows is None else 1.0 - evidence.follows  # to the present practice
    if supported.shape[1] == 1 or evidence.model_all is None or evidence.own_all is None or evidence.action is None:
        shown = supported[:, 0] if supported.shape[1] == 1 else np.zeros(len(step), bool)
        value, rated = required_part(evidence, "model_target"), required_part(evidence, "model")
        model = np.where(shown, rated, extreme)
        own = (1.0 - left) * extreme + left * model
        return replace(evidence, model=model, model_target=np.where(shown, value, own), model_all=None)
    values = np.where(supported, evidence.model_all, extreme[:, None])
    model = values[np.arange(len(step)), evidence.action]
    own = (evidence.own_all * values).sum(1)
    return replace(evidence, model=model, model_target=own + left * model, model_all=values)


def extreme_returns(evidence: Evidence, best: bool = False) -> Floats:
    """[T]: lowest (or highest) return to go of any episode at each step or a later one."""
    recorded, sign = np.asarray(evidence.recorded_reward, np.float64), -1.0 if best else 1.0
    least = np.full(evidence.horizon, np.inf)
    np.minimum.at(least, evidence.step, sign * returns_to_go(recorded, evidence.starts, evidence.step_discount))
    return sign * np.minimum.accumulate(least[::-1])[::-1]


class ActionCount(NamedTuple):
    """The action whose frequency is furthest from the log's."""

    action: int
    mean: float  # count per episode of the target, by occupancy ratios
    low: float  # 1% quantile of the count in logged episodes
    high: float  # 99% quantile
    outside: bool  # whether the mean is outside this range
    beyond: bool  # whether its frequency (or that of not taking it) also differs by a factor of at least `TIMES`


def unusual_action_count(evidence: Evidence) -> ActionCount:
    """The discrete action whose count per episode differs most from logged episodes."""
    usual = ActionCount(0, 0.0, 0.0, 0.0, outside=False, beyond=False)
    if evidence.occupancy is None or evidence.action is None:
        return usual
    weights, first = required_part(evidence, "occupancy"), evidence.starts[:-1]
    steps = float(np.add.reduceat(weights, first).mean())  # per episode of the target
    furthest, habit = 0.0, usual
    for action in np.unique(evidence.action):
        indicator = (evidence.action == action).astype(np.float64)
        logged = np.add.reduceat(indicator, first)
        mean = float(np.add.reduceat(indicator * weights, first).mean())
        low, high = (float(x) for x in np.quantile(logged, QUANTILES))
        away = max(mean - high, low - mean) / max(float(logged.std()), 1e-9)
        if away > furthest:
            near, logged_steps = (high if mean > high else low), float(evidence.lengths.mean())
            shares = mean / max(steps, 1e-9), near / logged_steps
            one, two = (np.clip(share, 1e-9, 1.0 - 1e-9) for share in shares)
            apart = max(one / two, two / one) >= TIMES or max((1 - one) / (1 - two), (1 - two) / (1 - one)) >= TIMES
            furthest, habit = away, ActionCount(int(action), mean, low, high, outside=True, beyond=bool(apart))
    return habit


# Sensitivity analysis: the worst estimate if one unrecorded cause changed one decision of each episode.
#
# The behaviour policy's true propensity `mu'` of a logged action may differ from the estimated `mu` by a factor of up
# to `odds` in odds: `1 / mu'` lies in `[1 + (1 / mu - 1) / odds, 1 + (1 / mu - 1) odds]` (Tan 2006). One unknown
# decision per episode is affected (Namkoong et al. 2020, arXiv:2003.05623): the episode's weights are multiplied by one
# factor `f` between the smallest and the largest `mu / mu'` of its steps. For weights of whole episodes this is exact;
# in stepwise estimators it also changes the weights before the affected decision. Densities have no odds; their ratio
# lies in `[1 / odds, odds]`.
#
# Whatever the cause is, it averages to the estimated propensity: `E[f | s, a] = 1` (Dorn & Guo 2022,
# arXiv:2102.04543). For every threshold `t(s, a)`, weight `u` and weighted residual `n` of an episode,
#
#     E[f n] = E[f (n - t u)] + E[t u] >= E[min(low (n - t u), high (n - t u))] + E[t u],
#
# so that each threshold gives a bound, and the largest one is the best. Without that condition, as in Zhao, Small &
# Bhattacharya 2019 (arXiv:1711.11286), rare rewards could be halved twice: once by the weights of those that were
# earned, once by the others'. Thresholds are a number, or a number minus the model's value of the first decision: with
# these the residual is the return itself, which is sharp for rewards of two values where the upper one is rare. The
# number is the best one in closed form, a weighted quantile.
#
# Letters: `E` episodes, `N` steps, `K` ratios.

Estimator = Callable[[Evidence], Ratios]


def factor_bounds(evidence: Evidence, odds: float, *, densities: bool = False) -> tuple[Floats, Floats]:
    """Smallest and largest factor of each episode's weights, [E] and [E]."""
    if not (np.isfinite(odds) and odds >= 1.0):
        raise ConfigError(f"odds = {odds}", "a finite number of at least 1 (1: no unrecorded cause)")
    behaviour = np.minimum(np.asarray(evidence.behaviour, np.float64), 1.0)
    low, high = behaviour + (1.0 - behaviour) / odds, behaviour + (1.0 - behaviour) * odds
    if densities:
        low, high = np.full(len(behaviour), 1.0 / odds), np.full(len(behaviour), float(odds))
    if evidence.follows is not None:  # a cause changes the policy's part of a weight, not what the practice decides
        weight = evidence.target / evidence.behaviour
        own = 1.0 - quotients(1.0 - evidence.follows, weight)
        own = np.where(weight > 0.0, own, 1.0)
        low, high = 1.0 + own * (low - 1.0), 1.0 + own * (high - 1.0)
    first = evidence.starts[:-1]
    return np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)


def worst_ratios(evidence: Evidence, estimator: Estimator, odds: float, *, densities: bool = False) -> Ratios:
    """The estimate under the worst unrecorded cause, a lower bound over the same episodes.

    `estimator` may be a difference of estimates; it must use unchanged weights, neither clipped nor shrunk.
    """
    low, high = factor_bounds(evidence, odds, densities=densities)
    fixed, plain = estimator(with_weight_factors(evidence, np.zeros(len(low)))), estimator(evidence)
    if len(plain) != evidence.episodes:
        raise SpecError(f"found {len(plain)} groups", "one row per episode", "judge fewer episodes")
    numerators, denominators = plain.numerators - fixed.numerators, plain.denominators - fixed.denominators
    share = quotients(1.0, plain.denominators.sum(0))  # [K]
    several = max(int(denominators.any(0).sum()), 1)  # ratios whose weights have the factor
    residual, weight = numerators @ share, denominators @ share / several  # [E]
    best, factors, threshold = -np.inf, np.ones(len(low)), np.zeros(len(low))
    values: list[Any] = [0.0] if evidence.model is None else [0.0, np.asarray(evidence.model)[evidence.starts[:-1]]]
    for value in values:
        level = _quantile_of_factors(residual + value * weight, weight, low, high) - value
        above = residual - level * weight
        chosen = np.where(above > 0.0, low, high)
        bound = float((chosen * above + level * weight).sum())
        if bound > best:
            best, factors, threshold = bound, chosen, level * np.ones(len(low)) / several
    times = factors[:, None]
    worst = times * numerators + (1.0 - times) * threshold[:, None] * denominators
    return replace(plain, numerators=fixed.numerators + worst)


def _quantile_of_factors(residual: Floats, weight: Floats, low: Floats, high: Floats) -> float:
    """The residual for each weight below which factors are the largest, and above which they are the smallest.

    There the weights [E] times their factors have the sum of the weights. 0 where there are no weights.
    """
    there = weight > 0.0
    if not there.any():
        return 0.0
    ratio, weight, low, high = residual[there] / weight[there], weight[there], low[there], high[there]
    order = np.argsort(ratio)
    total = (low * weight).sum() + np.cumsum(((high - low) * weight)[order])
    return float(ratio[order[min(int(np.searchsorted(total, weight.sum())), len(order) - 1)]])


def with_weight_factors(evidence: Evidence, factors: Floats) -> Evidence:
    """The same evidence with every weight of episode i multiplied by `factors[i]`, [E]."""
    target = np.array(evidence.target, np.float64)
    target[evidence.starts[:-1]] *= factors
    return replace(evidence, target=target)


# Returns whose tail a log of its size cannot show, where a difference rests on them.
#
# A difference from the behaviour policy is the mean of `(w - 1) r` over episodes of weight `w` and return `r`. It is
# overestimated where high returns of decisions that the policy leaves (`w < 1`), or low returns of those that it takes
# more often (`w > 1`), are rarer than a log of its size shows, and underestimated in the opposite two tails. Resampling
# cannot show what was never drawn: an interval is too short where such a tail is heavy. Each tail gets a generalised
# Pareto distribution (Pickands 1975), fitted to returns far from the middle of their own side of the weights.
#
# Letters: `E` episodes, `U` episodes or clusters of one side.

FAR = 5.0  # times the median distance from the middle: returns further away make the tail
RARE_SHARE, FEWEST = 0.7, 5  # share of these that is fitted where most returns are equal; the smallest number of them
ROUNDING_OF_TAILS = 1e-5  # of the largest distance: smaller differences make no tail
HEAVY = 0.6  # smallest tail index of a heavy tail; above 1/2 returns have no variance


class Tail(NamedTuple):
    """One tail of the returns on one side of the weights."""

    left: bool  # whether of decisions that the policy leaves; else of those that it takes more often
    high: bool  # whether of the highest returns; else of the lowest
    shape: float  # tail index
    extreme: float  # the highest (lowest) logged return of that side
    share: float  # of the summed distances from the middle in this direction, that of the furthest episode or cluster
    missing: float  # how much of the mean difference the log may lack; infinite without a bound of returns


def adverse_tails(
    evidence: Evidence, *, better: bool, lowest: float | None = None, highest: float | None = None
) -> list[Tail]:
    """The heavy tails that could undo a positive (`better`) or a negative difference.

    `lowest` and `highest` are the possible returns of an episode, if they are known: they limit what may be missing.
    """
    weights, earned = episode_weights(evidence), returns(evidence)
    sides = ((True, better), (False, not better))  # of decisions that the policy leaves, and of those that it takes
    tails = [_tail(evidence, weights, earned, left, high, highest if high else lowest) for left, high in sides]
    return [tail for tail in tails if tail is not None]


def _tail(
    evidence: Evidence, weights: Floats, earned: Floats, left: bool, high: bool, bound: float | None
) -> Tail | None:
    """One tail if it is heavy, else None; `weights` and `earned` [E]."""
    chosen = weights < 1.0 if left else weights > 1.0
    if chosen.sum() < 2:
        return None
    sign = 1.0 if high else -1.0
    distance = sign * (earned - np.median(earned[chosen]))  # [E]
    if tail_shape(distance[chosen]) <= HEAVY:
        return None  # a tail of the weights alone is for the checks of support
    change = np.where(chosen, np.abs(weights - 1.0), 0.0)
    away = change * distance  # [E]
    if evidence.clusters is None:
        away = away[chosen]
    else:
        there = cluster_sums(chosen.astype(np.float64), evidence.clusters) > 0
        away = cluster_sums(away, evidence.clusters)[there]
    shape = tail_shape(away)
    if shape <= HEAVY:
        return None
    beyond = np.maximum(away, 0.0)
    extreme = sign * float((sign * earned[chosen]).max())
    missing = np.inf
    if bound is not None:
        missing = RULE_OF_THREE / evidence.units * float(change.max()) * max(sign * (bound - extreme), 0.0)
    return Tail(left, high, shape, extreme, float(beyond.max() / beyond.sum()), missing)


def tail_shape(away: Floats) -> float:
    """Tail index of distances from a middle, [U]; 0 where too few lie far away, or where the furthest are all alike.

    Where most are equal, as zeros are, the far ones are a distribution of their own, of which the largest are the tail.
    """
    usual = float(np.median(np.abs(away)))
    far, most = int((away > FAR * usual).sum()), 3.0 * np.sqrt(len(away))
    size = int(min(far, most, len(away) / 3) if usual > 0 else min(RARE_SHARE * far, most, len(away) / 5))
    if size < FEWEST:
        return 0.0
    ordered = np.sort(np.maximum(away, 0.0))
    exceeding = ordered[-size:] - ordered[-size - 1]
    exceeding = exceeding[exceeding > ROUNDING_OF_TAILS * ordered[-1]]
    if len(exceeding) < FEWEST or exceeding[-1] - exceeding[0] <= ROUNDING_OF_TAILS * ordered[-1]:
        return 0.0
    return generalised_pareto_shape(exceeding)
