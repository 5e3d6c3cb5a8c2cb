"""IQL against behaviour cloning on mixed-quality Pendulum logs, paired over seeds, each seed with a log of its own.

A log is 100 episodes: a third by a swing-up controller, a third by the same controller weakened and disturbed, a third
random. Settings: IQL's locomotion preset, BC's defaults; nothing was tuned on these logs.
"""

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.problems import recorded
from tidelog.envs import make

ENVIRONMENT, EPISODES, STEPS, SEEDS, PLAYED = "Pendulum-v1", 100, 20_000, 10, 50
COMMAND = "pytest -m slow tests/learns/test_studies.py -k pendulum"


def pendulum_controller(observation: np.ndarray, strength: float = 1.0) -> np.ndarray:
    """Torque for gymnasium's Pendulum-v1: `[W, 3]` (cosine, sine, angular speed) to `[W, 1]` newton metres in [-2, 2].

    Swings up by energy pumping and holds upright by a proportional-derivative law; `strength` scales the torque:
    1 is good (mean return above -300), 0 does nothing, and values between them give logs of mixed quality.
    """
    cosine, sine, speed = (observation[:, column].astype(np.float64) for column in range(3))
    angle = np.arctan2(sine, cosine)
    missing = 30.0 * (1.0 - cosine) / 2.0 - speed**2 / 2.0
    pump = 2.0 * np.where(speed == 0.0, 1.0, np.sign(speed)) * np.sign(missing)
    hold = -(16.0 * angle + 4.0 * speed)
    torque = np.where(np.abs(angle) < 0.6, hold, pump)
    return (strength * np.clip(torque, -2.0, 2.0)).astype(np.float32)[:, None]


def mixed_log(seed: int, episodes: int = EPISODES) -> tl.Log:
    """Copies of the environment in three groups, each with its own player; torque is cut at the bounds."""
    strength = np.asarray([1.0, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4, 0.0, 0.0, 0.0])[:, None]
    noise = np.asarray([0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.0, 0.0, 0.0])[:, None]

    def act(observed, generator):
        seen = observed.observation["observation"]
        steered = np.concatenate(
            [pendulum_controller(seen[i : i + 1], float(strength[i, 0])) for i in range(len(seen))]
        )
        random = generator.uniform(-2.0, 2.0, steered.shape)
        disturbed = steered + noise * generator.standard_normal(steered.shape)
        torque = np.where(strength > 0, disturbed, random)
        return np.clip(torque, -2.0, 2.0).astype(np.float32), None

    return recorded(make(ENVIRONMENT, 10), act, episodes, seed)


def study() -> dict:
    """Train both on each log and keep mean returns, their differences and the behaviour policy's."""
    found = {"iql": [], "bc": [], "logger": []}
    for seed in range(SEEDS):
        log = mixed_log(seed)
        found["logger"].append(log.statistics().returns["mean"])
        for name, algorithm in {"iql": tl.IQL.preset("locomotion"), "bc": tl.BC()}.items():
            run = tl.fit(algorithm, log, STEPS, seeds=[seed], scale="none")
            found[name].append(float(tl.rollout(run.policy(), ENVIRONMENT, PLAYED, seed=100 + seed).mean()))
    difference = [i - b for i, b in zip(found["iql"], found["bc"], strict=True)]
    found |= {"difference": difference, "interval": seed_interval(difference), "steps": STEPS, "episodes": EPISODES}
    keep("pendulum_iql_bc", COMMAND, found)
    return found
