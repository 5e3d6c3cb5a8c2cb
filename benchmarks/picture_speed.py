"""Frames a second of one training step of IMPALA inside a compiled loop, by XLA's own gradients and by ours.

Batches of 64 pictures of 64 by 64 by 3, 256 features, a linear head, Adam; `fori_loop` takes all steps in one call.
`xla` is what the same network does where nothing is put together for CPUs: one look at the whole batch, convolutions,
pools and their gradients as XLA has them; `xla_outside` the same, a step a call, for there its kernels are better.
`ours` is what trains. Others may be using the machine: a second of processor time depends on that least.
`python -m benchmarks.picture_speed`; gradients are compared at the size that is timed.
"""

import sys
import time
from contextlib import contextmanager
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.keep import keep
from tidelog.networks import convolve
from tidelog.networks.convolution import impala
from tidelog.networks.encode import EncoderConfig, Picture
from tidelog.types import Image

COMMAND = "python -m benchmarks.picture_speed"
BATCH, LEAF, REPEATS = 64, Image(64, 64, 3), 5
ADAM = optax.adam(5e-4)


@contextmanager
def as_elsewhere():
    """What is traced within is for devices that are no CPUs."""
    before, convolve.on_cpu = convolve.on_cpu, lambda: False
    try:
        yield
    finally:
        convolve.on_cpu = before


def loss(network, pictures, targets):
    return jnp.mean(jnp.square(network(pictures)[:, :16] - targets))


def step(carry, pictures, targets):
    network, memory = carry
    slope = jax.grad(loss)(network, pictures, targets)
    direction, memory = ADAM.update(slope, memory)
    return optax.apply_updates(network, direction), memory


@partial(jax.jit, static_argnames="kind")
def many(carry, pictures, targets, count, kind):
    """`count` steps in one compiled loop; `kind` keeps programs apart."""
    return jax.lax.fori_loop(0, count, lambda i, carry: step(carry, pictures, targets), carry)


def rates(run, count, batch, repeats=REPEATS):
    """Frames a second of each repeat, and a second of processor time, after one repeat that is not counted."""
    jax.block_until_ready(run())
    found, spent = [], []
    for _ in range(repeats):
        begin, used = time.monotonic(), time.process_time()
        jax.block_until_ready(run())
        found.append(count * batch / (time.monotonic() - begin))
        spent.append(count * batch / (time.process_time() - used))
    spread = {"median": float(np.median(found)), "min": min(found), "max": max(found)}
    return spread | {"a_processor_second": float(np.median(spent))}


def made(batch=BATCH):
    network = Picture.create(np.random.default_rng(0), LEAF, EncoderConfig(1, 256, impala))
    generator = np.random.default_rng(1)
    pictures = generator.integers(0, 256, (batch, LEAF.height, LEAF.width, LEAF.channels)).astype(np.uint8)
    return network, jnp.asarray(pictures), jnp.asarray(generator.standard_normal((batch, 16)), jnp.float32)


def farthest():
    """The largest gap between the two ways' gradients, relative to the largest entry of each leaf."""
    network, pictures, targets = made()
    slope = lambda network: jax.grad(loss)(network, pictures, targets)  # noqa: E731
    ours = jax.jit(slope)(network)
    with as_elsewhere():
        theirs = jax.jit(lambda network: slope(network))(network)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(jnp.abs(one - two).max() / jnp.abs(two).max()) for one, two in pairs)


def study():
    found = {"batch": BATCH, "pictures": list(LEAF.__dict__.values()), "gap_of_gradients": farthest()}
    for batch in (BATCH, 8 * BATCH):
        network, pictures, targets = made(batch)
        carry = network, ADAM.init(eqx.filter(network, eqx.is_inexact_array))
        count = max(1, 10 * BATCH // batch)
        found[f"ours_{batch}"] = rates(lambda: many(carry, pictures, targets, count, "ours"), count, batch)  # noqa: B023
    network, pictures, targets = made()
    carry = network, ADAM.init(eqx.filter(network, eqx.is_inexact_array))
    with as_elsewhere():
        alone = jax.jit(step)
        found["xla_outside"] = rates(lambda: alone(carry, pictures, targets), 1, BATCH)
        found["xla"] = rates(lambda: many(carry, pictures, targets, 1, "xla"), 1, BATCH, 2)
    keep("picture_speed_cpu", COMMAND, found)
    return found


if __name__ == "__main__":
    sys.exit(print(study()))
