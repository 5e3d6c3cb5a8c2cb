"""Judges of other packages, asked in an environment of their own: `python peer_judges.py JUDGE FOLDER OUT`.

Reads each log FOLDER/*.npz and appends a line of JSON to OUT. Imports nothing of tidelog. Each package is used as its
own documentation shows it; what that is stands in each function. A log of `N` rows, `C` contexts and `A` actions holds
`context` [N, C] one-hot, `action` [N], `reward` [N], `target` [N, A] the policy's probabilities, `episode` [N], `step`
[N], and `propensity` [N] where it was recorded. *Better* is said where the 95% interval of the policy's value lies
above the behaviour policy's mean, *worse* where it lies below.
"""

import importlib.metadata
import json
import sys
import time
from pathlib import Path

import numpy as np

SEED, LEVEL, SAMPLES = 0, 0.95, 1000


class Unreadable(Exception):
    """The package has no way to read such a log."""


def by_interval(low, high, mean):
    """The decision of an interval, as a row."""
    said = "better" if low > mean else "worse" if high < mean else "no difference shown"
    return {"decision": said, "interval": [float(low), float(high)], "mean": float(mean)}


def _one_step(log):
    if log["step"].max() > 0:
        raise Unreadable("it judges single decisions")


def _reward_model(log, model_class):
    """Cross-fitted rewards [N, A, 1] by a random forest, as in the package's own benchmarks."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    yes_or_no = set(np.unique(log["reward"])) == {0.0, 1.0}
    forest = RandomForestClassifier if yes_or_no else RandomForestRegressor
    model = model_class(
        n_actions=log["target"].shape[1],
        base_model=forest(n_estimators=30, max_depth=5, min_samples_leaf=10, random_state=SEED),
    )
    known = {name: log[name] for name in ("context", "action", "reward")}
    return model.fit_predict(**known, n_folds=3, random_state=SEED)


def _interval(log, estimator, name, more=None, **known):
    """The decision of a bootstrap of 1,000 of one of Open Bandit Pipeline's estimators, with cross-fitted rewards."""
    from obp.ope import OffPolicyEvaluation, RegressionModel

    feedback = {
        "n_rounds": len(log["action"]), "n_actions": log["target"].shape[1], "action": log["action"],
        "reward": log["reward"], "context": log["context"], **known,
    }  # fmt: skip
    evaluation = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[estimator])
    found = evaluation.estimate_intervals(
        action_dist=log["target"][:, :, None], estimated_rewards_by_reg_model=_reward_model(log, RegressionModel),
        alpha=1.0 - LEVEL, n_bootstrap_samples=SAMPLES, random_state=SEED, **(more or {}),
    )[name]  # fmt: skip
    return by_interval(found["95.0% CI (lower)"], found["95.0% CI (upper)"], log["reward"].mean())


def obp(log):
    """Doubly robust with a cross-fitted reward model; bootstrap of 1,000."""
    from obp.ope import DoublyRobust

    _one_step(log)
    if "propensity" not in log:
        raise Unreadable("it needs recorded propensities")
    return _interval(log, DoublyRobust(), "dr", position=np.zeros(len(log["action"]), int), pscore=log["propensity"])


def sb_obp(log):
    """Self-normalised doubly robust with a cross-fitted reward model; unknown propensities by its own estimator."""
    from obp.ope import PropensityScoreEstimator, SelfNormalizedDoublyRobust
    from sklearn.linear_model import LogisticRegression

    _one_step(log)
    if "propensity" in log:
        estimator = SelfNormalizedDoublyRobust(use_estimated_pscore=False)
        return _interval(log, estimator, "sndr", position=None, pscore=log["propensity"])
    clone = PropensityScoreEstimator(
        n_actions=log["target"].shape[1], len_list=1, base_model=LogisticRegression(max_iter=1000)
    )
    known = {name: log[name] for name in ("action", "context")}
    more = {"estimated_pscore": clone.fit_predict(**known, n_folds=3, random_state=SEED)}
    return _interval(log, SelfNormalizedDoublyRobust(use_estimated_pscore=True), "sndr", more, position=None)


