"""A phasic algorithm that compiles in seconds, and trainers that play small environments with it."""

from functools import cache
from typing import Any

from tidelog import PPG
from tidelog.training.learn import _places
from tidelog.training.rounds import Rounds, fresh_players
from tidelog.training.trainer import Member

ENV = "jax:CartPole-v1"
TINY = {
    "environments": 4, "rollout_steps": 16, "policy_iterations": 2, "policy_epochs": 2, "value_epochs": 2,
    "auxiliary_epochs": 2, "minibatches": 2, "auxiliary_minibatch": 2, "hidden": (8,), "embedding": 2,
    "learning_rate": 1e-2, "auxiliary_learning_rate": 1e-2, "discount": 0.9,
}  # fmt: skip
POLICY_UPDATES, AUXILIARY_UPDATES = 4, 8  # of a round, of an auxiliary phase
ROUNDS = 2 * POLICY_UPDATES + AUXILIARY_UPDATES  # updates of two rounds


def tiny(**changes: Any) -> PPG:
    """PPG with rates at which a few updates show."""
    return PPG(**(TINY | changes))


def players(*members: tuple[Any, int], env: Any = ENV, together: bool = False, steps: int = 10_000) -> Rounds:
    """A trainer of (algorithm, seed) pairs."""
    numbered = [Member(i, algorithm, seed) for i, (algorithm, seed) in enumerate(members or ((tiny(), 0),))]
    places = _places(env, numbered, False)
    learners = fresh_players(numbered, places.spec, places.source, steps, False)
    return Rounds(numbered, places, learners, steps, together=together)


def moved(training: Rounds, updates: int, most: int = 1_000) -> Rounds:
    """The trainer after so many updates, taken at most so many at a time."""
    if training.needs_compiling():
        training.compile()
    end = training.update + updates
    while training.update < end:
        training.advance(min(most, end - training.update), 10**9)
    return training


@cache
def after(updates: int, env: str = ENV, **changes: Any) -> Any:
    """The learner of one seed after so many updates; its arrays are not to be given away."""
    return moved(players((tiny(**changes), 0), env=env), updates).learners[0]
