"""Estimates of a policy's return from episodes of several steps; with one step each is a bandit estimate.

`w_t = target / behaviour`, `rho_t = w_0 ... w_t` (`rho_-1 = 1`), G is the return up to the recorded end:
- trajectory importance sampling `rho_T-1 G`, and weighted (self-normalised over episodes);
- per decision, `sum_t gamma^t rho_t r_t`, and weighted step by step (Precup, Sutton & Singh 2000);
- doubly robust, `sum_t gamma^t (rho_t (r_t - Q_t) + rho_t-1 V_t)` (Jiang & Li 2016, arXiv:1511.03722), and weighted
  (Thomas & Brunskill 2016, arXiv:1604.00923);
- by occupancy ratios w of each step instead of `rho_t`: marginal importance `sum_t w_t r_t`, and double reinforcement
  learning (Kallus and Uehara 2020, "Double Reinforcement Learning for Efficient Off-Policy Evaluation in Markov
  Decision Processes"), in which correct ratios repair wrong values and the reverse.

In the weighted forms an ended episode keeps its last weight at later steps, with a reward of 0, because it earned
nothing there. Otherwise long episodes would represent all episodes.

Weights are products in logarithms, clipped at `e^300`; each weighted step is divided by its largest weight, which
changes no ratio. If episodes times steps exceed `CELLS`, neighbouring episodes are summed, block by block.

Letters: `N` steps, `E` episodes, `T` steps of the longest episode, `R` rows of the result, `b` episodes of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.ope.estimators.ratios import Ratios, group_starts, means, required_part
from tidelog.ope.evidence.evidence import Evidence, Floats

LONGEST_PRODUCT = 50  # steps of an episode beyond which products of weights carry no information
CELLS = 1 << 24
BLOCK = 1 << 20
LARGEST_LOG = 300.0


def logged_return(evidence: Evidence) -> Ratios:
    """The logger's mean return."""
    return means(returns(evidence))


def trajectory_is(evidence: Evidence) -> Ratios:
    """Mean of return times the whole episode's weight."""
    return means(np.exp(np.minimum(log_weights(evidence), LARGEST_LOG)) * returns(evidence))


def wis(evidence: Evidence) -> Ratios:
    """Mean return weighted by the whole episode's weight, self-normalised."""
    logs = log_weights(evidence)
    weights = np.exp(logs - _finite(np.asarray(logs.max())))
    return Ratios((weights * returns(evidence))[:, None], weights[:, None])


def per_decision_is(evidence: Evidence) -> Ratios:
    """Mean of rewards, each multiplied by the weight of the decisions up to it."""
    return _plain(evidence, np.asarray(evidence.reward, np.float64), None)


def weighted_per_decision_is(evidence: Evidence) -> Ratios:
    """Rewards weighted step by step by the decisions up to each, self-normalised over all episodes."""
    return _weighted(evidence, np.asarray(evidence.reward, np.float64), None)


def sequential_dr(evidence: Evidence) -> Ratios:
    """Doubly robust: the model's value, corrected by weighted residuals."""
    return _plain(evidence, evidence.reward - required_part(evidence, "model"), required_part(evidence, "model_target"))


def weighted_dr(evidence: Evidence) -> Ratios:
    """Weighted doubly robust: two ratios a step, residuals over `rho_t` and model values over `rho_t-1`."""
    return _weighted(
        evidence, evidence.reward - required_part(evidence, "model"), required_part(evidence, "model_target")
    )


def marginal_importance(evidence: Evidence) -> Ratios:
    """Mean over episodes of `sum_t w r`."""
    steps = required_part(evidence, "occupancy") * np.asarray(evidence.reward, np.float64)
    return means(np.add.reduceat(steps, evidence.starts[:-1]))


def double_reinforcement(evidence: Evidence) -> Ratios:
    """Mean over episodes of `V(s0) + sum_t w (r + discount V(s') - Q(s, a))`, with V = 0 after the recorded end."""
    value, rated = required_part(evidence, "model_target"), required_part(evidence, "model")
    after = np.append(value[1:], 0.0)
    after[evidence.starts[1:] - 1] = 0.0
    gap = np.asarray(evidence.reward, np.float64) + evidence.discount * after - rated
    corrections = np.add.reduceat(required_part(evidence, "occupancy") * gap, evidence.starts[:-1])
    return means(value[evidence.starts[:-1]] + corrections)


SEQUENTIAL: dict[str, Callable[[Evidence], Ratios]] = {
    "trajectory_is": trajectory_is,
    "wis": wis,
    "per_decision_is": per_decision_is,
    "weighted_per_decision_is": weighted_per_decision_is,
    "sequential_dr": sequential_dr,
    "weighted_dr": weighted_dr,
}


def returns(evidence: Evidence) -> Floats:
    """Discounted return of each episode up to its recorded end, [E]."""
    return np.add.reduceat(discounts(evidence) * evidence.reward, evidence.starts[:-1])


def discounts(evidence: Evidence) -> Floats:
    """`gamma^t` of each step, [N]."""
    step = np.arange(len(evidence.reward)) - np.repeat(evidence.starts[:-1], evidence.lengths)
    return np.asarray((evidence.discount ** np.arange(evidence.horizon))[step])


