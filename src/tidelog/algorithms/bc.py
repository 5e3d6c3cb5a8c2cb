"""Behaviour cloning: the baseline of every judgement.

Pomerleau 1991. The policy that made the log, as well as a network can repeat it: a Gaussian or a point for continuous
actions, a categorical for discrete ones. One loss, `-log pi(a given s)` (squared distance for the point), on the logged
actions; rewards are never read.

Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.choose import choose, sampled, start
from tidelog.algorithms.contract import Batch, Feedback, Keep, Phase
from tidelog.algorithms.draws import Choice, Draw, Window
from tidelog.algorithms.hyper import hyper, number, own, static
from tidelog.algorithms.optim import (
    OPTIMISERS,
    SCHEDULES,
    Schedule,
    Transformation,
    constant,
    copied,
    descend,
    optimiser_memory,
)
from tidelog.networks.actor import HEADS, Actor, HeadFactory, gaussian
from tidelog.networks.convolution import LAYERS, Layers, by_size
from tidelog.networks.distributions import Distribution
from tidelog.networks.encode import Sight
from tidelog.networks.mlp import host_generator
from tidelog.types import Act, Continuous, Decision, Discrete, Observation, Spec


class State(NamedTuple):
    """Everything that a resumed run needs."""

    actor: Actor
    memory: Any  # the optimiser's
    step: jax.Array  # int32: updates taken
    updates: jax.Array  # int32: updates planned, for the schedule
    key: jax.Array


class Acting(NamedTuple):
    """What acting reads."""

    actor: Actor


def imitation_loss(actor: Actor, h: BC, batch: Batch, key: jax.Array | None) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean imitation error of the logged actions; also its metrics."""
    row: Decision = batch.data
    policy = actor(row.observation, mask=row.mask, dropout=h.dropout, key=key, **row.window)
    entropy = policy.entropy()
    metrics = {} if entropy is None else {"entropy": batch.average(entropy)}
    return batch.mean(policy.imitation_error(row.action)), metrics


def step(h: BC, state: State, batch: Batch) -> tuple[State, Feedback]:
    """One update of the actor."""
    key = None if h.dropout is None else jax.random.fold_in(state.key, state.step)
    (loss, metrics), slope = eqx.filter_value_and_grad(imitation_loss, has_aux=True)(state.actor, h, batch, key)
    rate = h.learning_rate * h.schedule(state.step / jnp.maximum(state.updates, 1))
    actor, memory = descend(h.optimiser, state.actor, slope, state.memory, rate, h.gradient_clip)
    moved = State(actor, memory, state.step + 1, state.updates, state.key)
    return moved, Feedback({"imitation_loss": loss, **metrics})


def losses(h: BC, state: State, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
    """The loss of the actor as it stands, without a step and without dropout."""
    return {"imitation_loss": imitation_loss(state.actor, h, batch, None)[0]}


def init(h: BC, spec: Spec, key: jax.Array, updates: int) -> State:
    """A fresh actor."""
    network_key, training_key = jax.random.split(key)
    if h.actor_network is not None:
        actor = copied(h.actor_network(spec, network_key))
    else:
        actor = Actor.create(
            host_generator(network_key),
            spec,
            hidden=h.hidden,
            layer_norm=h.layer_norm,
            sight=Sight(h.embedding, h.hidden[0], h.convolutions, h.memory),
            head=h.actor_head,
        )
    memory = optimiser_memory(h.optimiser, actor)
    return State(actor, memory, jnp.int32(0), jnp.int32(updates), training_key)


@hyper
class BC:
    """Behaviour cloning: repeats the logged actions, reads no reward."""

    batch_size: int = static(256, least=1)
    learning_rate: float = number(3e-4, least=0.0)
    schedule: Schedule = static(constant, choices=SCHEDULES, help="factor on the rate, over the run's progress")
    optimiser: Transformation = static(OPTIMISERS["adam"], choices=OPTIMISERS, help="makes the direction of a step")
    gradient_clip: float | None = number(None, least=0.0, open_ends=True, help="largest norm of the gradient")
    dropout: float | None = number(None, least=0.0, most=0.99, help="in the trunk, while training")
    hidden: tuple[int, ...] = static((256, 256), help="widths of hidden layers")
    embedding: int = static(32, least=1, help="width of a categorical column's table")
    convolutions: Layers = static(by_size, choices=LAYERS, help="layers that look at pictures")
    memory: int | None = static(None, least=1, help="width of a recurrent unit")
    window: int = static(16, least=1, help="with a memory: steps in a row that a loss is about")
    burn_in: int = static(0, least=0, help="with a memory: steps before them that only warm it up")
    layer_norm: bool = static(False)
    actor_head: HeadFactory = static(gaussian, choices=HEADS, help="for continuous actions")
    epsilon: float | None = number(None, least=0.0, most=1.0, help="sampling: a sample this often, else the mode")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("makes a module of your own")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete)

    def stores(self, spec: Spec) -> dict[str, Keep]:
        """The log without rewards."""
        return {"log": Keep(())}

    def phases(self) -> tuple[Phase, ...]:
        """One phase over decisions of the log, or over windows of them with a memory."""
        unit = Choice() if self.memory is None else Window(Choice(), self.window, self.burn_in)
        return (Phase("bc", Draw("log", self.batch_size, unit), step, losses),)

    def init(self, spec: Spec, key: jax.Array, updates: int) -> State:
        """A fresh actor for a run of `updates` steps."""
        return init(self, spec, key, updates)

    def acting(self, state: State) -> Acting:
        """The actor."""
        return Acting(state.actor)

    def start(self, acting: Acting, batch: int) -> Any:
        """What the actor's memory holds before anything was seen."""
        return start(acting.actor, batch)

    def act(
        self,
        acting: Acting,
        observation: Observation,
        *,
        mask: jax.Array | None = None,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """The actor's mode, or with a key a sample."""
        return choose(acting.actor, observation, mask, carry, key, self.epsilon)

    def distribution(
        self, acting: Acting, observation: Observation, mask: jax.Array | None = None, carry: Any = None
    ) -> Distribution:
        """The sampled policy."""
        return sampled(acting.actor, observation, mask, carry, self.epsilon)[0]

    def q_values(self, acting: Acting, observation: Observation) -> None:
        """None: cloning rates no action."""
