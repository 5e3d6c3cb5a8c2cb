"""Discrete BCQ as a plain compiled loop: the baseline for the speed of the library's loop.

The same losses, networks, target and optimiser; uniform sampling from arrays of transitions, `optax.adam`, values
selected by `take_along_axis`; no metrics, masks, priorities or checkpoints. Letters: `B` batch, `N` transitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tidelog.data.log import Log

Layers = list[tuple[jax.Array, jax.Array]]


def discrete_bcq_loop(log: Log, config: Any) -> Callable[[int], None]:
    """Return a function that runs updates of discrete BCQ with the settings of `config` on a log of vectors."""
    (leaf,) = log.observation
    rows = {
        "s": jnp.asarray(log.observation[leaf][log.position]),
        "a": jnp.asarray(log.action),
        "r": jnp.asarray(log.reward),
        "d": jnp.asarray(config.discount * (1.0 - log.terminated), jnp.float32),
        "s2": jnp.asarray(log.observation[leaf][log.next_position]),
    }
    rows = {name: column[log.has_target] for name, column in rows.items()}
    sizes = (rows["s"].shape[1], *config.hidden, log.spec.action.n)  # type: ignore[union-attr]
    optimiser = optax.adam(config.learning_rate)
    networks = _initial(sizes, 0), _initial(sizes, 1)
    carry = [(networks, _initial(sizes, 0), optimiser.init(networks), jax.random.key(0))]
    program = jax.jit(_loop(config, optimiser))

    def take(updates: int) -> None:
        carry[0] = jax.block_until_ready(program(rows, carry[0], jnp.int32(updates)))  # type: ignore[no-untyped-call]

    return take


def _loop(config: Any, optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    def loss(networks: tuple[Layers, Layers], batch: dict[str, jax.Array], y: jax.Array) -> jax.Array:
        critic, imitator = networks
        q = jnp.take_along_axis(_apply(critic, batch["s"]), batch["a"][:, None], axis=1)[:, 0]
        logits = _apply(imitator, batch["s"])
        likely = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["a"][:, None], axis=1)[:, 0]
        total: jax.Array = (
            jnp.mean(optax.huber_loss(q, y)) - jnp.mean(likely) + config.logit_penalty * jnp.mean(jnp.square(logits))
        )
        return total

    def update(carry: Any, rows: dict[str, jax.Array]) -> Any:
        networks, target, opt_state, key = carry
        key, draw = jax.random.split(key)
        index = jax.random.randint(draw, (config.batch_size,), 0, rows["a"].shape[0])
        batch = {name: column[index] for name, column in rows.items()}
        logits = _apply(networks[1], batch["s2"])
        is_supported = logits - jnp.max(logits, axis=1, keepdims=True) >= jnp.log(config.threshold)
        best = jnp.argmax(jnp.where(is_supported, _apply(networks[0], batch["s2"]), -jnp.inf), axis=1)
        following = jnp.take_along_axis(_apply(target, batch["s2"]), best[:, None], axis=1)[:, 0]
        gradient = jax.grad(loss)(networks, batch, batch["r"] + batch["d"] * following)
        moves, opt_state = optimiser.update(gradient, opt_state, networks)
        networks = optax.apply_updates(networks, moves)
        target = optax.incremental_update(networks[0], target, config.tau)
        return networks, target, opt_state, key

    def loop(rows: dict[str, jax.Array], carry: Any, updates: jax.Array) -> Any:
        return jax.lax.fori_loop(0, updates, lambda _, now: update(now, rows), carry)

    return loop


def _initial(sizes: tuple[int, ...], seed: int) -> Layers:
    generator = np.random.default_rng(seed)
    drawn = [(generator.uniform(-1, 1, (a, b)) / a**0.5, np.zeros(b)) for a, b in itertools.pairwise(sizes)]
    return [(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32)) for w, b in drawn]


def _apply(layers: Layers, x: jax.Array) -> jax.Array:
    *hidden, (w, b) = layers
    for weight, bias in hidden:
        x = jax.nn.relu(x @ weight + bias)
    return x @ w + b
