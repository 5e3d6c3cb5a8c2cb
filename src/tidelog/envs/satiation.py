"""The built-in recommender problem: twelve items, 218 states, a user who gets tired, with exact values.

Each genre has a loud item, a fair one and a quiet one; three fillers belong to no genre. The click probability depends
on the item's style and genre, and decreases with boredom with the genre (0-2) and tiredness (0-3). A click increases
boredom with its genre; a step without one decreases it. A clicked loud item increases tiredness; a quiet one decreases
it, clicked or not. After each step the user may leave, more likely if tired. Often the item with the highest click
probability is not the best item to show.

The reward is 1 for a click and 0 otherwise: a policy's value at discount 1 is its number of clicks per visit. The
user's state follows from the shown and clicked items since the start of the visit; a complete history determines it
(`state_of`). At discount 1: optimal 9.93; best within the editor's support at threshold 0.2 9.64, at 0.3 7.36; always
the most likely click 6.23, also the editor's most frequent choice; uniform 6.22; the logging editor 6.04.

This is not a model of real users: the numbers were chosen to separate policies.

Letters: `S` states, `N` items, `B` rows, `H` history length, `U` visits, `M` events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.tabular import Floats, Tabular, View, pack_probabilities
from tidelog.errors import ConfigError
from tidelog.types import Vector, check_seed

Ints: TypeAlias = NDArray[np.int32]
Act: TypeAlias = Callable[[Ints, Ints], NDArray[Any]]  # histories and events, both [B, H], to probabilities [B, N]

GENRES, STYLES, FILLERS = ("drama", "comedy", "sport"), ("loud", "fair", "quiet"), 3
ITEMS = (*(f"{style} {genre}" for genre in GENRES for style in STYLES), *(f"filler {n}" for n in range(1, FILLERS + 1)))
EVENTS = ("shown", "clicked")  # kinds 1 and 2
NUMERIC = (*(f"bored by {genre}" for genre in GENRES), "tired", "clicked")

_BOREDOM, _TIREDNESS = 3, 4
_SHAPE = (2, _TIREDNESS, *(_BOREDOM for _ in GENRES))  # clicked, tired, bored by each genre
_LIVE = int(np.prod(_SHAPE))
_CLICKED = np.append(np.arange(_LIVE) >= _LIVE // 2, [False, True]).astype(np.int32)  # of each state
LEFT = (_LIVE, _LIVE + 1)  # left without a click, left after a click

_BY_STYLE, _BY_GENRE, _FILLER = (0.8, 0.6, 0.4), (1.0, 0.9, 0.8), 0.15  # click probabilities
_WHEN_BORED, _WHEN_TIRED = (1.0, 0.7, 0.4), (1.0, 0.9, 0.8, 0.65)
_LEAVES = (0.06, 0.06, 0.08, 0.10)  # by tiredness
_SHARPNESS, _ERRATIC = 8.0, 0.3


@cache
def satiation() -> Tabular:
    """The problem, 218 states (the last two are final) and 12 actions; item `i` of a catalogue is action `i - 1`.

    The leaf "numeric" shows the user's state; a recommender must infer it from the history.
    """
    probabilities = clicks()
    transition = np.zeros((_LIVE + 2, len(ITEMS), _LIVE + 2))
    for state, action, clicked in itertools.product(range(_LIVE), range(len(ITEMS)), (0, 1)):
        following, chance = int(_moves()[state, action, clicked]), probabilities[state, action]
        leaves = _LEAVES[np.unravel_index(following, _SHAPE)[1]]
        reached = chance if clicked else 1.0 - chance
        transition[state, action, following] += reached * (1.0 - leaves)
        transition[state, action, LEFT[clicked]] += reached * leaves
    transition[LEFT, :, LEFT] = 1.0
    levels = np.unravel_index(np.arange(_LIVE), _SHAPE)
    feelings = np.stack([*levels[2:], levels[1], levels[0]], axis=1)
    feelings = np.vstack([feelings, np.zeros((2, len(NUMERIC)))]).astype(np.float32)
    return Tabular(
        transition,
        np.broadcast_to(_CLICKED.astype(float), transition.shape),
        initial=np.eye(_LIVE + 2)[0],
        final=np.arange(_LIVE + 2) >= _LIVE,
        name="satiation",
        action_names=ITEMS,
        views={"numeric": View(Vector(len(NUMERIC), NUMERIC), feelings)},
    )


def clicks() -> Floats:
    """The click probability of each item, `[218, 12]`; zero after leaving."""
    probabilities = np.zeros((_LIVE + 2, len(ITEMS)))
    for state, (_, tired, *bored) in enumerate(itertools.product(*map(range, _SHAPE))):
        by_genre = np.asarray(_BY_GENRE) * np.take(_WHEN_BORED, bored)
        probabilities[state] = np.append(np.outer(by_genre, _BY_STYLE), [_FILLER] * FILLERS) * _WHEN_TIRED[tired]
    return probabilities


def logging_policy() -> Floats:
    """The logging policy, `[218, 12]`: mostly items with a high click probability now, every item at 0.025 or more."""
    liked = np.exp(_SHARPNESS * clicks())
    return np.asarray((1.0 - _ERRATIC) * liked / liked.sum(1, keepdims=True) + _ERRATIC / len(ITEMS))


def support(policy: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    """The support of a logging policy `[S, N]`, for `optimal`: items at least `threshold` times the mode."""
    return np.asarray(policy >= threshold * policy.max(1, keepdims=True))


def exact_value(policy: NDArray[Any], discount: float = 1.0) -> float:
    """Exact value of a policy, `[218, 12]` probabilities or `[218]` actions: at discount 1, clicks per visit."""
    return satiation().value_of(policy, discount)


def state_of(histories: Ints, events: Ints) -> NDArray[np.int64]:
    """The state [B] after complete visits: items and kinds of events [B, H], latest last, padded with 0."""
    state = np.zeros(len(histories), np.int64)
    for item, event in zip(histories.T, events.T, strict=True):
        state = np.where(item > 0, _moves()[state, np.maximum(item, 1) - 1, (event == 2).astype(int)], state)
    return state


def policy_of_histories(policy: NDArray[Any]) -> Act:
    """Convert a policy of states `[218, 12]` to a policy of histories."""
    return lambda histories, events: policy[state_of(histories, events)]


@dataclass(frozen=True, eq=False)
class SatiationLog:
    """A log of `U` visits, each of its own user, in the arrays of an interaction log."""

    users: NDArray[np.int64]  # [U]
    user: Ints  # [M]
    item: Ints  # [M] 1 .. 12
    event: Ints  # [M] 1 shown, 2 clicked
    reward: NDArray[np.float32]  # [M]
    time: Floats  # [M] increases with the user's number and the step within the visit
    terminated: NDArray[np.bool_]  # [M] the user left
    truncated: NDArray[np.bool_]  # [M] the visit was truncated
    propensity: NDArray[np.float32]  # [M] the probability of showing the item
    items: ClassVar[NDArray[Any]] = np.array(ITEMS, object)
    events: ClassVar[tuple[str, ...]] = EVENTS

    def __len__(self) -> int:
        return len(self.item)

    @property
    def returns(self) -> Floats:
        """Clicks of each visit, [U]."""
        return np.bincount(self.user, self.reward, len(self.users)).astype(np.float64)


def simulate_visits(act: Act, users: int, seed: int = 0, length: int = 50, limit: int = 300) -> SatiationLog:
    """Simulate visits of users under a policy that sees the last `length` events; `limit` steps truncate.

    ConfigError if the policy does not return probabilities [B, 12].
    """
    generator = np.random.default_rng(check_seed(seed))
    problem = satiation()
    successor, cumulative = pack_probabilities(problem.transition.reshape(-1, problem.states))
    items, kinds = np.zeros((2, users, length + limit), np.int32)
    chance = np.zeros((users, limit), np.float32)
    live, state = np.arange(users), np.zeros(users, np.int64)
    for step in range(limit):
        window = slice(step, step + length)
        offered = _probabilities(act(items[live, window], kinds[live, window]), len(live))
        action = _sample(offered, generator)
        row = state * len(ITEMS) + action
        state = successor[row, (generator.random((len(live), 1)) >= cumulative[row]).sum(1)].astype(np.int64)
        clicked = _CLICKED[state]
        items[live, length + step], kinds[live, length + step] = action + 1, clicked + 1
        chance[live, step] = offered[np.arange(len(live)), action]
        gone = problem.final[state]
        live, state = live[~gone], state[~gone]
        if not len(live):
            break
    user, position = np.nonzero(items[:, length:])
    last = np.append(user[1:] != user[:-1], True)
    cut = np.isin(user, live)
    kind = kinds[:, length:][user, position]
    return SatiationLog(
        np.arange(users), user.astype(np.int32), items[:, length:][user, position], kind, (kind - 1).astype(np.float32),
        (user * limit + position).astype(np.float64), last & ~cut, last & cut, chance[user, position],
    )  # fmt: skip


def _probabilities(offered: NDArray[Any], rows: int) -> Floats:
    offered = np.asarray(offered, np.float64)
    if offered.shape != (rows, len(ITEMS)):
        raise ConfigError(f"the policy returned shape {list(offered.shape)}", f"[{rows}, {len(ITEMS)}]")
    if (offered < 0).any() or not np.allclose(offered.sum(1), 1.0, rtol=0.0, atol=1e-5):
        raise ConfigError("the policy's probabilities are negative or do not sum to 1 for every user")
    return offered


def _sample(probabilities: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
    running = probabilities.cumsum(1)
    drawn = (generator.random((len(probabilities), 1)) * running[:, -1:] >= running).sum(1)
    return np.asarray(np.minimum(drawn, len(ITEMS) - 1), np.int64)


@cache
def _moves() -> NDArray[np.int64]:
    """The next state for each state, item and click, if the user stays: `[S, N, 2]`."""
    following = np.zeros((_LIVE + 2, len(ITEMS), 2), np.int64)
    for state, action, clicked in itertools.product(range(_LIVE), range(len(ITEMS)), (0, 1)):
        _, tired, *bored = (int(level) for level in np.unravel_index(state, _SHAPE))
        genre, style = divmod(action, len(STYLES))
        after = [max(level - 1, 0) for level in bored]
        if genre < len(GENRES):
            after[genre] = min(bored[genre] + 1, _BOREDOM - 1) if clicked else after[genre]
            tired += (STYLES[style] == "loud" and clicked) - (STYLES[style] == "quiet")
        position = (clicked, min(max(tired, 0), _TIREDNESS - 1), *after)
        following[state, action, clicked] = np.ravel_multi_index(position, _SHAPE)
    return following
