"""PPG against PPO on pictures, at equal decisions: the vault, 16 by 16, whose reward comes long after the choice.

`python -m benchmarks pictures`. PPO is the published baseline (one trunk, 3 epochs, no auxiliary phase); PPG has two
networks and an auxiliary phase every 8 rounds, and everything else alike. What a policy is worth is exact: the share of
episodes in which its samples reach the goal, from the problem's arrays and the policy's probabilities in all states.
Settings are those that served PPO best on seed 100, which is not reported.

`python -m benchmarks pictures shifts`: IQL from few episodes of a good policy that moves at random in 3 of 10
decisions, with pictures as they are and moved at random by 1 or 2 pixels (`picture_shift`). Nothing was chosen on
these logs.
"""

import time
from typing import Any, Literal

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.problems import table_log
from benchmarks.spread import scratch, spread
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
SHIFTS, EPISODES, RANDOM, UPDATES = (0, 1, 2), (30, 100), 0.3, (2_000, 8_000)
LEARNER = {"discount": 0.97, "batch_size": 64, "convolutions": "small", "hidden": (64,), "temperature": 10.0}


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


def shifted(episodes: int, seed: int) -> dict[str, Any]:
    """The worth of what IQL learns from one log, by the shift of its pictures, after some updates and after more."""
    problem = vault()
    best = problem.optimal(LEARNER["discount"])[1]
    behavior_policy = (1.0 - RANDOM) * (best if best.ndim == 2 else best[0]) + RANDOM / 4
    log = table_log(problem, behavior_policy, episodes, 500 + seed, 50)
    worths = {}
    for shift in SHIFTS:
        run = tl.fit(
            tl.IQL(**LEARNER, picture_shift=shift), log, UPDATES[-1], [seed], eval_every=UPDATES[0], train=False
        )
        reports = [(run.done, worth(run.policy())) for _ in run.stream()]
        worths[str(shift)] = [value for updates, value in reports if updates in UPDATES]
    return {"episodes": episodes, "seed": seed, "behaviour": problem.value_of(behavior_policy), "worth": worths}


def shift_study(workers: int) -> dict[str, Any]:
    """Every log with every shift; kept with intervals of the gain over none."""
    calls = [(shifted, episodes, seed) for episodes in EPISODES for seed in SEEDS]
    rows = spread(calls, scratch("picture-shifts"), workers)
    table = []
    for episodes in EPISODES:
        mine = [row for row in rows if row["episodes"] == episodes]
        for i, updates in enumerate(UPDATES):
            for shift in map(str, SHIFTS):
                values = [row["worth"][shift][i] for row in mine]
                gains = [row["worth"][shift][i] - row["worth"]["0"][i] for row in mine]
                table.append({"episodes": episodes, "updates": updates, "shift": int(shift),
                              "worth": seed_interval(values), "gain": seed_interval(gains)})  # fmt: skip
    content = {"seeds": SEEDS, "random": RANDOM, "behaviour": rows[0]["behaviour"], "settings": LEARNER}
    keep("picture_shifts", f"{COMMAND} shifts", content, table=table, logs=rows)
    return {
        f"{one['episodes']} episodes, {one['updates']} updates, {one['shift']} pixels": one["gain"] for one in table
    }


def study(name: Literal["ppg", "shifts"] = "ppg", /, workers: int = 2) -> dict:
    if name == "shifts":
        return shift_study(workers)
    chance = vault().value_of(np.full((vault().states, 4), 0.25))
    found = {name: played(algorithm) for name, algorithm in SETTINGS.items()}
    told = {"env": "jax:vault", "steps": STEPS, "every": EVERY, "seeds": SEEDS, "chance": chance, **found}
    for name in ("final", "mean"):
        gained = [a - b for a, b in zip(found["ppg"][name], found["ppo"][name], strict=True)]
        told |= {f"{name}_gained": gained, f"{name}_gained_interval": seed_interval(gained)}
    keep("pictures_vault", COMMAND, told)
    return {name: told[f"{name}_gained_interval"] for name in ("final", "mean")}
