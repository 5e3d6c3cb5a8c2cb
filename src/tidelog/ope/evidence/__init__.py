"""What a log says about a policy, as the estimators read it.

`policy_evidence` (the evidence about a policy), `evidence` (its arrays), `episodes` (checks, folds, clusters,
ends of a log), `target` (the judged policy on the log), `propensities` (the logger on the log).
"""
