"""A scikit-learn pipeline is judged as a policy, and a second one models the behaviour policy.

    python examples/judge_sklearn.py [visits.csv columns.toml]

The policy imitates the treatments of the patients who recovered. Without arguments the log is simulated.
"""

import sys

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import tidelog as tl

log = tl.read_log(*sys.argv[1:]) if sys.argv[1:] else tl.collect("treatment", episodes=4_000, seed=0)
train, held_out = log.split(0.5, seed=0)  # it is not judged on rows that it was fitted on
returns = np.add.reduceat(train.reward, train.starts[:-1])
good = (returns > returns.mean())[train.episode]
words = list(train.spec.observation["categorical"].names)
columns = make_column_transformer((OneHotEncoder(), words), remainder=StandardScaler())
policy = make_pipeline(columns, LogisticRegression(max_iter=1_000))
policy.fit(train.features().filter(good), train.action[good])

behavior_policy = make_pipeline(
    StandardScaler(), RandomForestClassifier(min_samples_leaf=20)
)  # cloned and fitted in each fold
for propensities in (None, behavior_policy):  # None: the recorded ones
    verdict = tl.judge(policy, held_out, sample=True, propensities=propensities, learnt_from="other data", ledger=False)
    print(verdict.advice, verdict.paragraph, sep="\n", end="\n\n")