def scope_rl(log):
    """Self-normalised per-decision importance sampling, bootstrap of 1,000.

    Its doubly robust estimators need a critic of d3rlpy for each log and policy, which is left out. All its episodes
    are equally long: shorter ones are filled up with steps of reward 0 that policy and behaviour policy take alike. By
    default it drops the reward of the very step that ends an episode; here it keeps it, or one-step logs would be worth
    0.
    """
    from scope_rl.ope import OffPolicyEvaluation
    from scope_rl.ope.discrete import SelfNormalizedPDIS

    if "propensity" not in log:
        raise Unreadable("it needs recorded propensities")
    n, steps, actions = int(log["episode"].max()) + 1, int(log["step"].max()) + 1, log["target"].shape[1]
    shape, at = (n, steps), (log["episode"], log["step"])
    action, reward, pscore = np.zeros(shape, int), np.zeros(shape), np.ones(shape)
    target, state = np.zeros((*shape, actions)), np.zeros((*shape, log["context"].shape[1]))
    target[..., 0] = 1.0
    for filled, name in ((action, "action"), (reward, "reward"), (pscore, "propensity"), (target, "target")):
        filled[at] = log[name]
    state[at] = log["context"]
    done = np.tile(np.arange(steps) == steps - 1, n)
    dataset = {
        "size": n * steps, "n_trajectories": n, "step_per_trajectory": steps, "action_type": "discrete",
        "n_actions": actions, "action_dim": None, "action_keys": None, "action_meaning": None,
        "state_dim": state.shape[-1], "state_keys": None, "state": state.reshape(n * steps, -1),
        "action": action.ravel(), "reward": reward.ravel(), "done": done, "terminal": done, "info": {},
        "pscore": pscore.ravel(), "behavior_policy": "logger", "dataset_id": 0,
    }  # fmt: skip
    inputs = {
        "policy": {
            "evaluation_policy_action": None, "evaluation_policy_action_dist": target.reshape(n * steps, actions),
            "state_action_value_prediction": None, "initial_state_value_prediction": None,
            "state_action_marginal_importance_weight": None, "state_marginal_importance_weight": None,
            "on_policy_policy_value": None, "gamma": 1.0, "behavior_policy": "logger",
            "evaluation_policy": "policy", "dataset_id": 0,
        }
    }  # fmt: skip
    evaluation = OffPolicyEvaluation(
        logged_dataset=dataset, ope_estimators=[SelfNormalizedPDIS()], disable_reward_after_done=False
    )
    found = evaluation.estimate_intervals(
        inputs, alpha=1.0 - LEVEL, ci="bootstrap", n_bootstrap_samples=SAMPLES, random_state=SEED
    )["policy"]["snpdis"]
    low, high = (value for name, value in found.items() if "CI" in name)
    return by_interval(low, high, reward.sum(1).mean())


class _Asked:
    """A model whose prediction makes skdr-eval's policy exactly ours: it takes actions in proportion to 1 over it."""

    def __init__(self, chances):
        self.chances = chances

    def fit(self, features, outcome):
        return self

    def predict(self, features):
        """[B]: one row of context, then of action, one-hot."""
        contexts = self.chances.shape[0]
        place = features[:, :contexts].argmax(1), features[:, contexts:].argmax(1)
        return 1.0 / np.maximum(self.chances[place], 1e-9)


def _skdr_artifact(log):
    import pandas as pd
    import skdr_eval

    _one_step(log)
    contexts, actions = log["context"].shape[1], log["target"].shape[1]
    which, chances = log["context"].argmax(1), np.full((contexts, actions), 1.0 / actions)
    chances[which] = log["target"]
    table = pd.DataFrame({f"cli_{c}": log["context"][:, c] for c in range(contexts)})
    table["arrival_ts"] = np.arange(len(which), dtype=float)
    for action in range(actions):
        table[f"a{action}_elig"] = 1
    table["action"] = [f"a{action}" for action in log["action"]]
    table["reward"] = log["reward"]
    return skdr_eval.evaluate_sklearn_models(
        table, {"policy": _Asked(chances)}, fit_models=False, policy_train="all", ci_bootstrap=True, y_col="reward",
        random_state=SEED,
    )  # fmt: skip


def skdr_eval(log):
    """Its interval (SNDR, moving blocks) and its own advice: deploy, A/B test, or do not deploy.

    Its advice counts as *better* where it is to deploy, and as *unsupported* where its diagnostics forbid it.
    """
    artifact, mean = _skdr_artifact(log), float(log["reward"].mean())
    line = artifact.report[artifact.report["estimator"] == "SNDR"].iloc[0]
    found = by_interval(line["ci_lower"], line["ci_upper"], mean)
    advice = artifact.recommendation("policy", estimator="SNDR", baseline=mean).verdict
    said = {"deploy": "better", "ab_test": "no difference shown"}.get(advice, "unsupported")
    return {**found, "advice": advice, "advised": said}


JUDGES = {"obp": obp, "sb-obp": sb_obp, "scope-rl": scope_rl, "skdr-eval": skdr_eval}


def main(name, folder, out):
    """Judge every log that has no line yet."""
    known = {json.loads(line)["log"] for line in out.read_text().splitlines()} if out.exists() else set()
    version = importlib.metadata.version(name)
    with out.open("a") as file:
        for path in sorted(folder.glob("*.npz")):
            if path.stem in known:
                continue
            with np.load(path, allow_pickle=False) as stored:
                log = {column: stored[column] for column in stored.files}
            began, row = time.perf_counter(), {"log": path.stem, "version": version}
            try:
                row |= JUDGES[name](log)
            except Unreadable as reason:
                row |= {"decision": "unreadable", "why": str(reason)}
            except Exception as error:  # whatever a package raises is its answer
                row |= {"decision": "error", "why": f"{type(error).__name__}: {error}"[:300]}
            file.write(json.dumps({**row, "seconds": time.perf_counter() - began}) + "\n")
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
