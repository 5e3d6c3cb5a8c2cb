"""Policies: the policy object, rollouts in environments, batch inference, statistics of returns, and export.

`policy` acts, loads and saves; `rollout` plays it in environments; `batch_inference` acts on tables; `rule_search`
finds simple rules; `statistics` summarises returns; `export` writes artefacts.
"""
