"""PPO beside Stable-Baselines3: decisions a second while learning, in turns, on gymnasium's CartPole and Hopper.

`python -m benchmarks sb3_ppo --peer-python PYTHON [--rounds 5] [--seconds 4]`, where PYTHON is that of an environment
with torch and `stable-baselines3` and `gymnasium[mujoco]`; it needs no tidelog. Environments, networks, epochs and
minibatches are the same (`two_networks` and `small_minibatches` of `benchmarks/ppg_speed.py`; on Hopper the preset
`mujoco` without its auxiliary phase). `in JAX` is
CartPole as a compiled environment. All wait in processes of their own and are measured in turn, in another order every
round; a ratio is that of one round.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.keep import keep
from benchmarks.peer_scripts.turns import answer
from benchmarks.peers import compared
from benchmarks.ppg_speed import HOPPER, HOPPER_SETTINGS, SETTINGS, advanced
from benchmarks.spread import words_of
from tidelog.training.learn import learn

COMMAND = "python -m benchmarks sb3_ppo --peer-python PYTHON"
SCRIPT = Path(__file__).with_name("peer_scripts") / "sb3_torch.py"
CARTPOLE = "CartPole-v1"
OURS: dict[str, tuple[Any, str]] = {
    "two-networks": (SETTINGS["ppo_two_networks"], CARTPOLE),
    "small-minibatches": (SETTINGS["ppo_small_minibatches"], CARTPOLE),
    "hopper": (HOPPER_SETTINGS["ppo"], HOPPER),
}
PEERS = ("one-thread", "all-threads", "processes")


def work(setting: str, way: str) -> None:
    """Be a process of tidelog's: learn in whole rounds for as many seconds as a line says."""
    algorithm, environment = OURS[setting]
    environment = f"jax:{environment}" if way == "in JAX" else environment
    size = algorithm.num_envs * algorithm.rollout_steps
    trainer = learn(algorithm, environment, 10**9, eval_every=10**9, train=False)._engine
    trainer.compile()
    rounds = 8 if way == "in JAX" else 1

    for _ in range(2):
        advanced(trainer, rounds * size)
    answer({}, lambda: advanced(trainer, rounds * size))


def study(
    peer_python: str = sys.executable, settings: Sequence[str] = tuple(OURS), rounds: int = 5, seconds: float = 4.0
) -> None:
    """Measure these settings, and keep the results."""
    found = {}
    for setting in settings:
        ways = ("tidelog", *(["in JAX"] if OURS[setting][1] == CARTPOLE else []))
        few = OURS[setting][0].num_envs < 16  # a process for each of 64 copies is only slower
        commands = {way: words_of(work, setting, way) for way in ways}
        commands |= {way: [peer_python, str(SCRIPT), setting, way] for way in (PEERS if few else PEERS[:2])}
        found[setting] = compared(commands, rounds, seconds)
        print(setting, found[setting], flush=True)
    keep("ppg_speed_sb3", COMMAND, {"cores": os.cpu_count(), "rounds": rounds, "seconds": seconds, "settings": found})
