"""PPO of Stable-Baselines3 with the settings of `benchmarks/sb3_ppo.py`; runs where it is, without tidelog.

`python sb3_torch.py SETTING WAY`: WAY is `one-thread` or `all-threads` with environments in this process, or
`processes`, where each environment has a process of its own. Prints a line of facts, then, for every line with a number
of seconds that it reads, how many decisions were made and learnt from in that time, in whole rounds.
"""

import sys

import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from turns import answer

SETTINGS = {  # environment, copies, steps, epochs, minibatch, learning rate
    "two-networks": ("CartPole-v1", 64, 128, 4, 2_048, 2.5e-3),
    "small-minibatches": ("CartPole-v1", 64, 128, 10, 64, 2.5e-3),
    "hopper": ("Hopper-v5", 4, 512, 10, 64, 3e-4),
}


def main(setting: str, way: str) -> None:
    """Answer how many decisions are made and learnt from in so many seconds."""
    environment, copies, steps, epochs, minibatch, rate = SETTINGS[setting]
    torch.set_num_threads(1 if way == "one-thread" else torch.get_num_threads())
    kind = SubprocVecEnv if way == "processes" else DummyVecEnv
    model = PPO(
        "MlpPolicy", make_vec_env(environment, n_envs=copies, vec_env_cls=kind), n_steps=steps, n_epochs=epochs,
        batch_size=minibatch, gamma=0.99, learning_rate=rate, device="cpu", seed=0,
    )  # fmt: skip
    size = copies * steps
    model.learn(size)
    versions = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    facts = versions | {"threads": torch.get_num_threads()}
    answer(facts, lambda: model.learn(size, reset_num_timesteps=False), counts=size)


if __name__ == "__main__":
    main(*sys.argv[1:])
