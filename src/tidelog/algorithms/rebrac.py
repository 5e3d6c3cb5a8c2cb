"""ReBRAC: TD3 with two penalties on the distance to the logged actions, one of the actor and one of the critics.

Tarasov, Kurenkov, Nikulin, Kolesnikov 2023, arXiv:2305.09836; reference implementation: tinkoff-ai/ReBRAC.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| critics | `sum_e (Q_e(s, a) - y)**2` | |
| | `y = r + discount (min_e Qtarget_e(s', a') - critic_penalty sum (a' - b')**2)` | old target actor and critics |
| actor | `actor_penalty sum (pi(s) - a)**2 - q / mean abs(q)`, `q = min_e Q_e(s, pi(s))` | **new** critics |
| targets | Polyak update of actor and critics by `tau` | **new** actor and critics |

`a'` is the target actor's action with clipped noise, as in TD3+BC; `b'` is the **logged** action in s'. The last step
of an episode has no `b'`: its penalty is 0, also where a time limit cut the episode off and s' is known. At a
termination the discount is 0, and the penalty with it. With `n_step` s' and `b'` are those after the summed steps.
Actor and targets move in every `policy_delay`-th update only. `normalise_q` off leaves out `mean abs(q)`.

Limits: critic penalty 0 makes the critics those of TD3+BC. Critics have layer norm, the actor has none.

Deliberate differences from the reference: actions are scaled to [-1, 1]; layer norm comes before the activation, there
after it; the target actor follows the **new** actor, there the one before its step; steps that a time limit cut off are
learned from where s' is known (the reference leaves them out).

Letters: `B` batch, `E` ensemble, `A` action size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, chosen_preset, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NEXT_ACTION, NetworkMaker, algorithm
from tidelog.algorithms.td3_bc import TD3BCState, critic_metrics, inverse_size, smoothed_action
from tidelog.data.statistics import RewardScaling
from tidelog.losses.imitation import squared_distance
from tidelog.losses.td import PointLoss, ensemble_error, squared
from tidelog.networks.actors import Actor, deterministic
from tidelog.networks.critics import Critic, Ensemble
from tidelog.networks.layers import Activation
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Continuous, Spec

PRESETS: dict[str, dict[str, Any]] = {
    # Tarasov et al. 2023, and the configurations of tinkoff-ai/CORL. The paper tunes both penalties for each data set:
    # locomotion has those of hopper-medium and walker2d-medium-expert, antmaze of large-play, adroit of pen-human. The
    # reference multiplies the rewards of antmaze by 100; here the penalty of the critics is divided by 100.
    "locomotion": {"batch_size": 1024, "reward_scaling": "none"},
    "antmaze": {
        "actor_penalty": 0.002,
        "critic_penalty": 0.00001,
        "discount": 0.999,
        "actor_learning_rate": 3e-4,
        "critic_learning_rate": 5e-5,
        "reward_scaling": "none",
    },
    "adroit": {
        "actor_penalty": 0.1,
        "critic_penalty": 0.5,
        "actor_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "reward_scaling": "none",
    },
}


@algorithm("rebrac")
class ReBRAC:
    """TD3 with separate penalties of actor and critics on the distance to the logged actions (arXiv:2305.09836).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.ReBRAC(actor_penalty=0.1, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    actor_penalty: float = field(0.01, least=0.0, help="weight of the distance in the actor's loss", group=MAIN)
    critic_penalty: float = field(0.01, least=0.0, help="weight of the distance in the critics' target", group=MAIN)
    normalise_q: bool = field(True, help="divide Q by its mean size in the actor's loss")
    policy_noise: float = fields.policy_noise()
    noise_clip: float = fields.noise_clip()
    policy_delay: int = fields.policy_delay()
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "targets move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(256)
    actor_learning_rate: float = fields.learning_rate(1e-3, "the actor")
    critic_learning_rate: float = fields.learning_rate(1e-3, "the critics")
    actor_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    dropout: float | None = fields.dropout(None)
    hidden: tuple[int, ...] = fields.widths((256, 256, 256), "hidden layers")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    layer_norm: bool = field(True, help="layer normalisation in the critics' hidden layers", group="network")
    activation: Activation = fields.activation("relu")
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    actor_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous,)
    suits: ClassVar[str] = "as td3-bc, where the penalties of actor and critics can be tuned apart"
    columns: ClassVar[tuple[str, ...]] = ("reward", "terminated", NEXT_ACTION)
    delayed: ClassVar[tuple[str, ...]] = ("actor", "targets")
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    @classmethod
    def preset(cls, name: str) -> ReBRAC:
        """Return the paper's settings for a family of D4RL tasks: locomotion, antmaze or adroit."""
        return cls(**chosen_preset("ReBRAC", PRESETS, name))

    def init(self, spec: Spec, key: jax.Array) -> TD3BCState:
        """Return new networks; targets start as copies of their networks."""
        make = NetworkMaker(self, spec, key)
        actor = make(Actor, self.actor_network, head=deterministic, layer_norm=False)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network))
        return TD3BCState(actor, actor, critic, critic)

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Any = batch.data  # a Transition with the next logged action
        noise_key, dropout_key = jax.random.split(key)
        next_action = smoothed_action(self, state, row, noise_key)
        next_q = jnp.min(state.target_critic(row.next_observation, next_action), axis=0)
        distance = jnp.where(row.has_next_action, squared_distance(next_action, row.next_action), 0.0)
        target = row.reward + row.discount * (next_q - self.critic_penalty * distance)  # [B]
        q = state.critic(row.observation, row.action)  # [E, B]

        action = state.actor(row.observation, dropout=self.dropout, key=dropout_key).mode()  # [B, A]
        policy_q = jnp.min(state.critic(row.observation, action), axis=0)  # [B]
        imitation = squared_distance(action, row.action)
        weight = inverse_size(batch, policy_q) if self.normalise_q else 1.0
        losses = {
            "critic": batch.mean(ensemble_error(q, target, self.critic_loss)),
            "actor": batch.mean(self.actor_penalty * imitation - weight * policy_q),
        }
        critic = critic_metrics(batch, q, target) | {"next_distance": batch.average(distance)}
        actor = {"imitation_error": batch.average(imitation), "policy_q": batch.average(policy_q)}
        return losses, {"critic": critic, "actor": actor}
