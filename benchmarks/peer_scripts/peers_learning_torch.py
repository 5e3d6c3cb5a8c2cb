"""d3rlpy's part of `benchmarks/peers_learning.py`: trains on arrays from a file and prints one mean return a seed.

That study runs `peers_learning_torch.py` with the Python of an environment with torch, d3rlpy and gymnasium; it needs
no tidelog.
"""

import json
import sys

import d3rlpy
import gymnasium
import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.preprocessing import MinMaxActionScaler, ReturnBasedRewardScaler, StandardObservationScaler


def main(name: str, task: str, file: str, steps: int, seeds: int, played: int) -> None:
    """Train once for each seed with the settings of the study."""
    torch.set_num_threads(1)
    rows = np.load(file)
    data = d3rlpy.dataset.MDPDataset(
        rows["observation"],
        rows["action"],
        rows["reward"],
        rows["terminated"].astype(float),
        timeouts=rows["truncated"].astype(float),
    )
    environment, returns = gymnasium.make(task), []
    space = environment.action_space
    scalers = {"observation_scaler": StandardObservationScaler()}
    if isinstance(space, gymnasium.spaces.Box):
        scalers["action_scaler"] = MinMaxActionScaler(minimum=space.low, maximum=space.high)
    rewards = {"reward_scaler": ReturnBasedRewardScaler(multiplier=1000.0)}
    algos, layers = d3rlpy.algos, VectorEncoderFactory([128, 128])
    configs = {
        "iql": lambda: algos.IQLConfig(weight_temp=3.0, max_weight=100.0, expectile=0.7, **scalers, **rewards),
        "bcq": lambda: algos.BCQConfig(
            actor_encoder_factory=layers, critic_encoder_factory=layers, imitator_encoder_factory=layers, **scalers
        ),
        "bc": lambda: algos.BCConfig(**scalers),
        "discrete_bcq": lambda: algos.DiscreteBCQConfig(
            learning_rate=3e-4, batch_size=64, target_update_interval=200, **scalers
        ),
        "discrete_bc": lambda: algos.DiscreteBCConfig(learning_rate=3e-4, **scalers),
    }
    for seed in range(seeds):
        d3rlpy.seed(seed)
        algorithm = configs[name]().create(device="cpu:0")
        quiet = d3rlpy.logging.NoopAdapterFactory()
        algorithm.fit(data, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, logger_adapter=quiet)
        total = 0.0
        for episode in range(played):
            seen, _ = environment.reset(seed=777 + episode)
            ended = False
            while not ended:
                action = algorithm.predict(np.asarray(seen, np.float32)[None])[0]
                if isinstance(space, gymnasium.spaces.Box):
                    action = np.clip(action, space.low, space.high)
                seen, reward, terminated, truncated, _ = environment.step(action)
                total, ended = total + float(reward), terminated or truncated
        returns.append(total / played)
    print(json.dumps(returns))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
