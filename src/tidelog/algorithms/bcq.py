"""BCQ: batch-constrained deep Q-learning, continuous actions and actions with parts.

Fujimoto, Meger, Precup 2019, arXiv:1812.02900; reference implementation: sfujim/BCQ, continuous_BCQ.

One update, in this order (`new` marks networks that this update has already changed):

| step | loss (per sample) | reads |
|---|---|---|
| generator | `mean (decode(s, z) - a)**2 + kl_weight KL(z | s, a)`, z encoded | |
| critics | `sum_e (Q_e(s, a) - r - discount max_i between_e Qtarget_e(s', a_i))**2` | **new** generator |
| | | old target perturbation, old target critics |
| perturbation | `-Q_1(s, perturb(s, decode(s, z)))`, a new z | **new** generator, **new** Q_1 |
| targets | Polyak update of perturbation and critics by `tau` | **new** perturbation and critics |

`a_i` are `target_samples` candidates: clipped normal latents, decoded by the generator and perturbed by the target
perturbation; `between` is `mix` times the smallest critic plus `1 - mix` times the largest. Acting decodes `samples`
candidates and selects the one with the highest value of the first critic; its latents are random with a key; without a
key they are a fixed set in the state.

Limits: phi 0 acts as the generator; mix 1 is the clipped double minimum, mix 0 the maximum.

Of an action with parts, the generator also has the logits of codes: their error is the negative log-probability, and
`decode` takes the most likely ones. The perturbation moves continuous numbers alone.

Deliberate differences from the reference: actions are scaled to [-1, 1] before any network reads them, so phi is a
share of half their range; the policy has no density and returns None.

With recurrent networks, the losses run over windows [B, T]. Each network unrolls its own recurrent state from zeros,
once; all candidates are decoded and evaluated from this state. The next observation of a step is encoded from that
step's recurrent state.

Letters: `B` batch (`B, T` in windows), `E` ensemble, `A` action size, `L` latent size, `C` candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import MAIN, field, own
from tidelog.algorithms.optimisation import Schedule, Transformation, constant, frozen
from tidelog.algorithms.sampling import Batch
from tidelog.algorithms.short_form import NetworkMaker, algorithm
from tidelog.data.statistics import RewardScaling
from tidelog.errors import ConfigError
from tidelog.losses.td import PointLoss, between, ensemble_error, squared
from tidelog.losses.vae import REDUCTIONS, Reduction, mean_over_latents, normal_divergence, reconstruction_error
from tidelog.networks import recipe
from tidelog.networks.actors import in_blocks
from tidelog.networks.critics import Critic, Ensemble, Generator, Perturbation, perturb
from tidelog.networks.encoder import Seen, after, now
from tidelog.networks.layers import Activation, Linear, fold_in, normal
from tidelog.networks.pictures import Layers, by_size
from tidelog.types import Act, Continuous, Hybrid, Observation, Spec, Transition, same_shape

# Candidate actions of BCQ: latents, their decoded and perturbed actions, and the critics' values of these.
#
# Each network encodes the observations once (`now`, `after`, `encode_all`). All candidates use this encoding, so
# pictures and recurrent states are not encoded again for each candidate. Letters: `B` batch (`B, T` in windows), `A`
# action size, `L` latent size, `C` candidates.


class BCQParams(NamedTuple):
    """The arrays that acting reads."""

    generator: Generator
    perturbation: Perturbation
    critic: Any  # the ensemble's first member
    latents: jax.Array  # [C, L]


class UpdateNoise(NamedTuple):
    """The random numbers of one update."""

    posterior: jax.Array  # [B, L]: for reconstruction
    after: jax.Array  # [C, B, L]: candidates for the target
    now: jax.Array  # [B, L]: for the perturbation


def drawn(config: Any, state: Any, batch: Batch, key: jax.Array) -> UpdateNoise:
    """Draw all random numbers of one update from one key."""
    rows, size = batch.data.reward.shape, state.latents.shape[-1]
    posterior, after, now = jax.random.split(key, 3)
    return UpdateNoise(
        normal(posterior, (*rows, size)),
        clipped_normal(config, after, (config.target_samples, *rows, size)),
        clipped_normal(config, now, (*rows, size)),
    )


def clipped_normal(config: Any, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Draw standard normal latents, clipped at `latent_clip` on both sides."""
    return jnp.clip(normal(key, shape), -config.latent_clip, config.latent_clip)


