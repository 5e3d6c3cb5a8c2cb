"""Exact evaluation for few different observations: the log's counts are a finite model, solved by linear algebra.

Each different stored observation (with its mask) is a state. The steps of a log give, for each state and action, its
count, mean reward and next states. A policy's values under that model are one sparse linear solve, the fixed point of
tabular fitted Q evaluation. They equal those of `envs.Tabular` if the counts are exact.

The estimand is the discounted return up to the recorded end of an episode. If the environment ends episodes
(terminations), a final step has no next state. If a time limit or the behaviour policy ends some (truncations), values
depend on time: dynamics are pooled over time, an episode that reaches decision `t` is truncated after it as often as in
the log (always, at a common time limit), and values are solved backwards from the longest episode's end. A truncated
step with an unknown next observation counts for its reward but not for its next state. A policy that never ends under
the model at discount 1 is also solved backwards, for as many steps as the longest episode has.

Unseen cases of a fold use pooled values: an action not seen in a state uses the state's mean step, an unseen state the
mean step of the log. A recurrent policy may act differently in the same state; beyond the first step the model uses its
average behaviour there.

Occupancy ratios are visits of the target to a state and action over those of the log, one ratio per step. Over long
episodes, products of probability ratios put all weight on a few episodes; a marginal ratio does not grow with the
horizon (Liu et al. 2018, "Breaking the Curse of Horizon"). Here

    w(s, a) = sum_t discount^t P_target(s_t = s, a_t = a) / sum_t P_log(s_t = s, a_t = a),

with visits of an episode up to its recorded end, unnormalised; a discount of 1 needs no special case. The mean over
logged episodes of `sum_t w r` is the target's value. Both occupancies are those of the model, `d = start + discount
P' d` (a sparse solve), times the ratio of the action's probabilities. If episodes are truncated, occupancies and ratios
also depend on time.

Letters: `N` steps, `M` stored observations, `S` states, `A` actions, `R = S * A + S + 1` rows of the model (pairs, then
states pooled over actions, then everything pooled), `T` steps of the longest episode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import spsolve

from tidelog.data.log import Log, States
from tidelog.ope.evidence import Floats, Ordinals, Target, Values, ends_by_clock, fold_of_steps, join_folds, without
from tidelog.types import Discrete


@dataclass(frozen=True, eq=False)
class Counts:
    """Finite model from counted steps."""

    row: NDArray[np.int64]  # [S, A]: row (of R) of each pair
    visits: Floats  # [S, A]
    reward: Floats  # [R]: mean
    moves: Any  # [R, S] sparse: shares of the next states; 1 minus their sum is the share that ended

    @classmethod
    def of(
        cls,
        state: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        following: NDArray[Any],
        ended: NDArray[np.bool_],
        shape: tuple[int, int],
        weight: NDArray[Any] | None = None,
        discounts: NDArray[Any] | None = None,
    ) -> Counts:
        """Count steps [N]; `following` is -1 if unknown, and is not read if the step `ended`.

        `discounts` [N] of what follows each step are part of the moves, as if the rest had ended.
        """
        (states, actions), pairs = shape, shape[0] * shape[1]
        once: Floats = np.ones(len(state)) if weight is None else np.asarray(weight, np.float64)
        size, many, earned = pairs + states + 1, np.tile(once, 3), np.tile(reward.astype(np.float64), 3)
        at = np.concatenate([state * actions + action, pairs + state, np.full(len(state), size - 1)])
        visits = _sums(at, many, size)
        known, going = np.tile(ended | (following >= 0), 3), np.tile(~ended & (following >= 0), 3)
        worth = many if discounts is None else np.tile(once * discounts, 3)
        led = sparse.coo_array((worth[going], (at[going], np.tile(following, 3)[going])), shape=(size, states)).tocsr()
        seen = visits[:pairs].reshape(shape)
        anywhere = np.where(seen.sum(1) > 0, pairs + np.arange(states), size - 1)
        return cls(
            np.where(seen > 0, np.arange(pairs).reshape(shape), anywhere[:, None]),
            seen,
            _shares(_sums(at, many * earned, size), visits),
            sparse.diags_array(_shares(np.ones(size), _sums(at[known], many[known], size))) @ led,
        )

    def action_values(self, policy: Floats, discount: float, horizon: int) -> Floats:
        """Values [S, A] of each action, then the policy [S, A] until the end (at most `horizon` more steps)."""
        choose = self.chosen(policy)
        leads = choose @ self.moves
        if discount == 1.0 and not ends(leads):
            ((_, rows),) = deque(self.layers(policy, discount, np.zeros(horizon)), maxlen=1)
            return np.asarray(rows[self.row])
        earned = choose @ self.reward
        state = spsolve((sparse.eye_array(len(policy)) - discount * leads).tocsc(), earned)
        rows = self.reward + discount * (self.moves @ np.atleast_1d(state))
        return np.asarray(rows[self.row])

    def layers(self, policy: Floats, discount: float, cut: Floats) -> Iterator[tuple[int, Floats]]:
        """Yield the values [R] of the model's rows at each decision, from the last to the first.

        `cut` [T]: share of episodes truncated after a decision; the last one has no successor in any case.
        """
        choose, state = self.chosen(policy), np.zeros(len(policy))
        for step in range(len(cut) - 1, -1, -1):
            rows = self.reward + discount * (1.0 - cut[step]) * (self.moves @ state)
            state = choose @ rows
            yield step, rows

    def chosen(self, policy: Floats) -> Any:
        """[S, R] sparse: probability of each of the model's rows in each state."""
        states, actions = policy.shape
        places = (np.repeat(np.arange(states), actions), self.row.ravel())
        return sparse.coo_array((policy.ravel(), places), shape=(states, len(self.reward))).tocsr()


