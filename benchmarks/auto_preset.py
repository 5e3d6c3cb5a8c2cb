"""Settings that follow the log against the constructor's defaults, on seven logs.

The rules of `tidelog/auto/settings.py` were chosen on other logs of the built-in treatment problem, CartPole and
Pendulum. Satiation, the first log tried here, then showed that the temperature must not be lowered: its kept result is
that of the earlier rule, and it no longer counts as a test; FrozenLake took its place. IQL learns from each log twice,
five seeds each: with the settings that follow it, and with its defaults and the 20,000 updates that `tidelog train`
had before. A fifth of the episodes is held out, as in the command. Values are exact where the problem is finite, else
means of 100 episodes; Open Bandit has no truth, its values are estimates by self-normalised importance sampling on the
held-out rows. The held-out visits of satiation also judge the policies.

Command: `python -m benchmarks.auto_preset`; one log with its name as an argument. Kept results are not computed again.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import tidelog as tl
from benchmarks.icu_sepsis import expert_log, icu_sepsis
from benchmarks.imperfect import disturbed
from benchmarks.keep import RESULTS, SHARED, keep, seed_interval
from tidelog.auto.settings import suggest
from tidelog.envs import TabularEnvironment, make, play
from tidelog.envs.satiation import logging_policy, satiation
from tidelog.envs.tabular import Tabular
from tidelog.policies.rollout import COPIES, log_of

NAME, COMMAND = "auto_preset", "python -m benchmarks.auto_preset"
BANDIT = SHARED / "data/obd_small/random/men/men.csv.gz"
MAPPING = Path(__file__).resolve().parents[1] / "examples" / "open_bandit_men.toml"
SEEDS, HELD_OUT, STEPS, PLAYED = 5, 0.2, 20_000, 100


class Task(NamedTuple):
    """A log, how its policies are valued, and whether actions are sampled."""

    log: Callable[[], tl.Log]
    value: Callable[[tl.Policy, tl.Log], float]
    sample: bool = False
    judged: bool = False


def played(name: str) -> Callable[[tl.Policy, tl.Log], float]:
    return lambda policy, log: float(tl.rollout(policy, name, PLAYED, seed=100).mean())


def noisy(name: str, controller: Callable[[np.ndarray], np.ndarray], decisions: int) -> tl.Log:
    """A controller of continuous actions with noise, and at times anything."""
    environment = make(name, COPIES)
    space = environment.spec.action
    act = disturbed(controller, np.asarray(space.low), np.asarray(space.high))
    return log_of(environment.spec, play(environment, act, seed=7, steps=decisions))


def acrobot() -> tl.Log:
    """Push with the second joint's swing, wrongly in 4 of 10 decisions."""
    environment = make("Acrobot-v1", COPIES)

    def act(observed, generator):
        seen = observed.observation["observation"]
        push = np.where(seen[:, 5] > 0, 2, 0)
        wrong = generator.random(len(push)) < 0.4
        action = np.where(wrong, generator.integers(0, 3, len(push)), push)
        return action.astype(np.int32), np.where(action == push, 0.6 + 0.4 / 3, 0.4 / 3)

    return log_of(environment.spec, play(environment, act, 200, 7))


def visits() -> tl.Log:
    """The editor's lists."""
    problem = satiation()
    chances = logging_policy()
    states = {row.tobytes(): at for at, row in enumerate(problem.observations()["numeric"])}

    def act(observed, generator):
        here = chances[[states[row.tobytes()] for row in observed.observation["numeric"]]]
        action = (here.cumsum(axis=1) > generator.random((len(here), 1))).argmax(axis=1)
        return action.astype(np.int32), here[np.arange(len(here)), action]

    environment = TabularEnvironment(problem, 500)
    return log_of(environment.spec, play(environment, act, 4_000, 7))


@cache
def frozen_lake() -> Tabular:
    """Gymnasium's slippery lake of 16 squares, without its time limit: the goal pays 1, holes end the episode."""
    lake: Any = gymnasium.make("FrozenLake-v1", is_slippery=True).unwrapped
    table = lake.P
    states, actions = len(table), len(table[0])
    transition, reward = np.zeros((states, actions, states)), np.zeros((states, actions, states))
    final = np.zeros(states, bool)
    for state, action in itertools.product(range(states), range(actions)):
        for probability, successor, gain, ended in table[state][action]:
            transition[state, action, successor] += probability
            reward[state, action, successor] = gain
            final[successor] |= ended
    return Tabular(transition, reward, np.eye(states)[0], final, name="frozen-lake")


