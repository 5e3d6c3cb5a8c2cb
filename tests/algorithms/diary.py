"""An algorithm that learns nothing and records the calls of the loop: two phases, one with two samplers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Feedback, Phase, StoreSpec
from tidelog.algorithms.hyperparameters import field, hyperparameters
from tidelog.algorithms.sampling import LoggedAction, NStep, Sampler
from tidelog.types import Act, Continuous, Discrete

LEFT, RIGHT = 3, 2  # rows of each sampler


class Page(NamedTuple):
    """The record, one row per update."""

    phase: jax.Array  # [T]: 1 wide, 2 narrow
    rows: jax.Array  # [T, LEFT + RIGHT]: drawn rows, -1 where the phase draws fewer
    step: jax.Array


def written(page: Page, phase: int, rows: jax.Array) -> Page:
    padded = jnp.full(LEFT + RIGHT, -1).at[: rows.shape[0]].set(rows)
    return Page(page.phase.at[page.step].set(phase), page.rows.at[page.step].set(padded), page.step + 1)


def wide(h, page, batch):
    rows = jnp.concatenate([batch["left"].rows, batch["right"].rows])
    return written(page, 1, rows), Feedback({"size": h.scale * rows.shape[0]})


def narrow(h, page, batch):
    return written(page, 2, batch.rows), Feedback({"size": h.scale * batch.rows.shape[0]})


def losses(h, page, batch, key):
    return {}


@hyperparameters
class Diary:
    """`wide` updates of two samplers, then `narrow` updates of one, in every round; `rest`: not in odd rounds."""

    wide: int = field(3, least=0)
    narrow: int = field(2, least=0)
    rest: bool = field(False)
    scale: float = field(1.0)

    takes = (Continuous, Discrete)

    def stores(self, spec):
        return {"log": StoreSpec(("reward", "terminated"))}

    def phases(self):
        both = {"left": Sampler("log", LEFT, LoggedAction()), "right": Sampler("log", RIGHT, NStep(1, 0.9))}
        return (
            Phase("wide", both, wide, losses, updates=lambda h, round: h.wide),
            Phase("narrow", Sampler("log", LEFT, LoggedAction()), narrow, losses, updates=_narrow),
        )

    def init(self, spec, key, updates):
        return Page(jnp.zeros(updates, int), jnp.full((updates, LEFT + RIGHT), -1), jnp.int32(0))

    def policy_params(self, state):
        return ()

    def initial_state(self, params, batch):
        return None

    def act(self, params, observation, *, mask=None, carry=None, key=None):
        return Act(jnp.zeros(len(next(iter(observation.values()))), int))

    def distribution(self, params, observation, mask=None):
        return None

    def q_values(self, params, observation):
        return None


def _narrow(h, round):
    return 0 if h.rest and round % 2 else h.narrow