def log_weights(evidence: Evidence) -> Floats:
    """Logarithm of each episode's weight, [E]; -inf if the target never takes its actions."""
    return np.add.reduceat(_log_ratios(evidence), evidence.starts[:-1])


def _log_ratios(evidence: Evidence) -> Floats:
    target = np.asarray(evidence.target, np.float64)
    logs = np.log(target, out=np.full(len(target), -np.inf), where=target > 0)
    return logs - np.log(np.asarray(evidence.behaviour, np.float64))


def step_weights(evidence: Evidence) -> Floats:
    """Normalised weight of each episode at each step, [E, T]: products so far over their sum, kept after the end.

    NaN at a step at which no episode has weight.
    """
    weights = np.vstack([block.logs for block in _blocks(evidence)])
    weights -= _finite(weights.max(0))
    np.exp(weights, out=weights)
    return np.asarray(weights / np.where(weights.any(0), weights.sum(0), np.nan))


class _Block(NamedTuple):
    """Neighbouring episodes, padded to the longest of the log."""

    rows: slice  # of the result
    first: NDArray[np.int64]  # first episode of each row, counted within the block
    steps: slice
    within: NDArray[np.bool_]  # [b, T]: whether the episode has that step
    logs: Floats  # [b, T]: log rho_t; ended episodes keep their last value

    def padded(self, values: Floats) -> Floats:
        """Values of the block's steps, [b, T], 0 after the end."""
        grid = np.zeros(self.within.shape)
        grid[self.within] = values[self.steps]
        return grid

    def add_up(self, values: Floats) -> Floats:
        """Sums over the episodes of each row."""
        return values if len(self.first) == len(values) else np.add.reduceat(values, self.first, axis=0)


def _blocks(evidence: Evidence) -> Iterator[_Block]:
    ratios, starts, horizon = _log_ratios(evidence), evidence.starts, evidence.horizon
    edges = np.append(_rows(evidence), evidence.episodes)  # [R + 1]
    at = 0
    while at < len(edges) - 1:
        episodes = edges[at] + max(BLOCK // horizon, 1)
        end = min(max(int(np.searchsorted(edges, episodes, side="right")) - 1, at + 1), len(edges) - 1)
        begin, stop = edges[at], edges[end]
        within = np.arange(horizon) < evidence.lengths[begin:stop, None]
        steps = slice(starts[begin], starts[stop])
        logs = np.zeros(within.shape)
        logs[within] = ratios[steps]
        yield _Block(slice(at, end), edges[at:end] - begin, steps, within, np.cumsum(logs, axis=1, out=logs))
        at = end


def _rows(evidence: Evidence) -> NDArray[np.int64]:
    """First episode of each row, [R]: every episode, unless there are too many cells.

    Clusters may not be neighbours: their episodes are summed one by one.
    """
    if evidence.clusters is not None or evidence.episodes * evidence.horizon <= CELLS:
        return np.arange(evidence.episodes)
    return group_starts(evidence.episodes, min(max(CELLS // evidence.horizon, 100), 10_000))


def _plain(evidence: Evidence, residual: Floats, value: Floats | None) -> Ratios:
    """Means over episodes of `sum_t gamma^t (rho_t residual_t + rho_t-1 value_t)`."""
    totals = np.zeros(evidence.episodes)
    discount = discounts(evidence)
    at = 0
    for block in _blocks(evidence):
        weights = np.exp(np.minimum(block.logs, LARGEST_LOG))
        part = np.einsum("bt,bt->b", weights, block.padded(discount * residual))
        if value is not None:
            values = block.padded(discount * value)
            part += values[:, 0] + np.einsum("bt,bt->b", weights[:, :-1], values[:, 1:])
        totals[at : at + len(part)] = part
        at += len(part)
    return means(totals)


def _weighted(evidence: Evidence, residual: Floats, value: Floats | None) -> Ratios:
    """Per step, `gamma^t rho_t residual_t` over `rho_t`, and `gamma^t rho_t-1 value_t` over `rho_t-1`."""
    horizon, rows = evidence.horizon, len(_rows(evidence))
    clusters = evidence.clusters if rows * horizon > CELLS else None
    rows = evidence.units if clusters is not None else rows
    ratios = horizon if value is None else 2 * horizon
    numerators, denominators = np.zeros((rows, ratios)), np.zeros((rows, ratios))
    discount, logs = discounts(evidence), np.full(horizon, -np.inf)
    for block in _blocks(evidence):
        np.maximum(logs, block.logs.max(0), out=logs)
    largest = _finite(logs)  # log weight at each step, [T]; 0 if no episode has weight

    def add(block: _Block, columns: slice, weights: Floats, values: Floats) -> None:
        for sums, parts in ((numerators, weights * values), (denominators, weights)):
            if clusters is None:
                sums[block.rows, columns] = block.add_up(parts)
            else:
                np.add.at(sums[:, columns], clusters[block.rows], parts)

    for block in _blocks(evidence):
        weights = np.exp(block.logs - largest)
        add(block, slice(0, horizon), weights, block.padded(discount * residual))
        if value is not None:
            before = np.hstack([np.ones((len(weights), 1)), weights[:, :-1]])
            add(block, slice(horizon, None), before, block.padded(discount * value))
    return Ratios(numerators, denominators, evidence.episodes, clusters)


def _finite(largest: Floats) -> Floats:
    return np.where(np.isfinite(largest), largest, 0.0)
