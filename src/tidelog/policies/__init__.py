"""Policies: the policy object, rollouts in environments, batch inference, statistics of returns, and export.

`policy` acts, loads and saves; `named_arrays` are its files of arrays; `rollout` plays it in environments;
`action_mapping` fits it to an environment with another order of actions; `batch_inference` acts
on tables; `statistics` summarises returns; `export` writes artefacts.
"""
