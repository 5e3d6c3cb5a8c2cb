"""PPO beside Stable-Baselines3: decisions a second while learning, in turns, on gymnasium's CartPole and Hopper.

`python -m benchmarks sb3_ppo --peer-python PYTHON [--rounds 5] [--seconds 4]`, where PYTHON is that of an environment
with torch and `stable-baselines3` and `gymnasium[mujoco]`; it needs no tidelog. Environments, networks, epochs and
minibatches are the same (`two_networks` and `small_minibatches` of `benchmarks/ppg_speed.py`; on Hopper the preset
`mujoco` without its auxiliary phase). `ahead` plays the next round while it learns from the last one; `in JAX` is
CartPole as a compiled environment. All wait in processes of their own and are measured in turn, in another order every
round; a ratio is that of one round.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.keep import keep
from benchmarks.peers import answer, compared
from benchmarks.ppg_speed import HOPPER, HOPPER_SETTINGS, SETTINGS
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
    size = algorithm.environments * algorithm.rollout_steps
    trainer = learn(algorithm, environment, 10**9, every=10**9, ahead=way == "ahead", train=False)._engine
    trainer.compile()
    rounds = 8 if way == "in JAX" else 1

    def advance() -> int:
        done = trainer.done
        while trainer.done - done < rounds * size:
            trainer.advance(10**6, rounds * size)
        return int(trainer.done - done)

    advance()
    advance()
    answer({}, advance)


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--settings", nargs="+", choices=tuple(OURS), default=list(OURS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--work", nargs=2, metavar=("SETTING", "WAY"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(*asked.work)
        return
    found = {}
    for setting in asked.settings:
        own = [sys.executable, "-m", "benchmarks.sb3_ppo", "--work", setting]
        ways = ("tidelog", "ahead", *(["in JAX"] if OURS[setting][1] == CARTPOLE else []))
        few = OURS[setting][0].environments < 16  # a process for each of 64 copies is only slower
        commands = {way: [*own, way] for way in ways}
        commands |= {way: [asked.peer_python, str(SCRIPT), setting, way] for way in (PEERS if few else PEERS[:2])}
        found[setting] = compared(commands, asked.rounds, asked.seconds)
        print(setting, found[setting], flush=True)
    facts = {"cores": os.cpu_count(), "rounds": asked.rounds, "seconds": asked.seconds}
    keep("ppg_speed_sb3", COMMAND, facts | {"settings": found})


if __name__ == "__main__":
    main()