def ends(leads: Any) -> bool:
    """Whether episodes under the moves [S, S] end with probability 1 from every state."""
    states = leads.shape[0]
    leaving = np.flatnonzero(1.0 - np.asarray(leads.sum(1)).ravel() > 1e-9)
    before, after = leads.nonzero()
    sources = np.concatenate([after, np.full(len(leaving), states)])  # reversed edges, from the end state
    places = (sources, np.concatenate([before, leaving]))
    graph = sparse.coo_array((np.ones(len(sources)), places), shape=(states + 1, states + 1)).tocsr()
    return bool(len(csgraph.breadth_first_order(graph, states, return_predecessors=False)) == states + 1)


def truncations(log: Log, episodes: Ordinals, longest: int) -> Floats | None:
    """[T]: share of truncations after decision `t`, among these episodes that reach it and do not terminate there.

    None if the environment ended every episode of the log, at different steps. Beyond the last reached decision the
    share is 1.
    """
    if not ends_by_clock(log):
        return None
    last = np.asarray(log.starts[1:] - 1)
    cut = ~np.asarray(log.terminated)[last]
    if not cut.any():
        cut[:] = True  # equal lengths: a time limit ended them, whatever their last row says
    chosen, lengths = cut[episodes], np.diff(log.starts)[episodes]
    reached = np.bincount(lengths - 1, minlength=longest)[::-1].cumsum()[::-1]
    terminated = np.bincount(lengths[~chosen] - 1, minlength=longest)
    there = reached - terminated
    return np.where(there > 0, np.bincount(lengths[chosen] - 1, minlength=longest) / np.maximum(there, 1), 1.0)


def count_model(log: Log, states: States, episodes: Ordinals | None = None, discounts: Floats | None = None) -> Counts:
    """Finite model of some episodes of a log with discrete actions and one reward; `discounts` [N] as in `Counts.of`.

    With them it is that of a semi-Markov process: the times between decisions may depend on state, action and next
    state (Bradtke and Duff 1994, "Reinforcement Learning Methods for Continuous-Time Markov Decision Problems").
    """
    of = np.ones(log.steps, bool) if episodes is None else np.isin(np.asarray(log.episode), episodes)
    here, after = np.asarray(log.position)[of], np.asarray(log.next_position)[of]
    following = np.where(after == here, -1, states.stored[after])
    ended = np.asarray(log.terminated)[of]
    reward = np.zeros(int(of.sum())) if log.reward is None else np.asarray(log.reward)[of]
    if not isinstance(log.spec.action, Discrete):
        raise TypeError(f"found {type(log.spec.action).__name__} actions: a table needs discrete actions")
    shape = states.size, log.spec.action.n
    factors = None if discounts is None else discounts[of]
    return Counts.of(
        states.stored[here], np.asarray(log.action)[of], reward, following, ended, shape, discounts=factors
    )


def _discounts(log: Log, discount: float) -> tuple[Floats | None, float]:
    """Discounts [N] for the moves of a model, and the discount that is left; None for equal steps."""
    return (None, discount) if log.spacing is None else (log.step_discounts(discount), 1.0)


def _chances(target: Target) -> Floats:
    """[M, A]: the target's action probabilities at all stored observations; TypeError for other actions."""
    if target.probabilities is None:
        raise TypeError("a table needs the probabilities of discrete actions")
    return target.probabilities


def by_state(target: Target, states: States, decided: NDArray[Any]) -> Floats:
    """[S, A]: the target's mean action probabilities over the decisions in each state; uniform in one without any."""
    chances = _chances(target)
    there, actions = np.zeros(len(states.stored), bool), chances.shape[1]
    there[decided] = True
    at = np.flatnonzero(there)
    here, shape = states.stored[at], (states.size, len(at))
    where = sparse.coo_array((np.ones(len(at)), (here, np.arange(len(at)))), shape=shape)
    sums, times = where.tocsr() @ chances[at], np.bincount(here, minlength=states.size)[:, None]
    return np.asarray(np.where(times > 0, sums / np.maximum(times, 1), 1.0 / actions))


