"""Learning from logs of mixed quality against behaviour cloning, paired over seeds, each seed with a log of its own.

`pendulum` is IQL (its locomotion preset). A log is 100 episodes: a third by a swing-up controller, a third by the same
controller weakened and disturbed, a third random. Nothing was tuned on these logs.

`cartpole` is discrete BCQ at its defaults. A log is 4,000 episodes, one in ten by a controller that balances and pushes
the wrong way in 30% of its steps, nine in ten by a player who pushes the wrong way in 65% of his; most steps are of the
latter, so that their majority is wrong. Both actions are nearly always supported, so that what is tested is Q. A first
design had logs of 600 episodes with a controller wrong in 20% of its steps, and 20,000 updates; the mix was chosen
after it on logs of seeds 0 and 1, so that cloning falls over; the size after a run on logs of 1,000 episodes, seeds 10
to 14, where discrete BCQ had 500, 500, 500, 261 and 212 after 10,000 updates, and on two of them less with every
further one, as Q climbed (to 119 for seed 13, where 100 is the most that can be earned). Results are on other seeds.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.problems import recorded
from tidelog.envs import make

PENDULUM, CARTPOLE, PLAYED = "Pendulum-v1", "CartPole-v1", 50
WRONG = np.asarray([0.3] + 9 * [0.65])  # how often each of ten players pushes the wrong way
COMMAND = "pytest -m slow tests/learns/test_studies.py -k {}"


def pendulum_controller(observation: np.ndarray, strength: float = 1.0) -> np.ndarray:
    """Torque for gymnasium's Pendulum-v1: `[W, 3]` (cosine, sine, angular speed) to `[W, 1]` newton metres in [-2, 2].

    Swings up by energy pumping and holds upright by a proportional-derivative law; `strength` scales the torque:
    1 is good (mean return above -300), 0 does nothing, and values between them give logs of mixed quality.
    """
    cosine, sine, speed = (observation[:, column].astype(np.float64) for column in range(3))
    angle = np.arctan2(sine, cosine)
    missing = 30.0 * (1.0 - cosine) / 2.0 - speed**2 / 2.0
    pump = 2.0 * np.where(speed == 0.0, 1.0, np.sign(speed)) * np.sign(missing)
    hold = -(16.0 * angle + 4.0 * speed)
    torque = np.where(np.abs(angle) < 0.6, hold, pump)
    return (strength * np.clip(torque, -2.0, 2.0)).astype(np.float32)[:, None]


def pendulum_log(seed: int, episodes: int = 100) -> tl.Log:
    """Copies of the environment in three groups, each with its own player; torque is cut at the bounds."""
    strength = np.asarray([1.0, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4, 0.0, 0.0, 0.0])[:, None]
    noise = np.asarray([0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.0, 0.0, 0.0])[:, None]

    def act(observed, generator):
        seen = observed.observation["observation"]
        steered = np.concatenate(
            [pendulum_controller(seen[i : i + 1], float(strength[i, 0])) for i in range(len(seen))]
        )
        random = generator.uniform(-2.0, 2.0, steered.shape)
        disturbed = steered + noise * generator.standard_normal(steered.shape)
        torque = np.where(strength > 0, disturbed, random)
        return np.clip(torque, -2.0, 2.0).astype(np.float32), None

    return recorded(make(PENDULUM, len(strength)), act, episodes, seed)


def cartpole_log(seed: int, episodes: int = 4_000) -> tl.Log:
    """Ten copies of the environment, each with a player of its own."""

    def act(observed, generator):
        lean = observed.observation["observation"] @ np.asarray([0.1, 0.3, 1.0, 0.5])
        steered = (lean > 0).astype(np.int32)  # towards where the pole falls and the cart drifts
        wrong = generator.random(len(steered)) < WRONG
        return np.where(wrong, 1 - steered, steered).astype(np.int32), np.where(wrong, WRONG, 1.0 - WRONG)

    return recorded(make(CARTPOLE, len(WRONG)), act, episodes, seed)


class Task(NamedTuple):
    """An environment, logs, who learns beside cloning, seeds, the seed of the first log, updates, and facts to keep."""

    environment: str
    log: Callable[[int], tl.Log]
    algorithm: tuple[str, Any]
    seeds: int
    first: int
    steps: int
    kept: str
    facts: dict[str, Any]


TASKS = {
    "pendulum": Task(PENDULUM, pendulum_log, ("iql", tl.IQL.preset("locomotion")), 10, 0, 20_000, "pendulum_iql_bc",
                     {"episodes": 100}),
    "cartpole": Task(CARTPOLE, cartpole_log, ("discrete_bcq", tl.DiscreteBCQ(reward_scaling="none")), 5, 20, 10_000,
                     "cartpole_discrete_bcq", {"episodes": 4_000, "most": 500.0}),
}  # fmt: skip


def study(name: Literal["pendulum", "cartpole"] = "pendulum", /) -> dict:
    """Train both on each log and keep mean returns, their differences and the behaviour policy's."""
    task = TASKS[name]
    algorithms = dict([task.algorithm, ("bc", tl.BC())])
    found: dict[str, Any] = {one: [] for one in (*algorithms, "logger")}
    for seed in range(task.seeds):
        log = task.log(task.first + seed)
        found["logger"].append(log.statistics().returns["mean"])
        for one, algorithm in algorithms.items():
            run = tl.fit(algorithm, log, task.steps, seeds=[seed], scale="none", progress=False)
            found[one].append(float(tl.rollout(run.policy(), task.environment, PLAYED, seed=100 + seed).mean()))
    difference = [mine - bc for mine, bc in zip(found[task.algorithm[0]], found["bc"], strict=True)]
    found |= {"difference": difference, "interval": seed_interval(difference), "steps": task.steps, **task.facts}
    keep(task.kept, COMMAND.format(name), found)
    return found
