"""`preset="auto"` in environments against the constructor's defaults: PPG at equal decisions, seed by seed.

`python -m benchmarks.environment_preset [ENV ...]` keeps `benchmarks/results/environment_preset.json`: mean returns of
deterministic and of sampled play of the final policy, 20 episodes a seed, and intervals of the differences over seeds.
None of these environments was used to choose a preset: those were chosen on CartPole, Pendulum and Hopper.
"""

import importlib.util
import sys

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.side_by_side import side_by_side

SEEDS, EPISODES, DECISIONS = [0, 1, 2, 3, 4], 20, 100_000
ENVIRONMENTS = ("Acrobot-v1", "FrozenLake-v1", "Taxi-v3", "InvertedPendulum-v5", "Reacher-v5", "HalfCheetah-v5")
NEEDS_MUJOCO = ("InvertedPendulum-v5", "Reacher-v5", "HalfCheetah-v5")


def played(settings: str, env: str) -> dict:
    """Learn with the suggested or the constructor's settings, and play the final policies."""
    algorithm = tl.suggest(tl.PPG, env).algorithm if settings == "auto" else tl.PPG()
    run = tl.learn(algorithm, env, DECISIONS, SEEDS)
    returns = {}
    for way, sampled in (("deterministic", False), ("sampled", True)):
        returns[way] = [
            float(tl.rollout(run.policy(seed=s), env, EPISODES, seed=1_000 + s, sample=sampled).mean()) for s in SEEDS
        ]
    return {"env": env, "settings": settings, "decisions": run.done, "returns": returns}


def main(*names: str) -> None:
    """Play every environment with both settings and keep the returns."""
    has_mujoco = importlib.util.find_spec("mujoco") is not None
    known = [name for name in names or ENVIRONMENTS if has_mujoco or name not in NEEDS_MUJOCO]
    found = side_by_side(played, [(settings, env) for env in known for settings in ("auto", "default")])
    rows = []
    for auto, default in zip(found[::2], found[1::2], strict=True):
        row = {"env": auto["env"], "decisions": [auto["decisions"], default["decisions"]]}
        for way in ("deterministic", "sampled"):
            ours, theirs = auto["returns"][way], default["returns"][way]
            difference = [a - b for a, b in zip(ours, theirs, strict=True)]
            row[way] = {"auto": ours, "default": theirs, "difference": list(seed_interval(difference))}
        rows.append(row)
        print(row["env"], {way: row[way]["difference"] for way in ("deterministic", "sampled")}, flush=True)
    content = {"seeds": SEEDS, "episodes": EPISODES, "steps": DECISIONS}
    print(keep("environment_preset", "python -m benchmarks.environment_preset", content, environments=rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
