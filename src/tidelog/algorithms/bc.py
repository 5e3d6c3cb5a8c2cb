"""Behaviour cloning (BC): the baseline for every comparison.

Pomerleau 1991. A network that imitates the policy of the log: a Gaussian or a point for continuous actions, a
categorical for discrete actions, one of these for each part of an action with parts. One loss, `-log pi(a | s)`
(squared distance for the point), on the logged actions; rewards are never read.

Letters: `B` batch, `A` number of actions or action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.networks.actors import Actor, HeadFactory, gaussian
from tidelog.networks.layers import Activation, fold_in
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Decision, Discrete, Hybrid, MultiDiscrete, Spec


class BCState(NamedTuple):
    """The network; its optimiser state, the numbers of updates and the key are added."""

    actor: Actor


@algorithm("bc")
class BC:
    """Behaviour cloning: imitates the logged actions, reads no reward.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> policy.probabilities(log.features()).shape == (len(log.action), 6)
        True
    """

    batch_size: int = fields.batch_size(256)
    learning_rate: float = fields.learning_rate(3e-4, group=MAIN)
    schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "the gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    layer_norm: bool = fields.layer_norm(False)
    activation: Activation = fields.activation("relu")
    actor_head: HeadFactory = fields.actor_head(gaussian)
    epsilon: float | None = fields.epsilon(None, help="sampling: probability of a sample, else the mode")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Discrete, MultiDiscrete, Hybrid)
    suits: ClassVar[str] = "the baseline of all others: it imitates the behaviour policy"
    columns: ClassVar[tuple[str, ...]] = ()
    loss_names: ClassVar[dict[str, str]] = {"actor": "imitation_loss"}

    def init(self, spec: Spec, key: jax.Array) -> BCState:
        """Return a new actor."""
        make = NetworkMaker(self, spec, fold_in(key, 0))
        return BCState(make(Actor, self.actor_network, head=self.actor_head))

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the mean imitation error of the logged actions, and the policy's entropy."""
        row: Decision = batch.data
        policy = state.actor(row.observation, mask=row.mask, dropout=self.dropout, key=key, **row.window)
        entropy = policy.entropy()
        metrics = {} if entropy is None else {"entropy": batch.average(entropy)}
        return {"actor": batch.mean(policy.imitation_error(row.action))}, metrics
