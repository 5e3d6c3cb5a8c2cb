"""The verdict on a policy.

`judge` (the common function), `checks` (conditions of a verdict), `limits`, `decide` (the decision), `ledger` (record
of looks), `results` (the verdict), `verdict_text` (its sentences), `verdict_store` (its files).
"""
