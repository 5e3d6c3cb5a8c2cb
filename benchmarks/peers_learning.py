"""What IQL, BCQ and BC learn in 12,000 updates beside d3rlpy, one part exchanged at a time, on mixed Pendulum logs.

`python -m benchmarks.peers_learning [--peer-python PYTHON] [--algorithms NAME] [--ways NAME] [--logs N]`, where PYTHON
is that of an environment with torch, d3rlpy and gymnasium. Each part (an algorithm, a way, a log: 10 seeds, some 5
minutes here, 25 in d3rlpy on one core) is saved when it is done; the same command makes those that are missing. The
defaults were chosen on one other log of this kind; these logs, and not those of `benchmarks.pendulum`, check the
choice.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.keep import RESULTS, keep, kept, seed_interval
from benchmarks.pendulum import ENVIRONMENT, mixed_log

NAME, COMMAND = "peers_learning", "python -m benchmarks.peers_learning --peer-python PYTHON"
SCRIPT = Path(__file__).with_name("peers_learning_torch.py")
STEPS, SEEDS, PLAYED, LOGS = 12_000, 10, 20, (100, 101)
PEER = "d3rlpy"
IQL: dict[str, dict[str, Any]] = {  # hyper-parameters of the way, and `scale` of `fit`
    "default": {},
    "rewards by their range": {"reward_scaling": "return-range"},
    "features as they are": {"scale": "none"},
    "both": {"reward_scaling": "return-range", "scale": "none"},
    "constant actor rate": {"actor_schedule": "constant"},
}
WAYS = {"iql": IQL, "bcq": {"default": {}, "features as they are": {"scale": "none"}},
        "bc": {"default": {}, "features as they are": {"scale": "none"}}}  # fmt: skip


def returns(name: str, way: str, log: int) -> list[float]:
    """Mean returns [SEEDS] of the policies of one part, each over the same episodes."""
    settings = dict(WAYS[name][way])
    scale = settings.pop("scale", None)
    algorithm = {"iql": tl.IQL, "bcq": tl.BCQ, "bc": tl.BC}[name](**settings)
    run = tl.fit(algorithm, mixed_log(log), STEPS, seeds=SEEDS, scale=scale, progress=False)
    policies = (run.policy(seed=seed) for seed in range(SEEDS))
    return [float(tl.rollout(policy, ENVIRONMENT, PLAYED, seed=777).mean()) for policy in policies]


def peer_returns(python: str, name: str, log: int, seeds: int) -> list[float]:
    """The same by d3rlpy, in its own environment."""
    data = mixed_log(log)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.npz"
        rows = {"observation": data.transitions.observation["observation"], "action": data.action}
        np.savez(file, **rows, reward=data.reward, truncated=data.truncated)
        words = [python, str(SCRIPT), name, str(file), str(STEPS), str(seeds), str(PLAYED)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: list[float] = json.loads([line for line in done.stdout.splitlines() if line.startswith("[")][-1])
    return found


def main() -> None:
    """Make the missing parts and keep each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python")
    parser.add_argument("--algorithms", nargs="+", default=list(WAYS))
    parser.add_argument("--ways", nargs="+")
    parser.add_argument("--logs", nargs="+", type=int, default=list(LOGS))
    parser.add_argument("--peer-seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    parts = kept(NAME)["parts"] if (RESULTS / f"{NAME}.json").exists() else []
    for log in options.logs:
        for name in options.algorithms:
            for way in options.ways or [*WAYS[name], *([PEER] if options.peer_python else [])]:
                mark = {"algorithm": name, "way": way, "log": log}
                if any(mark.items() <= part.items() for part in parts):
                    continue
                peer = way == PEER
                values = (
                    peer_returns(options.peer_python, name, log, options.peer_seeds)
                    if peer
                    else returns(name, way, log)
                )
                parts.append({**mark, "mean": list(seed_interval(values)), "returns": values})
                keep(NAME, COMMAND, {"steps": STEPS, "played": PLAYED}, parts=parts)
                print(f"{name}, {way}, log {log}: {parts[-1]['mean']}", flush=True)


if __name__ == "__main__":
    main()
