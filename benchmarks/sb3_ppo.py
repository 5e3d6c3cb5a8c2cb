"""The setting of `benchmarks/ppg_speed.py` in Stable-Baselines3, in a virtual environment of its own.

`python benchmarks/sb3_ppo.py FOLDER` makes the environment in FOLDER (torch 2.13.0 and stable-baselines3), runs this
file in it, and prints one line of JSON: decisions a second while learning, after one rollout of warming up.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENTS, STEPS, EPOCHS, MINIBATCHES, ROLLOUTS = 64, 128, 4, 4, 8
PACKAGES = ("torch==2.13.0", "stable-baselines3")


def measure() -> dict:
    """Inside that environment: PPO, two networks of 64 x 64 tanh, CPU."""
    import time

    import stable_baselines3
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    size = ENVIRONMENTS * STEPS
    model = PPO(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=ENVIRONMENTS), n_steps=STEPS, n_epochs=EPOCHS,
        batch_size=size // MINIBATCHES, gamma=0.99, learning_rate=2.5e-3, device="cpu", seed=0,
    )  # fmt: skip
    model.learn(size)
    begin = time.monotonic()
    model.learn(ROLLOUTS * size)
    rate = ROLLOUTS * size / (time.monotonic() - begin)
    versions = {"torch": torch.__version__, "stable_baselines3": stable_baselines3.__version__}
    return {"decisions_per_second": rate, "threads": torch.get_num_threads(), **versions}


def main(folder: Path) -> int:
    """Make the environment where it is not there yet, and measure in it."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    inside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, __file__, "--inside"], check=False, env=inside).returncode


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        print(json.dumps(measure()))
    else:
        sys.exit(main(Path(sys.argv[1])))
