"""A small log of interactions and small recommenders, shared by several test folders."""

from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from tests.algorithms.worlds import QUICK
from tests.data.clicks import ROLES, clicks
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import Policy
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.next_item import store_interactions
from tidelog.recommend.read import read_interactions
from tidelog.recommend.recommender_bcq import RecommenderBCQ
from tidelog.training.loop import as_arrays

SMALL = {
    "size": 8, "history": 6, "memory": 8, "targets": 3, "batch_size": 8, "hidden": (8,), "generator_hidden": (8,),
    "perturbation_hidden": (8,), "tower_hidden": (8,), "latent": 4, "samples": 3, "target_samples": 3,
    "candidates": 4, "pretrain_share": 1 / 3, "learning_rate": 1e-2, "critic_learning_rate": 1e-2,
    "generator_learning_rate": 1e-2, "perturbation_learning_rate": 1e-2, "tau": 0.1,
}  # fmt: skip


def small(**changes: Any) -> RecommenderBCQ:
    return RecommenderBCQ(**(SMALL | changes))


def people(users: int = 16) -> pl.DataFrame:
    """User features: a number, categories, lists of categories."""
    ages = 20.0 + (np.arange(users) % 16.0) ** 2  # of 16 or 48 users alike in mean and spread
    words = {"plan": (["free", "paid"] * users)[:users], "likes": (["a;b", "", "b", "c"] * users)[:users]}
    return pl.DataFrame({"u": [f"u{n}" for n in range(users)], "age": ages, **words})


@cache
def described(users: int = 16) -> Interactions:
    """Users on a ring of items, sessions, slates of four, features of both; the tenth item was shown only."""
    frame = clicks(users=users)
    places = frame["i"].str.slice(1).cast(pl.Int64).to_numpy()
    shown = ["|".join(f"i{(place + step) % 10}" for step in range(4)) for place in places]
    features = pl.DataFrame({"i": [f"i{n}" for n in range(10)], "x": np.cos(np.arange(10.0)), "y": ["a", "b"] * 5})
    frame = frame.with_columns(shown=pl.Series(shown), visit=(pl.col("t") // 150).cast(pl.Int64))
    roles = {**ROLES, "slate": "shown", "item_features": features, "user_features": people(users), "session": "visit"}
    return read_interactions(frame, **roles)


@cache
def unshown() -> Interactions:
    return replace(described(), slate=None)


def fresh(h: RecommenderBCQ, log: Interactions, seed: int = 0) -> Any:
    return h.with_item_facts(h.init(h.spec_of(log), jax.random.key(seed), 6), log, seed)


def batch(h: RecommenderBCQ, log: Interactions, seed: int = 0) -> Any:
    store = store_interactions(log, h.targets, h.stores(h.spec_of(log))["log"].columns)
    return _drawn(h.phases()[1].samplers, store, jax.random.key(seed))


@eqx.filter_jit
def _drawn(sampler: Any, store: Any, key: Any) -> Any:
    return sampler.batch(store, None, key, jnp.zeros(()))[0]


@cache
def compiled(step: Any) -> Any:
    return eqx.filter_jit(step, compiler_options=QUICK)


def after(h: RecommenderBCQ, log: Interactions, updates: int = 2, phase: int = 1) -> Any:
    """Return the state after compiled updates of one phase."""
    state = fresh(h, log)
    for update in range(updates):
        state, _ = compiled(h.phases()[phase].step)(as_arrays(h), state, batch(h, log, update))
    return state


def policy(h: RecommenderBCQ, log: Interactions, state: Any = None) -> Policy:
    """Return the policy of a state; without one, of initial networks whose Q counts as trained."""
    state = fresh(h, log)._replace(q_updates=jnp.int32(1)) if state is None else state
    return Policy(h, h.spec_of(log), Scaler(), h.policy_params(state))
