"""What a GPU is worth to tidelog: one step in this process, kept as `benchmarks/results/gpu_STEP.json`.

`bash benchmarks/gpu.sh` runs every step in a process of its own. `python -m benchmarks gpu STEP [--tiny]` runs one;
`--tiny` has sizes for a test on any device, and keeps nothing that is worth reading.
Each file names the device and its driver, and the most memory that the step held on it.
"""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import numpy as np

import tidelog as tl
from benchmarks import speed
from benchmarks.keep import keep, median_and_range
from benchmarks.picture_speed import ADAM, made, many
from benchmarks.ppg_speed import PPG, PPO, training
from benchmarks.speed import operations, products_of, rate_of, synthetic_log, trainer_of
from tidelog.types import Image


@dataclass(frozen=True)
class Sizes:
    """The sizes of all steps."""

    hidden: dict[str, Any]  # of algorithms that learn from a log; empty: their defaults
    seeds: int
    repeats: int
    seconds: float  # of each repeat
    batches: tuple[int, ...]  # of pictures
    side: int  # of a picture
    num_envs: int
    items: int
    queries: int


FULL = Sizes({}, 64, 3, 2.0, (64, 512, 2048), 64, 4096, 1_000_000, 1024)
TINY = Sizes({"hidden": (8,), "batch_size": 4}, 2, 1, 0.01, (2,), 8, 4, 100, 3)


def updates(algorithm: Any, sizes: Sizes) -> dict[str, Any]:
    """Updates a second of one seed, and summed over all seeds of one program."""
    speed.SECONDS = sizes.seconds
    small = replace(algorithm, **sizes.hidden)
    log = synthetic_log(isinstance(algorithm, tl.DiscreteBCQ))
    found: dict[str, Any] = {"operations_per_update": operations(products_of(small, log))}
    for seeds in (1, sizes.seeds):
        trainer = trainer_of(small, log, seeds, vmap=seeds > 1)
        found[f"seeds_{seeds}"] = {
            "updates_per_second": sorted(rate_of(trainer) for _ in range(sizes.repeats)),
            "peak_bytes": peak_bytes(),
        }
    return found


def pictures(sizes: Sizes) -> dict[str, Any]:
    """Frames a second of a training step of IMPALA, by batch size."""
    found = {}
    for batch in sizes.batches:
        network, frames, targets = made(batch, Image(sizes.side, sizes.side, 3))
        carry = network, ADAM.init(network)  # type: ignore[arg-type]
        steps = max(1, 100 * sizes.repeats // 3)
        run = partial(many, carry, frames, targets, steps, "gpu")
        found[f"batch_{batch}"] = rates(run, steps, batch, sizes.repeats) | {"peak_bytes": peak_bytes()}
    return found


def rates(run: Callable[[], Any], count: int, batch: int, repeats: int) -> dict[str, float]:
    """Frames a second of each repeat, after one that is not counted."""
    jax.block_until_ready(run())
    found = []
    for _ in range(repeats):
        begin = time.monotonic()
        jax.block_until_ready(run())
        found.append(count * batch / (time.monotonic() - begin))
    return median_and_range(found)


def decisions(sizes: Sizes) -> dict[str, Any]:
    """Decisions a second of PPO and PPG on CartPole as a function of JAX."""
    found, tiny = {}, {"rollout_steps": 4} if sizes is TINY else {}
    for name, algorithm in ({"ppo": PPO} if tiny else {"ppo": PPO, "ppg": PPG}).items():
        here = replace(algorithm, num_envs=sizes.num_envs, **tiny)
        found[name] = training(here, "jax:CartPole-v1", 2 * sizes.seconds) | {"peak_bytes": peak_bytes()}
    return {"environments": sizes.num_envs, **found}


def top_k(sizes: Sizes) -> dict[str, Any]:
    """Queries a second of the ten best of all items, exactly: one product and one selection in one program."""
    table, queries = (jax.random.normal(jax.random.key(n), (n, 64)) for n in (sizes.items, sizes.queries))
    search = jax.jit(lambda queries, table: jax.lax.top_k(queries @ table.T, 10))
    scores, best = map(np.asarray, search(queries, table))
    expected = np.asarray(queries[:1]) @ np.asarray(table).T
    np.testing.assert_allclose(scores[0], np.sort(expected[0])[::-1][:10], rtol=2e-2)  # TF32 products are this near
    seconds = []
    for _ in range(3 * sizes.repeats):
        begin = time.perf_counter()
        jax.block_until_ready(search(queries, table))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - begin)
    rate = sizes.queries / float(np.median(seconds))
    return {"items": sizes.items, "queries": sizes.queries, "k": best.shape[1], "queries_per_second": rate}


def judge(sizes: Sizes) -> dict[str, Any]:
    """Seconds of a verdict on 100,000 steps with unknown propensities, with compilation and without."""
    train, log = synthetic_log(discrete=True, seed=1), synthetic_log(discrete=True)
    policy = tl.fit(tl.BC(), train, 20, progress=False).policy()
    log = log.take_episodes(range(20 if sizes is TINY else len(log.episodes)))
    words = {"sample": True, "propensities": "estimated", "ledger": False}
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        verdict = tl.judge(policy, log, progress=False, **words)
        seconds.append(time.perf_counter() - begin)
    if sizes is FULL and verdict.decision == "unsupported":  # so few episodes as the tiny sizes have are refused
        raise RuntimeError(f"a refusal was timed in place of a verdict: {verdict.paragraph}")
    effect = {"decision": verdict.decision, "difference": verdict.difference}
    return {"steps": len(log), **effect, "seconds": seconds, "peak_bytes": peak_bytes()}


Step = Literal["iql", "bcq", "discrete_bcq", "bc", "pictures", "decisions", "top_k", "judge"]
STEPS: dict[Step, Callable[[Sizes], dict[str, Any]]] = {
    "iql": partial(updates, tl.IQL()),
    "bcq": partial(updates, tl.BCQ()),
    "discrete_bcq": partial(updates, tl.DiscreteBCQ()),
    "bc": partial(updates, tl.BC()),
    "pictures": pictures,
    "decisions": decisions,
    "top_k": top_k,
    "judge": judge,
}


def peak_bytes() -> int:
    """Return the most memory held so far on the device; of the process where the device does not say."""
    held = jax.devices()[0].memory_stats() or {}
    return int(held.get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def driver() -> str | None:
    """Return the names and drivers of NVIDIA's devices, or None without the tool that says them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def study(step: Step, /, tiny: bool = False) -> str:
    """Run one step and keep its file."""
    begin, tiny = time.perf_counter(), tiny or os.environ.get("TIDELOG_TINY") == "1"
    found = STEPS[step](TINY if tiny else FULL)
    facts = {"tiny": tiny, "driver": driver(), "xla_flags": os.environ.get("XLA_FLAGS")}
    facts |= {"seconds_of_this_step": time.perf_counter() - begin, "peak_bytes_of_this_step": peak_bytes()}
    return str(keep(f"gpu_{step}", "bash benchmarks/gpu.sh", facts | {"found": found}))
