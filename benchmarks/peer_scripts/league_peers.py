"""Policy learners of other packages: `python league_peers.py LEARNER FOLDER`, in an environment of their own.

Imports nothing of tidelog. Reads each FOLDER/in/*.npz and writes FOLDER/LEARNER/*.npz, or *.json with the error where
the learner failed; what is written is not made again. An input holds `context` [N, C], `action` [N], `reward` [N],
`propensity` [N] of the training rows, `actions` (their number), `half` [N] 0 or 1, and `test` [M, C]. An output holds
`crossed` [N, A], the probabilities that each row gets from the learner of the other half, and `test` [M, A] from the
learner of all rows. Each package is used as its documentation shows it; what that is stands in each function.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

SEED = 0


def _obp(base):
    """Open Bandit Pipeline's learner by inverse propensities; its rewards must not be negative."""

    def learn(context, action, reward, propensity, actions, new):
        from obp.policy import IPWLearner

        learner = IPWLearner(n_actions=actions, base_classifier=base())
        learner.fit(context=context, action=action, reward=reward - reward.min(), pscore=propensity)
        return learner.predict(context=new)[:, :, 0]

    return learn


def _logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000, random_state=SEED)


def _forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=30, max_depth=5, min_samples_leaf=10, random_state=SEED)


def econml_tree(context, action, reward, propensity, actions, new):
    """EconML's doubly robust policy tree of two questions, with its own models and settings."""
    from econml.policy import DRPolicyTree

    learner = DRPolicyTree(max_depth=2, random_state=SEED)
    learner.fit(reward, action, X=context)
    return np.eye(actions)[learner.predict(new).astype(int)]


LEARNERS = {"obp logistic": _obp(_logistic), "obp forest": _obp(_forest), "econml tree": econml_tree}


def main():
    """Learn on each half and on all rows of every input."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    learn, out = LEARNERS[name], folder / name
    out.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")  # of the packages' own dependencies
    for file in sorted((folder / "in").glob("*.npz")):
        if (out / file.name).exists() or (out / f"{file.stem}.json").exists():
            continue
        data = np.load(file)
        actions, half = int(data["actions"]), data["half"]
        columns = [data[one] for one in ("context", "action", "reward", "propensity")]
        crossed = np.zeros((len(half), actions))
        try:
            for part in (0, 1):
                rows = half != part
                crossed[half == part] = learn(*(one[rows] for one in columns), actions, data["context"][half == part])
            np.savez(out / file.name, crossed=crossed, test=learn(*columns, actions, data["test"]))
        except Exception as error:
            (out / f"{file.stem}.json").write_text(json.dumps(repr(error)))
        print(name, file.stem, flush=True)


if __name__ == "__main__":
    main()