def candidates(
    generator: Generator, seen: Seen, perturbation: Perturbation, also_seen: Seen, latents: jax.Array, reach: Any
) -> jax.Array:
    """Decode latents [C, B, L] and perturb them by up to `reach`: actions [C, B, A]; each network has its encoding."""

    def one(latent: jax.Array) -> jax.Array:
        action = generator.decode(seen, latent)
        return perturb(action, perturbation(also_seen, action), reach, codes_of(perturbation))

    return jax.vmap(one)(latents)


def values_of(critic: Any, seen: Seen, actions: jax.Array) -> jax.Array:
    """Return the values [C, B] of candidates [C, B, A] from one critic."""
    values: jax.Array = jax.vmap(lambda action: critic(seen, action))(actions)
    return values


def values_of_all(critics: Ensemble, seen: list[Seen], actions: jax.Array) -> jax.Array:
    """Return the values [E, C, B] of candidates [C, B, A] from every critic, each with its own encoding."""
    return jnp.stack(
        [values_of(critic, features, actions) for critic, features in zip(critics.members, seen, strict=True)]
    )


def encode_all(
    params: BCQParams, observation: Observation, carry: jax.Array | None
) -> tuple[list[Seen], jax.Array | None]:
    """Encode with generator, perturbation and critic; also return their recurrent states [B, 3H], concatenated."""
    if carry is None:
        return [observation] * 3, None
    units = jnp.split(carry, 3, axis=1)
    networks: tuple[Any, ...] = params[:3]
    seen = [network.encoder.step(observation, unit)[0] for network, unit in zip(networks, units, strict=True)]
    return seen, jnp.concatenate(seen, axis=1)


def best_candidate(
    params: BCQParams, observation: Observation, carry: jax.Array | None, latents: jax.Array, reach: Any
) -> tuple[jax.Array, jax.Array | None]:
    """Return the candidate [B, A] of latents [C, B, L] with the highest value of the first critic; also the carry."""
    (seen, also_seen, rating), carry = encode_all(params, observation, carry)
    actions = candidates(params.generator, seen, params.perturbation, also_seen, latents, reach)
    best = jnp.argmax(values_of(params.critic, rating, actions), axis=0)
    return jnp.take_along_axis(actions, best[None, :, None], axis=0)[0], carry


def codes_of(module: Any) -> tuple[int, ...]:
    """Return how many codes each number of an action has, as a network knows it; () of a custom module."""
    codes: tuple[int, ...] = getattr(module, "codes", ())
    return codes


def generator_error(generator: Any, seen: Seen, latent: jax.Array, action: jax.Array) -> jax.Array:
    """Return the reconstruction error [B] of latents [B, L], for a Generator or a module with `decode`."""
    if isinstance(generator, Generator):
        return generator.error(seen, latent, action)
    return reconstruction_error(generator.decode(seen, latent), action)


def differences(action: jax.Array, logged: jax.Array, codes: tuple[int, ...]) -> jax.Array:
    """Return the differences [B, A] of actions; other codes are 1 apart."""
    apart = action - logged
    return jnp.where(np.asarray(codes) > 0, (action != logged).astype(jnp.float32), apart) if codes else apart


ROWS = 256  # observations whose candidates are evaluated at once


class BCQState(NamedTuple):
    """The networks; optimiser states, the numbers of updates and the key are added."""

    generator: Generator
    perturbation: Perturbation
    target_perturbation: Perturbation
    critic: Ensemble
    target_critic: Ensemble
    latents: jax.Array  # [C, L]: latents of acting without a key


def target_value(config: BCQ, state: Any, row: Transition, latents: jax.Array) -> jax.Array:
    """Return `r + discount max_i between_e Qtarget_e(s', a_i)` [B] over the candidates of latents [C, B, L]."""
    generator, correction, critics = state.generator, state.target_perturbation, state.target_critic
    actions = candidates(generator, after(generator, row), correction, after(correction, row), latents, config.phi)
    values = values_of_all(critics, [after(critic, row) for critic in critics.members], actions)
    best = jnp.max(between(values, config.mix), axis=0)
    same_shape(reward=row.reward, discount=row.discount, value=best)
    return row.reward + row.discount * best


