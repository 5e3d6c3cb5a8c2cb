"""IQL on a small mixed-quality Pendulum log, then 20,000 decisions online; each seed with a log of its own.

`python -m benchmarks fine_tuning`. The logs are those of `benchmarks/mixed_quality.py`, 30 episodes each; IQL's
locomotion preset, fine-tuning at its defaults (half of each minibatch from the log, an update a decision); nothing was
tuned. Returns are deterministic play, the same 20 episodes at every report.
"""

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval
from benchmarks.mixed_quality import PENDULUM as ENVIRONMENT
from benchmarks.mixed_quality import pendulum_log

PLAYED_IN, EPISODES, OFFLINE, ONLINE, EVERY, SEEDS, PLAYED = f"jax:{ENVIRONMENT}", 30, 10_000, 20_000, 2_000, 5, 20
COMMAND = "python -m benchmarks fine_tuning"


def tuned(seed: int) -> tuple[float, float, list[tuple[int, float]]]:
    """The mean return of the log, of the policy learnt from it, and the curve online."""
    log = pendulum_log(seed, EPISODES)
    run = tl.fit(tl.IQL.preset("locomotion"), log, OFFLINE, seeds=[seed], scale="none")
    offline = float(tl.rollout(run.policy(), ENVIRONMENT, PLAYED, seed=0).mean())
    gone_on = tl.finetune(run, PLAYED_IN, ONLINE, evaluate={ENVIRONMENT: PLAYED}, eval_every=EVERY)
    curve = [(row["decisions"], row[f"play/{ENVIRONMENT}"]) for row in gone_on.metrics]
    return log.statistics().returns["mean"], offline, curve


def study() -> dict:
    """Every seed's curve, and at each report the difference from the seed's own offline policy."""
    behavior_policy, offline, curves = zip(*(tuned(seed) for seed in range(SEEDS)), strict=True)
    gained = np.asarray([[worth - start for _, worth in curve] for start, curve in zip(offline, curves, strict=True)])
    content = {
        "env": ENVIRONMENT,
        "episodes": EPISODES,
        "offline_updates": OFFLINE,
        "decisions": [at for at, _ in curves[0]],
        "logger": behavior_policy,
        "offline": offline,
        "curves": curves,
        "gained": gained[:, -1].tolist(),
        "interval": seed_interval(gained[:, -1].tolist()),
        "along_the_way": [seed_interval(column.tolist()) for column in gained.T],
    }
    keep("fine_tuning_pendulum", COMMAND, content)
    return {name: content[name] for name in ("offline", "gained", "interval", "along_the_way")}
