"""Small runs of every algorithm whose batches several devices share, for processes that the tests start."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import tidelog as tl
from benchmarks.bits import BCQ_SIZES, PHASES, PRIORITISED, RECOMMENDER, RECURRENT, clicks, log_of, small
from tidelog.policies.policy import fingerprint
from tidelog.training.loop import RoundInputs, advance, pack, run_rounds

UPDATES = 20
OFFLINE = {
    "bc": (tl.BC, "discrete", {}),
    "bc continuous": (tl.BC, "continuous", {}),
    "bc recurrent": (tl.BC, "discrete", RECURRENT),
    "iql": (tl.IQL, "discrete", {"n_step": 2}),
    "iql continuous": (tl.IQL, "continuous", {}),
    "iql recurrent prioritised": (tl.IQL, "discrete", {**RECURRENT, **PRIORITISED}),
    "bcq": (tl.BCQ, "continuous", BCQ_SIZES),
    "bcq recurrent": (tl.BCQ, "continuous", {**BCQ_SIZES, **RECURRENT}),
    "discrete bcq": (tl.DiscreteBCQ, "discrete", {}),
    "discrete bcq prioritised": (tl.DiscreteBCQ, "discrete", PRIORITISED),
}
SAMPLE = ("bc recurrent", "iql continuous", "discrete bcq prioritised", "recommender bcq")
NAMES = (*OFFLINE, "recommender bcq", "recommender bcq vae", "ppg")


def simulated(devices: int | None) -> dict[str, str]:
    """The environment of a process that sees so many simulated devices; None: as many as it asks for."""
    flags = f"--xla_force_host_platform_device_count={devices} " if devices else ""
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    return {**os.environ, "XLA_FLAGS": flags + os.environ.get("XLA_FLAGS", ""), "PYTHONPATH": paths}


def run_of(name: str, **options: Any) -> tl.Run:
    """A run of an algorithm before its first update."""
    given = {"eval_every": UPDATES, "progress": False, "train": False, **options}
    if name == "ppg":
        return tl.learn(tl.PPG(**PHASES), "jax:CartPole-v1", 128, **given)
    if name.startswith("recommender"):
        changes = {"generator": "vae"} if name.endswith("vae") else {}
        return tl.fit(tl.RecommenderBCQ(**{**RECOMMENDER, **changes}), clicks(False), UPDATES, held_out=0.25, **given)
    algorithm, kind, changes = OFFLINE[name]
    return tl.fit(small(algorithm, **changes)(), log_of(kind), UPDATES, held_out=0.25, **given)


def compiled_text(run: tl.Run) -> str:
    """The compiled program of the first group of a run."""
    engine = run._engine
    learner, inputs = engine._learners[0], engine._log_inputs(0, 0, 1)
    if engine.unit == "updates":
        program = advance(0, engine._placement.sizes[0] > 1)
        return program.lower(inputs, learner).compile().compiled.as_text()
    plan = pack([], len(engine._phases))
    return (
        run_rounds.lower(RoundInputs(inputs, plan, engine._assignment.source, None), learner)
        .compile()
        .compiled.as_text()
    )


KINDS = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")
COLLECTIVE = re.compile(rf"= (.+?) ({'|'.join(KINDS)})(?:-start)?\(")


def collectives(text: str) -> Iterator[tuple[str, int]]:
    """The kind and the bytes of each collective of a compiled program."""
    for shapes, kind in COLLECTIVE.findall(text):
        sizes = re.findall(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]", shapes)
        yield kind, sum(_width(name) * int(np.prod([int(n) for n in dims.split(",") if n])) for name, dims in sizes)


def _width(name: str) -> int:
    return 1 if name == "pred" else int(re.sub(r"\D", "", name)) // 8


def weight_bytes(run: tl.Run) -> int:
    """The bytes of a state's real numbers: weights, targets and moments."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(run._engine.state(0)) if leaf.dtype == np.float32)


def results(names: tuple[str, ...] = NAMES, **options: Any) -> dict[str, list[str]]:
    """The fingerprint of each member's learner after a run, by the run's name."""
    found = {}
    for name in names:
        run = run_of(name, **options)
        for _ in run.stream():
            pass
        found[name] = [fingerprint(learner) for learner in run.learners()]
    return found