@algorithm("bcq")
class BCQ:
    """Batch-constrained Q-learning: the best candidate near the logged actions by the critics (arXiv:1812.02900).

    Example:
        >>> log = tl.collect("point-mass", episodes=50, seed=0)
        >>> run = tl.fit(tl.BCQ(latent_clip=0.5, hidden=(16,)), log, steps=20)
        >>> run.policy().mode(log.observation).shape[1] == log.spec.action.size
        True
    """

    phi: float = field(0.05, least=0.0, most=2.0, help="largest perturbation of an action, in half ranges", group=MAIN)
    mix: float = field(0.75, least=0.0, most=1.0, help="weight of the smallest critic in targets; rest: the largest")
    kl_weight: float = field(0.5, least=0.0, help="weight of the KL divergence in the generator's loss")
    kl_reduction: Reduction = field(mean_over_latents, choices=REDUCTIONS, help="mean or sum over latents")
    latent: int | None = field(None, least=1, help="size of the latents; none: twice the size of actions")
    latent_clip: float = field(0.5, least=0.0, help="limit of generated latents")
    target_samples: int = field(10, least=1, help="candidates in targets")
    samples: int = field(100, least=1, help="candidates when acting", group=MAIN)
    policy_delay: int = field(1, least=1, help="critic updates per update of perturbation and targets")
    discount: float = fields.discount(0.99)
    tau: float = fields.tau(0.005, "targets move per update")
    num_critics: int = fields.num_critics(2)
    critic_loss: PointLoss = fields.critic_loss(squared)
    n_step: int = fields.n_step(1)
    batch_size: int = fields.batch_size(100)
    generator_learning_rate: float = fields.learning_rate(1e-3, "the generator")
    critic_learning_rate: float = fields.learning_rate(1e-3, "the critics")
    perturbation_learning_rate: float = fields.learning_rate(1e-3, "the perturbation")
    generator_schedule: Schedule = fields.schedule(constant)
    critic_schedule: Schedule = fields.schedule(constant)
    perturbation_schedule: Schedule = fields.schedule(constant)
    optimiser: Transformation = fields.optimiser("adam")
    gradient_clip: float | None = fields.gradient_clip(None, "each network's gradient")
    debug_metrics: bool = fields.debug_metrics(False)
    matmul_precision: str = fields.matmul_precision()
    hidden: tuple[int, ...] = fields.widths((400, 300), "the critics' hidden layers")
    generator_hidden: tuple[int, ...] = fields.widths((750, 750), "the generator's hidden layers", group="network")
    perturbation_hidden: tuple[int, ...] = fields.widths(
        (400, 300), "the perturbation's hidden layers", group="network"
    )
    activation: Activation = fields.activation("relu")
    embedding: int = fields.embedding(32)
    convolutions: Layers = fields.convolutions(by_size)
    picture_shift: int = fields.picture_shift(0)
    recurrent_size: int | None = fields.recurrent_size(None)
    window: int = fields.window(16)
    burn_in: int = fields.burn_in(0)
    priority_exponent: float | None = fields.priority_exponent(None)
    priority_correction: float | None = fields.priority_correction(0.4)
    reward_scaling: RewardScaling = fields.reward_scaling("return-deviation")
    generator_network: Callable[[Spec, jax.Array], Any] | None = own(
        "function that returns a module with encode and decode"
    )
    perturbation_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns your own module")
    critic_network: Callable[[Spec, jax.Array], Any] | None = own("function that returns one critic module")

    takes: ClassVar[tuple[type, ...]] = (Continuous, Hybrid)
    suits: ClassVar[str] = "logged actions with several modes: it takes the best of generated candidates"
    delayed: ClassVar[tuple[str, ...]] = ("perturbation", "targets")

    def check(self) -> None:
        """Raise ConfigError where two fields contradict each other."""
        if self.recurrent_size is not None and (
            self.generator_network or self.perturbation_network or self.critic_network
        ):
            raise ConfigError(
                f"BCQ.recurrent_size = {self.recurrent_size} does not support networks of your own",
                fix="drop recurrent_size or your networks",
            )

    def init(self, spec: Spec, key: jax.Array) -> BCQState:
        """Return new networks; targets start as copies of their networks."""
        make = NetworkMaker(self, spec, key)
        latent = self.latent or 2 * len(spec.action.low)  # type: ignore[union-attr]
        generator = make(Generator, self.generator_network, hidden=self.generator_hidden, latent=latent)
        perturbation = make(Perturbation, self.perturbation_network, hidden=self.perturbation_hidden)
        critic = Ensemble.create(self.num_critics, lambda: make(Critic, self.critic_network, linear=Linear.uniform))
        latents = jax.jit(clipped_normal, static_argnums=2)(self, fold_in(key, 2), (self.samples, latent))
        return BCQState(generator, perturbation, perturbation, critic, critic, latents)

    def loss(self, state: Any, batch: Batch, key: jax.Array) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        """Return the losses in the order of the update, and the metrics of each."""
        row: Transition = batch.data
        noise = drawn(self, state, batch, key)
        features = now(state.generator, row)
        mean, log_std = state.generator.encode(features, row.action)
        error = generator_error(state.generator, features, mean + jnp.exp(log_std) * noise.posterior, row.action)  # [B]
        divergence = self.kl_reduction(normal_divergence(mean, log_std))  # [B]

        target = target_value(self, frozen(state), row, noise.after)  # [B]
        q = state.critic(row.observation, row.action, **row.window)  # [E, B]
        td_error = jnp.abs(q - target)

        proposed = state.generator.decode(features, noise.now)  # [B, A]
        direction = state.perturbation(now(state.perturbation, row), proposed)
        codes, first = codes_of(state.perturbation), state.critic.members[0]
        action = perturb(proposed, direction, self.phi, codes)

        losses = {
            "generator": batch.mean(error + self.kl_weight * divergence),
            "critic": batch.mean(ensemble_error(q, target, self.critic_loss)),
            "perturbation": -batch.mean(first(now(first, row), action)),
        }
        metrics = {
            "generator": {"reconstruction_loss": batch.average(error), "kl_loss": batch.average(divergence)},
            "critic": {
                "td_error": batch.average(jnp.mean(td_error, axis=0)),
                "target_q": batch.average(target),
                **{
                    f"critic_loss_{e + 1}": batch.average(self.critic_loss(q[e] - target))
                    for e in range(self.num_critics)
                },
                "priority": batch.per_sample(jnp.mean(td_error, axis=0)),
            },
            "perturbation": {
                "perturbation_size": batch.average(jnp.mean(jnp.abs(self.phi * direction), axis=-1)),
                "distance_to_log": batch.average(jnp.linalg.norm(differences(action, row.action, codes), axis=-1)),
            },
        }
        return losses, metrics

    def policy_params(self, state: Any) -> BCQParams:
        """Return generator, perturbation, the first critic and the fixed latents."""
        return BCQParams(state.generator, state.perturbation, state.critic.members[0], state.latents)

    def initial_state(self, params: BCQParams, batch: int) -> jax.Array | None:
        """Return the three initial recurrent states, concatenated; None for feed-forward networks."""
        return None if self.recurrent_size is None else jnp.zeros((batch, 3 * self.recurrent_size))

    def act(
        self,
        params: BCQParams,
        observation: Observation,
        carry: Any = None,
        key: jax.Array | None = None,
    ) -> Act:
        """Return the best of `samples` candidates: from the fixed latents, or from random latents with a key."""
        rows = len(next(iter(observation.values())))
        carry = self.initial_state(params, rows) if carry is None else carry
        shape = (rows, *params.latents.shape)
        latents = jnp.broadcast_to(params.latents, shape) if key is None else clipped_normal(self, key, shape)

        def some(part: tuple[Observation, jax.Array | None, jax.Array]) -> tuple[jax.Array, jax.Array | None]:
            return best_candidate(params, *part[:2], jnp.swapaxes(part[2], 0, 1), self.phi)

        action, carry = in_blocks(some, (observation, carry, latents), ROWS)
        return Act(action, None, carry)

    def recipe(self, params: BCQParams) -> dict[str, Any]:
        """Return the computation of candidates, perturbation and values as plain nodes."""
        act = {
            "kind": "mixed_candidates" if codes_of(params.generator) else "candidates",
            "generator": recipe.network(params.generator),
            "perturbation": recipe.network(params.perturbation),
            "critic": recipe.network(params.critic),
            "latents": params.latents,
            "clip": float(self.latent_clip),
            "reach": float(self.phi),
            **({"codes": list(codes)} if (codes := codes_of(params.generator)) else {}),
        }
        return recipe.whole(act, carry=self.recurrent_size and 3 * self.recurrent_size)
