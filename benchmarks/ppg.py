"""PPG and PPO in small environments: CartPole until it is solved, and PPG against PPO at equal decisions.

`python -m benchmarks ppg cartpole | continuous [ENV ...]`. Returns are deterministic play of the final policy, 20
episodes a seed. Settings are the presets; they were chosen on seeds 100 to 102, which are not reported.
"""

from dataclasses import replace
from typing import Literal

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from tidelog.algorithms.ppg import PPO_SETTINGS

SEEDS, EPISODES, SOLVED = [0, 1, 2, 3, 4], 20, 475.0
CARTPOLE = 60_000  # decisions, at most
CONTINUOUS = {"Pendulum-v1": ("classic-control", 150_000), "Hopper-v5": ("mujoco", 300_000)}
COMMAND = "python -m benchmarks ppg"


def as_ppo(algorithm: tl.PPG) -> tl.PPG:
    """The same settings without the auxiliary phase, networks and epochs as they are."""
    return replace(algorithm, auxiliary_epochs=PPO_SETTINGS["auxiliary_epochs"])


def played(algorithm: tl.PPG, env: str, steps: int, every: int) -> dict:
    """Curves of the sampled policy while learning, and the final policies' deterministic returns."""
    run = tl.learn(algorithm, env, steps, SEEDS, eval_every=every)
    final = [float(tl.rollout(run.policy(seed=s), env, EPISODES, seed=1_000 + s).mean()) for s in SEEDS]
    curves = {s: [(r["decisions"], r.get("collect/return")) for r in run.metrics if r["seed"] == s] for s in SEEDS}
    phases = sum(algorithm.phases()[-1].updates(algorithm, i) > 0 for i in range(rounds(algorithm, steps)))
    return {
        "decisions": run.done,
        "returns": final,
        "interval": seed_interval(final),
        "curves": curves,
        "auxiliary_phases": phases if algorithm.auxiliary_epochs else 0,
    }


def rounds(algorithm: tl.PPG, steps: int) -> int:
    """How many rollouts so many decisions are."""
    return -(-steps // (algorithm.num_envs * algorithm.rollout_steps))


def cartpole() -> dict:
    """Both CartPoles with the classic-control preset; the most whole rollouts within the limit."""
    algorithm = tl.PPG.preset("classic-control")
    size = algorithm.num_envs * algorithm.rollout_steps
    steps = CARTPOLE // size * size
    found = {env: played(algorithm, env, steps, size) for env in ("CartPole-v1", "jax:CartPole-v1")}
    content = {"steps": steps, "episodes": EPISODES, "solved": SOLVED, **found}
    keep("ppg_cartpole", f"{COMMAND} cartpole", content)
    return {env: (f["returns"], f["auxiliary_phases"]) for env, f in found.items()}


def continuous(*names: str) -> dict:
    """PPG against PPO, the same preset and decisions, seed by seed."""
    told = {}
    for env in names or CONTINUOUS:
        preset, steps = CONTINUOUS[env]
        algorithm = tl.PPG.preset(preset)
        found = {
            name: played(h, env, steps, steps // 20) for name, h in (("ppg", algorithm), ("ppo", as_ppo(algorithm)))
        }
        difference = [a - b for a, b in zip(found["ppg"]["returns"], found["ppo"]["returns"], strict=True)]
        content = {"env": env, "preset": preset, "steps": steps, **found, "difference": difference}
        content["interval"] = seed_interval(difference)
        keep(f"ppg_{env.lower()}", f"{COMMAND} continuous {env}", content)
        told[env] = {
            "ppg": found["ppg"]["interval"],
            "ppo": found["ppo"]["interval"],
            "difference": content["interval"],
        }
    return told


def study(name: Literal["cartpole", "continuous"], /, *environments: str) -> dict:
    """One of both."""
    return cartpole() if name == "cartpole" else continuous(*environments)
