"""What IQL, BCQ, BC and discrete BCQ learn in 12,000 updates beside d3rlpy, one part exchanged at a time.

BCQ has layers of 128 units on both sides, so that a seed ends within minutes; everything else is at its default size.

`python -m benchmarks peers_learning [--peer-python PYTHON] [--tasks NAME] [--algorithms NAME] [--ways NAME]
[--logs N]`, where PYTHON is that of an environment with torch, d3rlpy, gymnasium and mujoco. Each part (a task, a log,
an algorithm, a way) is saved when it is done; the same command makes those that are missing. Five seeds take some 3
minutes here and 15 in d3rlpy on one core. The way `as before` has rewards and features as they came, which were the
defaults until they were measured here. The defaults were chosen on one other log of Pendulum; these logs, and not those
of `benchmarks.pendulum`, check the choice.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tidelog as tl
from benchmarks import cartpole, pendulum
from benchmarks.imperfect import TASKS as IMPERFECT
from benchmarks.imperfect import imperfect_log
from benchmarks.keep import keep, known, seed_interval
from tidelog.types import Discrete

NAME, COMMAND = "peers_learning", "python -m benchmarks peers_learning --peer-python PYTHON"
SCRIPT = Path(__file__).with_name("peer_scripts") / "peers_learning_torch.py"
STEPS, PEER_SEEDS, PLAYED = 12_000, 5, 20
PEER = "d3rlpy"
BEFORE: dict[str, Any] = {"reward_scaling": "none", "scale": "none"}
EXCHANGED: dict[str, dict[str, dict[str, Any]]] = {  # hyper-parameters of each way, and `scale` of `fit`
    "iql": {
        "default": {},
        "as before": BEFORE,
        "rewards by their range": {"reward_scaling": "return-range"},
        "features as they are": {"scale": "none"},
        "constant actor rate": {"actor_schedule": "constant"},
    },
    "bcq": {"default": {}, "as before": BEFORE, "features as they are": {"scale": "none"}},
    "discrete_bcq": {"default": {}, "as before": BEFORE, "features as they are": {"scale": "none"}},
    "bc": {"default": {}, "features as they are": {"scale": "none"}},
}
WIDTHS = (128, 128)  # of BCQ
ALGORITHMS: dict[str, Callable[..., Any]] = {
    "iql": tl.IQL,
    "bcq": partial(tl.BCQ, hidden=WIDTHS, generator_hidden=WIDTHS, perturbation_hidden=WIDTHS),
    "discrete_bcq": tl.DiscreteBCQ,
    "bc": tl.BC,
}


class Task(NamedTuple):
    """An environment, the log of a seed, the seeds of its logs, who learns from them, and with how many seeds."""

    environment: str
    log: Callable[[int], tl.Log]
    logs: tuple[int, ...]
    algorithms: tuple[str, ...]
    seeds: int


TASKS = {
    "pendulum": Task(pendulum.ENVIRONMENT, pendulum.mixed_log, (100, 101), ("iql", "bcq", "bc"), 10),
    "cartpole": Task(cartpole.ENVIRONMENT, cartpole.mixed_log, (100, 101), ("discrete_bcq", "bc"), 10),
    "hopper": Task("Hopper-v5", lambda seed: imperfect_log(IMPERFECT["hopper"], seed), (100,), ("iql", "bcq", "bc"), 5),
}


def returns(task: Task, name: str, way: str, log: int) -> list[float]:
    """Mean returns [S] of the policies of one part, each over the same episodes."""
    settings = dict(EXCHANGED[name][way])
    scale = settings.pop("scale", None)
    run = tl.fit(ALGORITHMS[name](**settings), task.log(log), STEPS, seeds=task.seeds, scale=scale, progress=False)
    policies = (run.policy(seed=seed) for seed in range(task.seeds))
    return [float(tl.rollout(policy, task.environment, PLAYED, seed=777).mean()) for policy in policies]


def peer_returns(python: str, task: Task, name: str, log: int) -> list[float]:
    """The same by d3rlpy, in its own environment."""
    data = task.log(log)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.npz"
        rows = {"observation": data.transitions.observation["observation"], "action": data.action}
        np.savez(file, **rows, reward=data.reward, terminated=data.terminated, truncated=data.truncated)
        discrete = isinstance(data.spec.action, Discrete)
        words = [python, str(SCRIPT), f"discrete_{name}" if discrete and name == "bc" else name]
        words += [task.environment, str(file), str(STEPS), str(PEER_SEEDS), str(PLAYED)]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: list[float] = json.loads([line for line in done.stdout.splitlines() if line.startswith("[")][-1])
    return found


def study(
    peer_python: str = "",
    tasks: Sequence[str] = tuple(TASKS),
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    ways: Sequence[str] = (),
    logs: Sequence[int] = (),
) -> None:
    """Make the missing parts, all where none are named, and keep each."""
    parts = known(NAME).get("parts", [])
    asked = [
        {"task": task, "log": log, "algorithm": name, "way": way}
        for task in tasks
        for log in logs or TASKS[task].logs
        for name in TASKS[task].algorithms
        if name in algorithms
        for way in [*EXCHANGED[name], PEER]
        if way in (ways or [way]) and (way != PEER or peer_python)
    ]
    for mark in asked:
        if any(mark.items() <= part.items() for part in parts):
            continue
        task, name, way, log = TASKS[mark["task"]], mark["algorithm"], mark["way"], mark["log"]
        peer = way == PEER
        values = peer_returns(peer_python, task, name, log) if peer else returns(task, name, way, log)
        parts.append({**mark, "mean": list(seed_interval(values)), "returns": values})
        keep(NAME, COMMAND, {"steps": STEPS, "played": PLAYED}, parts=parts)
        print(f"{mark}: {parts[-1]['mean']}", flush=True)
