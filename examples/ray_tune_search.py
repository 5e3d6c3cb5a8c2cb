"""Ray Tune proposes hyper-parameters; each trial is a run in a folder of its own, which later commands read.

    pip install "ray[tune]"
    python examples/ray_tune_search.py [visits.csv columns.toml]

Three parts of the log: one to learn from, one that chooses among all trials, one that judges the chosen policy alone.
Without arguments the log is simulated. Ray is started for this program alone, out of reach of other machines; on a
cluster, `FOLDER` has to be shared by its nodes. Tune keeps pickles of its own beside the runs; tidelog reads none.
"""

import os
import sys
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import ray
from ray import tune

import tidelog as tl

FOLDER = Path("ray-tune").absolute()
TRIALS, STEPS = 6, 300


def fit(config: dict[str, float]) -> None:
    """Train one trial, and report the lower end of its estimated return on the part that chooses."""
    algorithm = tl.IQL(discount=1.0, hidden=(64, 64), **config)
    out = FOLDER / tune.get_context().get_trial_id()
    run = tl.fit(algorithm, tl.Log.load(FOLDER / "learnt.tidelog"), STEPS, out=out, progress=False)
    choice = tl.Log.load(FOLDER / "choice.tidelog")
    row = tl.estimate(run.policy(), choice, "wdr", sample=True, model="tabular")["wdr"]
    tune.report({"at_least": row.low, "run": str(out)})


if __name__ == "__main__":
    log = tl.read_log(*sys.argv[1:]) if sys.argv[1:] else tl.collect("treatment", episodes=4_000, seed=0)
    learnt, rest = log.split(0.4, seed=0)
    choice, held_out = rest.split(0.5, seed=0)
    learnt.save(FOLDER / "learnt.tidelog")
    choice.save(FOLDER / "choice.tidelog")

    space = {"temperature": tune.loguniform(0.1, 3.0), "expectile": tune.uniform(0.5, 0.9)}
    settings = tune.TuneConfig(metric="at_least", mode="max", num_samples=TRIALS)
    if "RAY_ADDRESS" not in os.environ:
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    cpu = tune.with_resources(fit, {"cpu": 1})
    results = tune.Tuner(
        cpu, param_space=space, tune_config=settings, run_config=tune.RunConfig(storage_path=str(FOLDER), verbose=0)
    ).fit()
    best = results.get_best_result()
    print(f"{len(results)} trials, {len(results.errors)} failed; the best one: {best.config}")

    policy = tl.load_run(best.metrics["run"]).policy()
    verdict = tl.judge(policy, held_out, sample=True, model="tabular", progress=False)
    print(verdict.advice, verdict.paragraph, sep="\n")
