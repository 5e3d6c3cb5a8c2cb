"""Updates per second at paper size, beside the speed of the same machine's matrix products at the same time.

`python -m benchmarks speed [--algorithms NAME ...] [--seeds 4] [--repeats 5]` keeps
`benchmarks/results/speed_cpu.json` (or `speed_gpu`), if all are measured: the median, the least and the most of repeats
in turns.

The benchmarked algorithms with their settings (`ENTRIES`), the matrix products of one update, which are the unavoidable
work of every implementation, and the rates.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.keep import keep, median_and_range
from tidelog.algorithms.discrete_bcq import DiscreteBCQ
from tidelog.algorithms.names import algorithm_class, names
from tidelog.data.log import Log
from tidelog.data.statistics import Scaler
from tidelog.training.engine import Engine
from tidelog.training.loop import as_arrays, as_members
from tidelog.training.run import CHUNK_SECONDS
from tidelog.training.stores import stores_of
from tidelog.types import Continuous

OBSERVATION, ACTION, EPISODE, STEPS = 17, 6, 1_000, 100_000  # the shape of D4RL's halfcheetah and walker2d
SQUARES = (256, 512, 1024, 2048)
SECONDS = 2.0  # approximate duration of a measurement


ENTRIES: dict[str, Any] = {name: algorithm_class(name)() for name in names("a log")} | {
    "discrete-bcq-1024": DiscreteBCQ(batch_size=1024)
}


def log_for(algorithm: Any, seed: int = 0) -> Log:
    """Return the benchmark log of an algorithm's kind of actions."""
    return synthetic_log(Continuous not in algorithm.takes, seed)


Product = tuple[int, int, int]  # m, k, n of [m, k] @ [k, n]


