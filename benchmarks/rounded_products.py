"""Training with the factors of layers' products rounded to bfloat16: how much faster, and is what is learnt as good?

`python -m benchmarks.rounded_products [--parts speed icu pendulum]`. `speed`: updates a second of both, each
in a process of its own on one core, in turn; a ratio is that of one round. `icu`: discrete IQL and discrete BCQ on
ICU-Sepsis, exact values of greedy policies. `pendulum`: IQL on mixed-quality logs, each seed with its own, mean return
of 50 episodes from the same starts. Settings are those of the kept studies of these data, with fewer updates; none was
chosen here. A difference is bfloat16 minus float32, seed by seed, with a 95% interval over seeds.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import tidelog as tl
from benchmarks.icu_sepsis_bcq import bcq, iql, played, world
from benchmarks.keep import RESULTS, keep, kept, seed_interval
from benchmarks.peers import Worker, answer
from benchmarks.pendulum import ENVIRONMENT, PLAYED, mixed_log
from tidelog.networks.layers import PRODUCTS
from tidelog.training.record import BFLOAT16, processor, processor_flags

COMMAND = "python -m benchmarks.rounded_products"
NAMES = ("iql", "bcq", "discrete-bcq", "discrete-bcq-1024", "bc")
SEEDS, ROUNDS, SECONDS = 5, 5, 3.0
ICU_EPISODES, ICU_STEPS, PENDULUM_STEPS = 20_000, 5_000, 6_000


def work(name: str, products: str) -> None:
    """Be one way of an algorithm: a measurement for every line that is read."""
    from benchmarks.speed import entry_of, synthetic_log, trainer_of

    entry = entry_of(name)
    algorithm: Any = replace(entry.algorithm, products=products)  # type: ignore[type-var]
    trainer = trainer_of(algorithm, synthetic_log(entry.discrete), 1)
    answer({"batch_size": algorithm.batch_size}, lambda: trainer.advance(20))


def speed() -> dict[str, Any]:
    """The updates a second of each algorithm both ways, and their ratio."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = {}
    for name in NAMES:
        command = [sys.executable, "-m", "benchmarks.rounded_products", "--work", name]
        workers = {products: Worker([*command, products]) for products in PRODUCTS}
        rows = []
        for number in range(ROUNDS):
            order = list(workers)[:: 1 if number % 2 else -1]
            taken = {products: workers[products].measure(SECONDS) for products in order}
            rows.append({products: one["updates"] / one["seconds"] for products, one in taken.items()})
        for worker in workers.values():
            worker.close()
        ratios = [row["bfloat16"] / row["float32"] for row in rows]
        found[name] = {products: statistics.median(row[products] for row in rows) for products in PRODUCTS}
        found[name] |= {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        print(name, found[name], flush=True)
    marks = sorted(processor_flags() & set(BFLOAT16))
    return {"algorithms": found, "rounds": ROUNDS, "seconds": SECONDS, "marks": marks}


def compared(learnt: Callable[[str], list[float]]) -> dict[str, Any]:
    """What is learnt both ways, seed by seed, and the difference."""
    values = {products: learnt(products) for products in PRODUCTS}
    pairs = zip(values["bfloat16"], values["float32"], strict=True)
    found = {"values": values, "means": {products: list(seed_interval(one)) for products, one in values.items()}}
    found["difference"] = list(seed_interval([one - two for one, two in pairs]))
    print(found, flush=True)
    return found


def icu() -> dict[str, Any]:
    """Exact values of greedy policies."""
    problem, _ = world()

    def learnt(algorithm: Any, products: str) -> list[float]:
        chosen = replace(algorithm, products=products)
        run = tl.fit(chosen, played(ICU_EPISODES), ICU_STEPS, seeds=SEEDS, every=ICU_STEPS, progress=False)
        return [problem.value_of(run.policy(seed)(problem.observations())) for seed in range(SEEDS)]

    algorithms = {"iql": iql(1.0), "discrete-bcq": bcq(0.3, 1.0)}
    found = {name: compared(partial(learnt, algorithm)) for name, algorithm in algorithms.items()}
    return {"algorithms": found, "steps": ICU_STEPS, "episodes": ICU_EPISODES}


def pendulum() -> dict[str, Any]:
    """Mean returns of IQL."""

    def learnt(products: str) -> list[float]:
        algorithm = replace(tl.IQL.preset("locomotion"), products=products)
        returns = []
        for seed in range(SEEDS):
            run = tl.fit(algorithm, mixed_log(seed), PENDULUM_STEPS, seeds=[seed], scale="none", progress=False)
            returns.append(float(tl.rollout(run.policy(), ENVIRONMENT, PLAYED, seed=100 + seed).mean()))
        return returns

    return {"algorithms": {"iql": compared(learnt)}, "steps": PENDULUM_STEPS}


PARTS = {"icu": icu, "pendulum": pendulum, "speed": speed}


def main() -> None:
    """Run the parts that are asked for; the others stay as they were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(*asked.work)
        return
    path = RESULTS / "rounded_products.json"
    parts: dict[str, Any] = kept("rounded_products")["parts"] if path.exists() else {}
    for part in asked.parts:
        parts[part] = PARTS[part]() | {"processor": processor()}
        keep("rounded_products", COMMAND, {"seeds": SEEDS, "parts": parts})
        print(json.dumps(parts[part]), flush=True)


if __name__ == "__main__":
    main()