def lake() -> tl.Log:
    """The best moves at discount 0.99; 6 of 10 moves go anywhere."""
    problem = frozen_lake()
    best = problem.optimal(0.99)[1].argmax(axis=1)

    def act(observed, generator):
        move = best[observed.observation["observation"][:, 0]]
        action = np.where(generator.random(len(move)) < 0.6, generator.integers(0, 4, len(move)), move)
        return action.astype(np.int32), np.where(action == move, 0.4 + 0.6 / 4, 0.6 / 4)

    return log_of(problem.spec, play(TabularEnvironment(problem, 500), act, 4_000, 7))


def exact(problem) -> Callable[[tl.Policy, tl.Log], float]:
    return lambda policy, log: problem.value_of(policy.probabilities(problem.observations()))


def icu() -> Task:
    problem, expert = icu_sepsis()
    return Task(lambda: expert_log(problem, expert, 5_000, 7), exact(problem), sample=True)


def estimated(policy: tl.Policy, log: tl.Log) -> float:
    _, held_out = log.split(1.0 - HELD_OUT, 0)
    return tl.estimate(policy, held_out, "snips", sample=True)["snips"].estimate


TASKS: dict[str, Callable[[], Task]] = {
    "icu-sepsis": icu,
    "satiation": lambda: Task(visits, exact(satiation()), sample=True, judged=True),
    "frozen-lake": lambda: Task(lake, exact(frozen_lake()), sample=True),
    "open-bandit": lambda: Task(lambda: tl.read_log(BANDIT, MAPPING), estimated, sample=True),
    "acrobot": lambda: Task(acrobot, played("Acrobot-v1")),
    "point-mass": lambda: Task(lambda: noisy("point-mass", lambda x: -5 * x, 4_000), played("point-mass")),
    "mountain-car": lambda: Task(
        lambda: noisy("MountainCarContinuous-v0", lambda x: np.sign(x[:, 1:]), 20_000),
        played("MountainCarContinuous-v0"),
    ),
}


def of(task: Task, log: tl.Log, algorithm, steps: int) -> dict:
    """Train five seeds; their values, seconds and verdicts."""
    began = time.monotonic()
    run = tl.fit(algorithm, log, steps, SEEDS, held_out=HELD_OUT, scale="standard", progress=False)
    seconds = time.monotonic() - began
    policies = {str(seed): run.policy(seed) for seed in range(SEEDS)}
    found = {
        "settings": repr(algorithm),
        "steps": steps,
        "seconds": seconds,
        "values": [task.value(policy, log) for policy in policies.values()],
    }
    if task.judged:
        _, held_out = log.split(1.0 - HELD_OUT, 0)
        verdicts = [
            tl.judge(policy, held_out, sample=task.sample, ledger=False, progress=False) for policy in policies.values()
        ]
        found["verdicts"] = [verdict.decision for verdict in verdicts]
    return found


def study(only: str | None = None) -> dict:
    """Train on every log with both, and keep the values and their paired differences."""
    path = RESULTS / f"{NAME}.json"
    logs = json.loads(path.read_text())["logs"] if path.exists() else {}
    for name in [only] if only else [one for one in TASKS if one not in logs]:
        task = TASKS[name]()
        log = task.log()
        suggestion = suggest(tl.IQL, log, held_out=HELD_OUT)
        auto = of(task, log, suggestion.algorithm, suggestion.steps)
        plain = of(task, log, tl.IQL(), STEPS)
        difference = [one - two for one, two in zip(auto["values"], plain["values"], strict=True)]
        logger = float(log.statistics().returns["mean"])
        logs[name] = {
            "decisions": log.steps,
            "episodes": len(log.episode_ids),
            "logger": logger,
            "reasons": suggestion.lines(),
            "auto": auto,
            "defaults": plain,
            "difference": seed_interval(difference),
        }
        print(name, logger, auto, plain, logs[name]["difference"], sep="\n  ", flush=True)
        keep(NAME, COMMAND, {"seeds": SEEDS, "held_out": HELD_OUT, "logs": logs})
    return logs


if __name__ == "__main__":
    study(*sys.argv[1:])
