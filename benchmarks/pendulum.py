"""IQL against behaviour cloning on mixed-quality Pendulum logs, paired over seeds, each seed with a log of its own.

A log is 100 episodes: a third by a swing-up controller, a third by the same controller weakened and disturbed, a third
random. Settings: IQL's locomotion preset, BC's defaults; nothing was tuned on these logs.
"""

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from tidelog.envs import make, play
from tidelog.envs.toys import pendulum_controller
from tidelog.policies.rollout import log_of

ENVIRONMENT, EPISODES, STEPS, SEEDS, PLAYED = "Pendulum-v1", 100, 20_000, 10, 50
COMMAND = "pytest -m slow tests/learns/test_studies.py -k pendulum"


def mixed_log(seed: int, episodes: int = EPISODES) -> tl.Log:
    """Copies of the environment in three groups, each with its own player; torque is cut at the bounds."""
    environment = make(ENVIRONMENT, 10)
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

    return log_of(environment.spec, play(environment, act, episodes, seed))


def study() -> dict:
    """Train both on each log and keep mean returns, their differences and the logger's."""
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


if __name__ == "__main__":
    print(study())