def tabular_values(log: Log, states: States, folds: Ordinals, targets: list[Target], discount: float = 1.0) -> Values:
    """Values cross-fitted by the model of the other folds; `targets` has one per fold."""
    position, step, longest = np.asarray(log.position), np.asarray(log.step), int(np.diff(log.starts).max())
    of_moves, discount = _discounts(log, discount)
    by_fold = []
    for fold, target in enumerate(targets):
        rows, learnt = np.flatnonzero(fold_of_steps(log, folds) == fold), without(folds, fold)
        policy, here = by_state(target, states, position), states.stored[position[rows]]
        model, cut = count_model(log, states, learnt, of_moves), truncations(log, learnt, longest)
        if cut is None:
            values = np.asarray(model.action_values(policy, discount, longest)[here])
        else:
            values = np.zeros((len(rows), policy.shape[1]), np.float64)
            for t, layer in model.layers(policy, discount, cut):
                now = step[rows] == t
                values[now] = layer[model.row[here[now]]]
        mean = (_chances(target)[position[rows]] * values).sum(1)
        by_fold.append(Values(values[np.arange(len(rows)), np.asarray(log.action)[rows]], mean, values))
    return join_folds(log, folds, by_fold)


def tabular_ratios(
    log: Log, states: States, folds: Ordinals, targets: Sequence[Target], behaviour: Floats, discount: float = 1.0
) -> Floats:
    """Ratios [N], cross-fitted by the model of the other folds; `targets` has one per fold, `behaviour` [N]."""
    longest, here = int(np.diff(log.starts).max()), states.stored[np.asarray(log.position)]
    of_moves, discount = _discounts(log, discount)
    ratios = np.zeros(log.steps)
    for fold, target in enumerate(targets):
        rows, learnt = np.flatnonzero(fold_of_steps(log, folds) == fold), without(folds, fold)
        model, cut = count_model(log, states, learnt), truncations(log, learnt, longest)
        behavior_policy = model.visits / np.maximum(model.visits.sum(1, keepdims=True), 1.0)
        discounted = model if of_moves is None else count_model(log, states, learnt, of_moves)
        both = ((discounted, by_state(target, states, log.position), discount), (model, behavior_policy, 1.0))
        start = np.bincount(here[log.starts[:-1][learnt]], minlength=states.size) / len(learnt)
        if cut is None:
            by_target, by_log = (flow(own, policy, start, factor, longest) for own, policy, factor in both)
            state = _over(by_target[here[rows]], by_log[here[rows]])
        else:
            state = np.ones(len(rows))
            flows = (layered_flow(own, policy, start, factor, cut) for own, policy, factor in both)
            for t, (by_target, by_log) in enumerate(zip(*flows, strict=True)):
                now = np.asarray(log.step)[rows] == t
                state[now] = _over(by_target[here[rows[now]]], by_log[here[rows[now]]])
        ratios[rows] = state * target.logged[rows] / behaviour[rows]
    return ratios


def flow(model: Counts, policy: Floats, start: Floats, discount: float, horizon: int) -> Floats:
    """Expected visits [S] of an episode with initial distribution `start` [S]; `horizon` visits if it never ends."""
    leads = model.chosen(policy) @ model.moves
    if discount == 1.0 and not ends(leads):
        return np.asarray(np.sum(list(layered_flow(model, policy, start, discount, np.zeros(horizon))), axis=0))
    visits = spsolve((sparse.eye_array(len(start)) - discount * leads.T).tocsc(), start)
    return np.asarray(np.maximum(np.atleast_1d(visits), 0.0))


def layered_flow(model: Counts, policy: Floats, start: Floats, discount: float, cut: Floats) -> Any:
    """Yield the visits [S] at each decision; `cut` [T] is the share truncated after each decision."""
    leads = (model.chosen(policy) @ model.moves).T.tocsr()
    visits = start
    for share in cut:
        yield visits
        visits = discount * (1.0 - share) * (leads @ visits)


def _over(visits: Floats, logged: Floats) -> Floats:  # 1 without a logged visit
    return np.asarray(np.divide(visits, logged, out=np.ones(len(visits)), where=logged > 1e-12))


def _sums(at: NDArray[Any], values: NDArray[Any], size: int) -> Floats:
    return np.asarray(np.bincount(at, values, size), np.float64)


def _shares(sums: Floats, counts: Floats) -> Floats:
    return np.asarray(np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0))
