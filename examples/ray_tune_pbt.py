"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846) of IQL by Ray Tune, over runs of tidelog.

    pip install "ray[tune]"
    python examples/ray_tune_pbt.py [visits.csv columns.toml]

A member trains in rounds. Each round is a run of its own: it starts with the networks and optimiser states of a run of
the round before, and `run.json` names that run and the numbers of the round. After a round, Tune lets the worst members
continue from runs of the best ones, with other numbers. In one round all members draw the same batches.

Three parts of the log: one to learn from, one that compares the members, one that judges the last policy of the best
member. Without arguments the log is simulated. Ray is started for this program alone, out of reach of other machines;
on a cluster, `FOLDER` has to be shared by its nodes. Tune keeps pickles of its own beside the runs; tidelog reads none.
"""

import os
import sys
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

import tidelog as tl

FOLDER = Path("ray-tune-pbt").absolute()
MEMBERS, ROUNDS, STEPS = 4, 5, 200
PARTS = ("actor", "critic", "target_critic", "value", "opt_states")  # of IQL's state


class Member(tune.Trainable):
    """One member of the population; Tune calls `step` for each round, and `load_checkpoint` for a copy."""

    def setup(self, config: dict[str, float]) -> None:
        """Open the two parts of the log, once a process."""
        self.learnt, self.choice = (tl.Log.load(FOLDER / f"{part}.tidelog") for part in ("learnt", "choice"))
        self.start: str | None = None  # the run of the round before

    def step(self) -> dict[str, float]:
        """Train one round; report the lower end of the estimated return on the part that compares."""
        algorithm = tl.IQL(discount=1.0, hidden=(64, 64), actor_schedule="constant", **self.config)
        out, seeds = FOLDER / "runs" / f"{self.trial_id}-{self.iteration}", [self.iteration]
        start = None if self.start is None else dict.fromkeys(PARTS, self.start)
        run = tl.fit(algorithm, self.learnt, STEPS, seeds, out, warm_start=start, progress=False)
        self.start = str(out)
        row = tl.estimate(run.policy(), self.choice, "wdr", sample=True, model="tabular")["wdr"]
        return {"at_least": row.low, "run": self.start}

    def save_checkpoint(self, folder: str) -> dict[str, str | None]:
        """Name the run of the last round."""
        return {"run": self.start}

    def load_checkpoint(self, checkpoint: dict[str, str | None]) -> None:
        """Continue from a run of this member, or of another one."""
        self.start = checkpoint["run"]

    def reset_config(self, config: dict[str, float]) -> bool:
        """Become another member in the same process: nothing is compiled again."""
        self.start = None
        return True


if __name__ == "__main__":
    log = tl.read_log(*sys.argv[1:]) if sys.argv[1:] else tl.collect("treatment", episodes=4_000, seed=0)
    learnt, rest = log.split(0.4, seed=0)
    choice, held_out = rest.split(0.5, seed=0)
    learnt.save(FOLDER / "learnt.tidelog")
    choice.save(FOLDER / "choice.tidelog")

    space = {"temperature": tune.loguniform(0.1, 3.0), "actor_learning_rate": tune.loguniform(1e-4, 1e-2)}
    scheduler = PopulationBasedTraining(
        "training_iteration", "at_least", "max", perturbation_interval=1, hyperparam_mutations=space, synch=True
    )
    settings = tune.TuneConfig(scheduler=scheduler, num_samples=MEMBERS, reuse_actors=True)
    often = tune.CheckpointConfig(checkpoint_frequency=1)
    where = tune.RunConfig(
        storage_path=str(FOLDER), stop={"training_iteration": ROUNDS}, checkpoint_config=often, verbose=0
    )
    if "RAY_ADDRESS" not in os.environ:
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    member = tune.with_resources(Member, {"cpu": 1})
    results = tune.Tuner(member, param_space=space, tune_config=settings, run_config=where).fit()
    best = results.get_best_result("at_least", "max")
    print(f"{len(results)} members, {len(results.errors)} failed; at least {best.metrics['at_least']:.3f}")

    before = run = tl.load_run(best.metrics["run"])
    print("its numbers, from the last round to the first:")
    while before is not None:
        print({name: before.record.configs[0][name] for name in space})
        start = before.record.options.warm_start
        before = None if start is None else tl.load_run(start["actor"])

    verdict = tl.judge(run.policy(), held_out, sample=True, model="tabular", progress=False)
    print(verdict.advice, verdict.paragraph, sep="\n")
