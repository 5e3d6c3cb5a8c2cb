"""Two settings of `benchmarks/ppg_speed.py` in Stable-Baselines3, in a virtual environment of its own.

`python -m benchmarks.sb3_ppo FOLDER` makes the environment in FOLDER (torch 2.13.0 and stable-baselines3), runs this
file in it, and keeps decisions a second while learning, after one rollout of warming up, with one thread and with all.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENTS, STEPS, REPEATS = 64, 128, 5
SETTINGS = {
    "ppo_two_networks": (4, 2_048, 3),
    "ppo_small_minibatches": (10, 64, 1),
}  # epochs, minibatch, rollouts timed
PACKAGES = ("torch==2.13.0", "stable-baselines3")
COMMAND = "python -m benchmarks.sb3_ppo FOLDER"


def measure() -> dict:
    """Inside that environment: PPO, two networks of 64 x 64 tanh, CPU."""
    import stable_baselines3
    import torch

    threads = sorted({1, torch.get_num_threads()})
    found = {name: {str(count): rates(count, *how) for count in threads} for name, how in SETTINGS.items()}
    return {**found, "torch": torch.__version__, "stable_baselines3": stable_baselines3.__version__}


def rates(threads: int, epochs: int, minibatch: int, rollouts: int) -> dict:
    """Decisions a second, the median of some repeats and their range."""
    import time

    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(threads)
    size = ENVIRONMENTS * STEPS
    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=ENVIRONMENTS), n_steps=STEPS, n_epochs=epochs,
        batch_size=minibatch, gamma=0.99, learning_rate=2.5e-3, device="cpu", seed=0,
    )  # fmt: skip
    model.learn(size)
    found = []
    for _ in range(REPEATS):
        begin = time.monotonic()
        model.learn(rollouts * size)
        found.append(rollouts * size / (time.monotonic() - begin))
    return {"median": sorted(found)[REPEATS // 2], "min": min(found), "max": max(found)}


def main(folder: Path) -> None:
    """Make the environment where it is not there yet, measure in it, and keep what it tells."""
    from benchmarks.keep import keep

    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    inside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run([python, __file__, "--inside"], check=True, env=inside, stdout=subprocess.PIPE)
    found = json.loads(told.stdout)
    keep("ppg_speed_sb3", COMMAND, {"environments": ENVIRONMENTS, "rollout_steps": STEPS, **found})
    print(found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(measure()))
    else:
        main(Path(sys.argv[1]))
