"""d3rlpy's part of `benchmarks.peers_learning`: trains on arrays from a file and prints one mean return a seed.

Run by that study with the Python of an environment with torch, d3rlpy and gymnasium; it needs no tidelog.
"""

import json
import sys

import d3rlpy
import gymnasium
import numpy as np
import torch
from d3rlpy.preprocessing import MinMaxActionScaler, ReturnBasedRewardScaler, StandardObservationScaler


def main(name: str, file: str, steps: int, seeds: int, played: int) -> None:
    """Train once for each seed with the settings of the study."""
    torch.set_num_threads(1)
    rows = np.load(file)
    ends = rows["truncated"].astype(float)
    data = d3rlpy.dataset.MDPDataset(
        rows["observation"], rows["action"], rows["reward"], np.zeros(len(ends)), timeouts=ends
    )
    scalers = {
        "observation_scaler": StandardObservationScaler(),
        "action_scaler": MinMaxActionScaler(minimum=np.array([-2.0]), maximum=np.array([2.0])),
    }
    rewards = {"reward_scaler": ReturnBasedRewardScaler(multiplier=1000.0)}
    configs = {
        "iql": lambda: d3rlpy.algos.IQLConfig(weight_temp=3.0, max_weight=100.0, expectile=0.7, **scalers, **rewards),
        "bcq": lambda: d3rlpy.algos.BCQConfig(**scalers),
        "bc": lambda: d3rlpy.algos.BCConfig(**scalers),
    }
    environment, returns = gymnasium.make("Pendulum-v1"), []
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
                action = np.clip(algorithm.predict(np.asarray(seen, np.float32)[None])[0], -2.0, 2.0)
                seen, reward, terminated, truncated, _ = environment.step(action)
                total, ended = total + float(reward), terminated or truncated
        returns.append(total / played)
    print(json.dumps(returns))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
