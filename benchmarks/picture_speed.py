"""Pictures a second of one training step of IMPALA: ours and PyTorch.

64 by 64 by 3, 256 features, squared error of 16 of them, Adam. `tidelog` is what trains, many steps in one compiled
loop, and `tidelog-cores` the same where each core is a device that has its part of the batch (`devices={"batch": 2}`).
PyTorch runs in an environment of its own (`pictures_torch.py`). All wait in processes of their own and are measured in
turn, in another order every round; a ratio is that of one round.

`python -m benchmarks picture_speed --peer-python PYTHON [--rounds 7] [--seconds 3]`
"""

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from benchmarks.keep import keep
from benchmarks.peer_scripts.turns import answer
from benchmarks.peers import compared
from benchmarks.spread import words_of
from tidelog.networks.encoder import EncoderConfig, Picture
from tidelog.networks.pictures import impala
from tidelog.training.engine import cores_as_devices, put
from tidelog.training.loop import BATCH_AXIS
from tidelog.types import Image

COMMAND = "python -m benchmarks picture_speed --peer-python PYTHON"
TRAINED = ("tidelog", "tidelog-cores")
BATCH, LEAF = 64, Image(64, 64, 3)
PEERS = ("channels-last", "channels-first", "compile")
ADAM = optax.adam(5e-4)


def loss(network, pictures, targets):
    return jnp.mean(jnp.square(network(pictures)[:, :16] - targets))


def step(carry, pictures, targets):
    network, memory = carry
    slope = jax.grad(loss)(network, pictures, targets)
    direction, memory = ADAM.update(slope, memory)
    moved = optax.apply_updates(network, direction), memory
    if jax.sharding.get_abstract_mesh().empty:
        return moved
    return jax.lax.with_sharding_constraint(moved, PartitionSpec())


@partial(jax.jit, static_argnames="kind")
def many(carry, pictures, targets, count, kind):
    """`count` steps in one compiled loop; `kind` keeps programs apart."""
    return jax.lax.fori_loop(0, count, lambda i, carry: step(carry, pictures, targets), carry)


def made(batch, leaf=LEAF):
    network = Picture.create(np.random.default_rng(0), leaf, EncoderConfig(1, 256, impala))
    generator = np.random.default_rng(1)
    pictures = generator.integers(0, 256, (batch, leaf.height, leaf.width, leaf.channels)).astype(np.uint8)
    return network, jnp.asarray(pictures), jnp.asarray(generator.standard_normal((batch, 16)), jnp.float32)


def on_cores(carry, *batch):
    """The carry on all devices, a batch cut among them, and the context in which networks see them."""
    mesh = jax.make_mesh((jax.device_count(),), (BATCH_AXIS,), (AxisType.Auto,))
    everywhere, cut = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), (BATCH_AXIS,)))
    return put(carry, everywhere), jax.device_put(batch, cut), jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def work(way: str, batch: int) -> None:
    """Be a process of tidelog's: facts, then the pictures trained on in as many seconds as a line says."""
    context, count = nullcontext(), max(1, 10 * BATCH // batch)
    if way == "tidelog-cores":
        cores_as_devices(os.cpu_count())
    network, *drawn = made(batch)
    carry = network, ADAM.init(eqx.filter(network, eqx.is_inexact_array))
    if way == "tidelog-cores":
        carry, drawn, context = on_cores(carry, *drawn)
    with context:
        run = partial(many, carry, *drawn, count, way)

        jax.block_until_ready(run())
        weights = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))
        answer({"weights": weights}, lambda: jax.block_until_ready(run()), count * batch)


def study(peer_python: str = sys.executable, rounds: int = 7, seconds: float = 3.0) -> None:
    """Measure both sizes of batch, and keep the results."""
    script = Path(__file__).with_name("peer_scripts") / "pictures_torch.py"
    found = {}
    for batch in (BATCH, 8 * BATCH):
        commands = {way: words_of(work, way, batch) for way in TRAINED}
        commands |= {way: [peer_python, str(script), way, str(batch)] for way in PEERS}
        found[str(batch)] = compared(commands, rounds, seconds)
        print(batch, found[str(batch)], flush=True)
    facts = {
        "pictures": list(LEAF.__dict__.values()),
        "cores": os.cpu_count(),
    }
    keep("picture_speed_cpu", COMMAND, facts | {"rounds": rounds, "seconds": seconds, "batches": found})
