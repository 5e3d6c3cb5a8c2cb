"""PPG against PPO on pictures, at equal decisions: the vault, 16 by 16, whose reward comes long after the choice.

`python -m benchmarks pictures`. PPO is the published baseline (one trunk, 3 epochs, no auxiliary phase); PPG has two
networks and an auxiliary phase every 8 rounds, and everything else alike. What a policy is worth is exact: the share of
episodes in which its samples reach the goal, from the problem's arrays and the policy's probabilities in all states.
Settings are those that served PPO best on seed 100, which is not reported.
"""

import time

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.vault import vault
from tidelog.envs.functional import Finite
from tidelog.training.learn import learn

SEEDS = [0, 1, 2, 3, 4]
STEPS, EVERY = 131_072, 16_384
SHARED = {
    "num_envs": 32, "rollout_steps": 64, "minibatches": 8, "policy_epochs": 3, "value_epochs": 3,
    "discount": 0.99, "learning_rate": 1e-3, "hidden": (), "convolutions": "small", "picture_width": 256,
}  # fmt: skip
SETTINGS = {
    "ppo": tl.PPO(**SHARED),
    "ppg": tl.PPG(**SHARED, policy_iterations=8, auxiliary_minibatch=16, auxiliary_learning_rate=1e-3),
}
COMMAND = "python -m benchmarks pictures"


def worth(policy: tl.Policy) -> float:
    """The exact share of episodes in which a policy's samples reach the goal."""
    chances = np.asarray(policy.probabilities(vault().observations()), float)
    return vault().value_of(chances / chances.sum(1, keepdims=True))


def played(algorithm: tl.PPG) -> dict:
    """Each seed's worth at every report, and the mean over all of them."""
    begin, curves = time.time(), {seed: [] for seed in SEEDS}
    run = learn(algorithm, Finite(vault()), STEPS, SEEDS, eval_every=EVERY, train=False)
    for _ in run.stream():
        if run.done // EVERY > len(curves[SEEDS[0]]):
            for seed in SEEDS:
                curves[seed].append((run.done, worth(run.policy(seed=seed))))
    final = [curve[-1][1] for curve in curves.values()]
    mean = [float(np.mean([value for _, value in curve])) for curve in curves.values()]
    found = {"decisions": run.done, "seconds": time.time() - begin, "final": final, "mean": mean, "curves": curves}
    return found | {f"{name}_interval": seed_interval(found[name]) for name in ("final", "mean")}


def study() -> dict:
    chance = vault().value_of(np.full((vault().states, 4), 0.25))
    found = {name: played(algorithm) for name, algorithm in SETTINGS.items()}
    told = {"env": "jax:vault", "steps": STEPS, "every": EVERY, "seeds": SEEDS, "chance": chance, **found}
    for name in ("final", "mean"):
        gained = [a - b for a, b in zip(found["ppg"][name], found["ppo"][name], strict=True)]
        told |= {f"{name}_gained": gained, f"{name}_gained_interval": seed_interval(gained)}
    keep("pictures_vault", COMMAND, told)
    return {name: told[f"{name}_gained_interval"] for name in ("final", "mean")}
