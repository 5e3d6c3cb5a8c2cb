"""Population-based training against the same population without it, on two small problems with known values.

    python -m benchmarks.population_training          # about four minutes of two cores

Each repetition collects a log of its own and trains one population twice: with exploit and explore, and without. The
last policy of the best member by the metric of selection is measured, in both cases.

- imitation: BC with five learning rates from 1e-5 to 1e-1 and two seeds each, on 300 episodes of a policy; the metric
  is the held-out loss of the episodes that choose, the result that loss on 2,000 other episodes (less is better).
- value: IQL with temperatures 0.3 to 10 and two learning rates of the actor, on 600 episodes of uniform decisions; the
  metric is a weighted importance sampling estimate on 200 episodes, the result the mean return of 2,000 simulated
  episodes (more is better).

The difference (with minus without) has a 95% Student-t interval over the repetitions. Results:
benchmarks/results/population_training.json.
"""

import argparse
import json
import sys

import numpy as np

import tidelog as tl
from benchmarks.keep import keep, seed_interval

SIZES = {"hidden": (32, 32), "embedding": 4, "batch_size": 64}
RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
TEMPERATURES = (0.3, 1.0, 3.0, 10.0)
ACTOR_RATES = (1e-4, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=200, help="updates between two exploits")
    options = parser.parse_args()
    content: dict = {"steps": options.steps, "every": options.every, "problems": {}}
    for name, problem in (("imitation", imitation), ("value", value)):
        pairs = [problem(seed, options.steps, options.every) for seed in range(options.repetitions)]
        with_, without = ([pair[place] for pair in pairs] for place in (0, 1))
        gain = seed_interval([one - two for one, two in pairs])
        content["problems"][name] = {
            "with": [round(one, 4) for one in with_],
            "without": [round(one, 4) for one in without],
            "mean_with": round(float(np.mean(with_)), 4),
            "mean_without": round(float(np.mean(without)), 4),
            "difference": [round(gain.estimate, 4), round(gain.low, 4), round(gain.high, 4)],
        }
        print(json.dumps({name: content["problems"][name]}), flush=True)
    command = " ".join(["python -m benchmarks.population_training", *sys.argv[1:]])
    keep("population_training", command, content)


def imitation(seed: int, steps: int, every: int) -> tuple[float, float]:
    """Losses on new episodes, with and without."""
    sharp = tl.IQL(**SIZES, temperature=30.0, reward_scaling="none")
    taught = tl.collect("treatment", episodes=300, seed=1000 + seed)
    teacher = tl.fit(sharp, taught, 1_000, progress=False).policy()
    log = tl.collect("treatment", teacher, episodes=300, seed=seed, sample=True)
    fresh = tl.collect("treatment", teacher, episodes=2_000, seed=5_000 + seed, sample=True)
    population = [tl.BC(**SIZES, learning_rate=rate) for rate in RATES]
    metric = "held_out/imitation_loss"
    pbt = tl.PopulationBasedTraining(every=every, metric=metric, vary=("learning_rate",))

    def loss(policy: tl.Policy) -> float:
        chosen = policy.probabilities(fresh.features())[np.arange(fresh.steps), np.asarray(fresh.action)]
        return float(-np.log(chosen).mean())

    both = [
        tl.fit(population, log, steps, seeds=2, held_out=0.4, selection_share=0.5, population=one, best=metric,
               every=every, progress=False)
        for one in (pbt, None)
    ]  # fmt: skip
    with_, without = (loss(best(run, metric, -1.0)) for run in both)
    return with_, without


def value(seed: int, steps: int, every: int) -> tuple[float, float]:
    """Mean simulated returns, with and without."""
    log, chooses = (tl.collect("treatment", episodes=count, seed=number) for count, number in
                    ((600, seed), (200, 2_000 + seed)))  # fmt: skip
    starts, logged = chooses.starts, np.asarray(chooses.action)
    returns = np.add.reduceat(np.asarray(chooses.reward, float), starts[:-1])
    features, propensity = chooses.features(), np.asarray(chooses.propensity)

    def estimate(policy: tl.Policy) -> float:
        ratio = policy.probabilities(features)[np.arange(len(logged)), logged] / propensity
        weight = np.multiply.reduceat(ratio, starts[:-1])
        return float((weight * returns).sum() / weight.sum())

    population = [
        tl.IQL(**SIZES, reward_scaling="none", temperature=temperature, actor_learning_rate=rate,
               critic_learning_rate=1e-3, value_learning_rate=1e-3)
        for temperature in TEMPERATURES for rate in ACTOR_RATES
    ]  # fmt: skip
    pbt = tl.PopulationBasedTraining(
        every=every, metric="value", vary=("temperature", "actor_learning_rate", "critic_learning_rate")
    )
    both = [
        tl.fit(population, log, steps, population=one, evaluate={"value": estimate}, every=every, progress=False)
        for one in (pbt, None)
    ]
    with_, without = (
        float(tl.rollout(best(run, "value", 1.0), "treatment", 2_000, seed=9_000 + seed, sample=True).mean())
        for run in both
    )
    return with_, without


def best(run: tl.Run, metric: str, sign: float) -> tl.Policy:
    """The last policy of the member that is best by the last report."""
    rows = [row for row in run.metrics if row["update"] == run.update]
    return run.policy(member=max(rows, key=lambda row: (sign * row[metric], -row["member"]))["member"])


if __name__ == "__main__":
    main()