def matrix_products(program: str) -> Counter[Product]:
    """Return how often a compiled program, as text, multiplies matrices of each shape."""
    shape = {name: _sizes(sizes) for name, sizes in re.findall(r"%?([\w.-]+) = \w+\[([\d,]*)\]", program)}
    products: Counter[Product] = Counter()
    dots = r"= \w+\[([\d,]*)\]\S* dot\(%?([\w.-]+),.*lhs_contracting_dims=\{([\d,]*)\}"
    for result, left, contracted in re.findall(dots, program):
        k = math.prod(shape[left][axis] for axis in _sizes(contracted))
        m = math.prod(shape[left]) // k
        products[m, k, math.prod(_sizes(result)) // m] += 1
    return products


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def operations(products: Counter[Product]) -> int:
    """Return the number of multiplications and additions: the sum of 2 m k n."""
    return sum(2 * m * k * n * count for (m, k, n), count in products.items())


def synthetic_log(discrete: bool = False, seed: int = 0) -> Log:
    """Return a log of random numbers in the shape of the paper's tasks: 100,000 steps, observation 17, action 6."""
    generator = np.random.default_rng(seed)
    row = np.arange(STEPS)
    actions = generator.integers(0, ACTION, STEPS) if discrete else generator.uniform(-1, 1, (STEPS, ACTION))
    return Log.from_arrays(
        observation=generator.standard_normal((STEPS, OBSERVATION)).astype(np.float32),
        action=actions.astype(np.int32 if discrete else np.float32),
        reward=generator.standard_normal(STEPS).astype(np.float32),
        terminated=None,
        truncated=row % EPISODE == EPISODE - 1,
        episode=row // EPISODE,
        bounds=None if discrete else (-1.0, 1.0),
        actions=ACTION if discrete else None,
    )


def trainer_of(algorithm: Any, log: Log, seeds: int, vmap: bool | None = None) -> Engine:
    """Return a compiled trainer of an algorithm."""
    stores = stores_of(algorithm, log, Scaler())
    trainer = Engine.fresh(as_members([algorithm], range(seeds)), log.spec, stores, 10**9, vmap)
    trainer.compile()
    trainer.advance(20)
    return trainer


def products_of(algorithm: Any, log: Log) -> Counter[Product]:
    """Return the matrix products of one update as XLA compiles it for CPU: what several losses share is done once."""
    numbers = as_arrays(algorithm)
    stores = stores_of(numbers, log, Scaler())
    state = algorithm.init(log.spec, jax.random.key(0), 1)
    (phase,) = numbers.phases()
    batch, _ = phase.samplers.batch(stores[phase.samplers.store], None, jax.random.key(0), jnp.zeros(()))
    arrays, rest = eqx.partition((state, batch), eqx.is_array)
    update = jax.jit(lambda arrays: eqx.filter(phase.step(numbers, *eqx.combine(arrays, rest)), eqx.is_array))
    with jax.default_device(jax.devices("cpu")[0]):
        return matrix_products(update.lower(arrays).compile().as_text())


def ceiling() -> float:
    """Return the operations per second of the best square matrix product, float32."""
    return max(_square_rate(size) for size in SQUARES)


def _square_rate(size: int) -> float:
    w = jnp.eye(size) * 0.999
    x = jnp.ones((size, size))
    count = max(1, int(SECONDS / len(SQUARES) * 3e11 / (2 * size**3)))
    jax.block_until_ready(_repeated(x, w, 1))  # type: ignore[no-untyped-call]
    begin = time.perf_counter()
    jax.block_until_ready(_repeated(x, w, count))  # type: ignore[no-untyped-call]
    return 2.0 * size**3 * count / (time.perf_counter() - begin)


@jax.jit
def _repeated(x: jax.Array, w: jax.Array, count: int) -> jax.Array:
    product: jax.Array = jax.lax.fori_loop(0, count, lambda _, y: y @ w, x)
    return product


def rate_of(trainer: Engine) -> float:
    """Return the updates per second over all members, in chunks as long as those of a run."""
    return _rate(trainer.advance) * len(trainer.members)


def _rate(advance: Callable[[int], int]) -> float:
    begin = time.perf_counter()
    chunk = max(1, int(advance(50) / (time.perf_counter() - begin) * CHUNK_SECONDS))
    begin, updates = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        updates += advance(chunk)
    return updates / (time.perf_counter() - begin)


def measure(algorithm: Any, seeds: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield one row per repeat: the ceiling, and the rates of one seed and of several."""
    log = log_for(algorithm)
    products = products_of(algorithm, log)
    work = operations(products)
    one, many = trainer_of(algorithm, log, 1), trainer_of(algorithm, log, seeds)
    for _ in range(repeats):
        top, alone, side_by_side = ceiling(), rate_of(one), rate_of(many)
        yield {
            "ceiling_gflops": top / 1e9,
            "updates_per_second": alone,
            "share_of_ceiling": alone * work / top,
            f"updates_per_second_{seeds}_seeds": side_by_side,
            "seeds_over_one": side_by_side / alone,
        }


def figures(name: str, seeds: int, repeats: int) -> dict[str, Any]:
    """Measure one entry: the operations and products of an update, and the median and range of every rate."""
    algorithm = ENTRIES[name]
    products = products_of(algorithm, log_for(algorithm))
    rows = list(measure(algorithm, seeds, repeats))
    shapes = {f"{m}x{k}x{n}": count for (m, k, n), count in products.items()}
    rates = {rate: median_and_range([row[rate] for row in rows]) for rate in rows[0]}
    return {"operations_per_update": operations(products), "matrix_products": shapes, **rates}


def study(algorithms: Sequence[str] = tuple(ENTRIES), seeds: int = 4, repeats: int = 5) -> None:
    """Measure these entries, print the figures, and keep them if all are measured."""
    results = {}
    for name in algorithms:
        results[name] = figures(name, seeds, repeats)
        for figure, value in results[name].items():
            if isinstance(value, dict) and "median" in value:
                print(f"{name}: {figure} {value['median']:.4g} ({value['min']:.4g} to {value['max']:.4g})", flush=True)
    if set(results) == set(ENTRIES):
        command = f"python -m benchmarks speed --repeats {repeats}"
        print(keep(f"speed_{jax.default_backend()}", command, results))
