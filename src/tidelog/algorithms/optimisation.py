"""Network initialisation, gradient steps and Polyak updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tidelog.networks.layers import duplicate, from_host

Network = TypeVar("Network")
Schedule = Callable[[jax.Array], jax.Array]
Transformation = Callable[[], optax.GradientTransformation]


def constant(progress: jax.Array) -> jax.Array:
    """Return 1 for every progress in [0, 1]."""
    return jnp.ones_like(progress)


def cosine(progress: jax.Array) -> jax.Array:
    """Return a half cosine from 1 to 0 while progress goes from 0 to 1 (Loshchilov and Hutter 2017)."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0)))


def linear(progress: jax.Array) -> jax.Array:
    """Return a line from 1 to 0 while progress goes from 0 to 1."""
    return 1.0 - jnp.clip(progress, 0.0, 1.0)


SCHEDULES: Mapping[str, Schedule] = {"constant": constant, "cosine": cosine, "linear": linear}


def adam_atari() -> optax.GradientTransformation:
    """Return Adam with epsilon 1.5e-4, as agents for Atari use it (Hessel et al. 2018)."""
    return optax.scale_by_adam(eps=1.5e-4)


OPTIMISERS: Mapping[str, Transformation] = {
    "adam": optax.scale_by_adam,
    "adam-atari": adam_atari,
    "rmsprop": optax.scale_by_rms,
}


def init_opt_state(optimiser: Transformation, network: Any) -> optax.OptState:
    """Return a new optimiser state for all arrays of a network, in its own buffers: training donates both."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    if optimiser not in OPTIMISERS.values():
        return jax.jit(optimiser().init)(arrays)  # one program, not one per shape
    shapes = jax.eval_shape(optimiser().init, arrays)  # these states begin as zeros, which need no program
    return jax.tree.map(lambda leaf: from_host(np.zeros(leaf.shape, leaf.dtype)), shapes)


def norm(tree: Any) -> jax.Array:
    """Return the Euclidean norm of all numbers of a gradient or network."""
    squares = (jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))
    return jnp.sqrt(sum(squares, start=jnp.zeros(())))


def norms(networks: Mapping[str, Any], gradients: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Return metrics: the norm of each network and gradient by its name, and of all gradients together."""
    parts = {f"gradient_norm_{name}": norm(gradient) for name, gradient in gradients.items()}
    weights = {f"weight_norm_{name}": norm(network) for name, network in networks.items()}
    return {"gradient_norm": norm(list(parts.values())), **parts, **weights}


def clipped(gradient: Any, limit: jax.Array | float | None) -> Any:
    """Return the gradient, shrunk to this norm where it is longer."""
    if limit is None:
        return gradient
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient)))
    shrink = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda g: g * shrink, gradient)


def descend(
    optimiser: Transformation,
    network: Network,
    gradient: Any,
    opt_state: Any,
    rate: jax.Array | float,
    clip: jax.Array | float | None,
) -> tuple[Network, Any]:
    """Do one step against the gradient, `rate` times the optimiser's direction; `clip` bounds the gradient's norm."""
    with jax.named_scope("optimiser"):  # profiles name it
        gradient = clipped(gradient, clip)
        direction, opt_state = optimiser().update(gradient, opt_state, eqx.filter(network, eqx.is_inexact_array))
        updated = eqx.apply_updates(network, jax.tree.map(lambda d: -rate * d, direction))
    return updated, opt_state


class GradientStep(NamedTuple):
    """A network after a step, its optimiser state, and the loss before the step with its metrics and gradient."""

    network: Any
    opt_state: Any
    loss: jax.Array
    metrics: Any
    gradient: Any


def gradient_step(
    loss: Callable[..., Any], network: Any, opt_state: Any, rate: jax.Array | float, config: Any, *inputs: Any
) -> GradientStep:
    """Do one gradient step on `loss(network, config, *inputs) -> (loss, metrics)` with the settings of `config`."""
    differentiated: Callable[..., Any] = eqx.filter_value_and_grad(loss, has_aux=True)
    (value, metrics), gradient = differentiated(network, config, *inputs)
    network, opt_state = descend(config.optimiser, network, gradient, opt_state, rate, config.gradient_clip)
    return GradientStep(network, opt_state, value, metrics, gradient)


def polyak_update(target: Network, network: Network, rate: jax.Array | float) -> Network:
    """Move the target by `rate` of its gap to the network (Polyak averaging)."""
    with jax.named_scope("target"):
        updated: Network = jax.tree.map(
            lambda t, n: (1.0 - rate) * t + rate * n if eqx.is_inexact_array(t) else t, target, network
        )
    return updated


def tree_where(due: jax.Array, before: Network, after: Network) -> Network:
    """Return `after` where an update is due, else `before`."""
    chosen: Network = jax.tree.map(lambda a, b: jnp.where(due, a, b) if eqx.is_array(a) else b, after, before)
    return chosen


def frozen(network: Network) -> Network:
    """Return the network as a constant for gradients."""
    constants: Network = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, network
    )
    return constants


def copied(network: Network) -> Network:
    """Copy the network into its own buffers: training donates the state's buffers, the user's must stay valid."""
    copy: Network = jax.tree.map(lambda leaf: duplicate(leaf) if eqx.is_array(leaf) else leaf, network)
    return copy
