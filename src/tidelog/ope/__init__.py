"""Off-policy evaluation: how good a policy is, judged from a log of another decision maker.

`evidence` (a policy and its logger on a log), `models` (values and occupancy ratios), `estimators` (estimates with
intervals and support), `assumptions` (tests and bounds of what estimates assume), `verdict` (the decision, its text,
the ledger of looks).
"""
