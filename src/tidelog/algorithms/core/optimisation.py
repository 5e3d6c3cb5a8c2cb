"""How networks begin, and the two ways in which they move: descending a gradient, and following slowly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

Network = TypeVar("Network")
Schedule = Callable[[jax.Array], jax.Array]
Transformation = Callable[[], optax.GradientTransformation]


def constant(progress: jax.Array) -> jax.Array:
    """1, whatever the progress in [0, 1]."""
    return jnp.ones_like(progress)


def cosine(progress: jax.Array) -> jax.Array:
    """From 1 to 0 along half a cosine, as progress goes from 0 to 1 (Loshchilov and Hutter 2017)."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0)))


def linear(progress: jax.Array) -> jax.Array:
    """From 1 to 0 along a line, as progress goes from 0 to 1."""
    return 1.0 - jnp.clip(progress, 0.0, 1.0)


SCHEDULES: Mapping[str, Schedule] = {"constant": constant, "cosine": cosine, "linear": linear}


def adam_atari() -> optax.GradientTransformation:
    """Adam with the epsilon 1.5e-4 that agents for Atari use (Hessel et al. 2018)."""
    return optax.scale_by_adam(eps=1.5e-4)


OPTIMISERS: Mapping[str, Transformation] = {
    "adam": optax.scale_by_adam,
    "adam-atari": adam_atari,
    "rmsprop": optax.scale_by_rms,
}


def init_opt_state(optimiser: Transformation, network: Any) -> Any:
    """The optimiser's fresh state for all arrays of a network, in buffers of its own: training takes both over."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    shared = {id(leaf) for leaf in jax.tree.leaves(arrays)}
    opt_state = optimiser().init(arrays)
    return jax.tree.map(lambda leaf: jnp.array(leaf) if id(leaf) in shared else leaf, opt_state)


def descend(
    optimiser: Transformation,
    network: Network,
    gradient: Any,
    opt_state: Any,
    rate: jax.Array | float,
    clip: jax.Array | float | None,
) -> tuple[Network, Any]:
    """One step against the gradient, `rate` times the optimiser's direction; `clip` bounds the gradient's norm."""
    if clip is not None:
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient)))
        shrink = jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-12))
        gradient = jax.tree.map(lambda g: g * shrink, gradient)
    direction, opt_state = optimiser().update(gradient, opt_state, eqx.filter(network, eqx.is_inexact_array))
    moved = eqx.apply_updates(network, jax.tree.map(lambda d: -rate * d, direction))
    return moved, opt_state


def _slope(loss: Callable[..., Any]) -> Callable[..., Any]:
    return eqx.filter_value_and_grad(loss, has_aux=True)


class GradientStep(NamedTuple):
    """A network after a step, what its optimiser remembers, and the loss before it with all that it told."""

    network: Any
    opt_state: Any
    loss: jax.Array
    metrics: Any


def gradient_step(
    loss: Callable[..., Any], network: Any, opt_state: Any, rate: jax.Array | float, config: Any, *inputs: Any
) -> GradientStep:
    """One step of a network down the slope of `loss(network, h, *inputs) -> (loss, told)`, as `config` says."""
    (value, metrics), slope = _slope(loss)(network, config, *inputs)
    network, opt_state = descend(config.optimiser, network, slope, opt_state, rate, config.gradient_clip)
    return GradientStep(network, opt_state, value, metrics)


def polyak_update(target: Network, network: Network, rate: jax.Array | float) -> Network:
    """The target moved by `rate` of its gap to the network (Polyak averaging)."""
    moved: Network = jax.tree.map(
        lambda t, n: (1.0 - rate) * t + rate * n if eqx.is_inexact_array(t) else t, target, network
    )
    return moved


def tree_where(due: jax.Array, before: Network, after: Network) -> Network:
    """`after` where an update is due, else `before`."""
    chosen: Network = jax.tree.map(lambda a, b: jnp.where(due, a, b) if eqx.is_array(a) else b, after, before)
    return chosen


def build_or_default(make: Callable[..., Any] | None, otherwise: Callable[[], Any], spec: Any, key: jax.Array) -> Any:
    """What the user's function makes of spec and key, or without one what `otherwise` makes."""
    return otherwise() if make is None else copied(make(spec, key))


def copied(network: Network) -> Network:
    """The network in buffers of its own: the training loop takes a state's buffers over, a user's must stay."""
    copy: Network = jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)) if eqx.is_array(leaf) else leaf, network)
    return copy
