"""Whether a change of the code changed a number: about seventy tiny runs over every algorithm, option and path.

A case is a function that returns arrays and numbers of any shape of tree. Each array becomes the hash of its type, its
shape and its bytes, and a case is the set of these hashes: names, and the order and nesting of fields, may change, bits
may not. Whole numbers of a state (counters, keys) are left out, what they lead to is not.

`python -m benchmarks bits --write FILE`        runs all cases and writes their hashes
`python -m benchmarks bits --check FILE`        runs them again; exit 1 and the names where one differs or fails
`python -m benchmarks bits iql "bcq: delay"`    only cases whose name begins so

Bits depend on the processor, the versions and the number of threads: `--check` says where FILE was made on others.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

import tidelog as tl
from benchmarks.t_maze import TMaze
from benchmarks.vault import vault
from tidelog._machine import this_machine
from tidelog.envs.functional import CopyStep
from tidelog.policies.batch_inference import act_on_table
from tidelog.policies.export import export
from tidelog.recommend.evaluate import ItemKNN, Markov, OwnFrequency, Popularity, compare
from tidelog.recommend.interactions import next_events
from tidelog.runtime import load
from tidelog.types import Discrete, Image, MultiDiscrete, Spec, Vector

Case = Callable[[Path], Any]
CASES: dict[str, Case] = {}
UPDATES, ROWS = 24, 64  # of an offline run; rows of a log whose actions are hashed
SMALL = {"hidden": (8,), "batch_size": 16}
RATES = ("actor_learning_rate", "critic_learning_rate", "value_learning_rate", "learning_rate")


def case(name: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of a scratch folder (and of these options) as a case."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in CASES:
            raise ValueError(f"two cases are called {name!r}")
        CASES[name] = lambda folder: function(folder, **options)
        return function

    return register


# From results to hashes.


def hashes(tree: Any) -> list[str]:
    """The sorted set of hashes of everything in a tree."""
    return sorted({hashlib.sha256(leaf).hexdigest()[:12] for leaf in leaves(tree)})


def leaves(tree: Any) -> Iterator[bytes]:
    """The bytes of every array, number and word in a tree."""
    if isinstance(tree, Mapping):
        tree = tree.values()
    if tree is None:
        return
    if isinstance(tree, str | bool | int | float):
        yield repr(tree).encode()
    elif isinstance(tree, np.ndarray | np.generic | jax.Array):
        array = np.asarray(tree)
        if array.dtype == object:
            yield repr(array.tolist()).encode()
        else:
            yield f"{array.dtype} {array.shape} ".encode() + array.tobytes()
    else:
        for part in tree:
            yield from leaves(part)


def floats(tree: Any) -> list[np.ndarray]:
    """The arrays of real numbers in a tree of modules and tuples."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | np.ndarray)
              and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]  # fmt: skip
    return [array for array in arrays if np.issubdtype(array.dtype, np.floating)]


def numbers(value: Any) -> Iterator[float]:
    """The real numbers of something that JSON can hold."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, float):
        yield value


# Logs.


@cache
def table(kind: str, rows: int = 240) -> dict[str, Any]:
    """Columns of a random log in episodes of 1 to 7 steps: numbers and codes are seen; discrete actions are masked."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 8, rows // 4)
    count = int(lengths.sum())
    ends = np.zeros(count, bool)
    ends[np.cumsum(lengths) - 1] = True
    terminated = ends & np.repeat(rng.random(len(lengths)) < 0.5, lengths)
    columns = {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "terminated": terminated,
        "truncated": ends & ~terminated,
        "reward": 3.0 * rng.standard_normal(count).astype(np.float32),
        "observation": {
            "vitals": rng.standard_normal((count, 4)).astype(np.float32),
            "ward": rng.integers(0, 3, (count, 2)),
        },
    }
    if kind == "continuous":
        action = np.clip(rng.standard_normal((count, 2)), -1.9, 1.9).astype(np.float32)
        return columns | {"action": action, "bounds": ([-2.0, -2.0], [2.0, 2.0])}
    mask = rng.random((count, 4)) < 0.7
    action = rng.integers(0, 4, count)
    mask[np.arange(count), action] = True
    return columns | {
        "action": action, "actions": 4, "action_mask": mask, "propensity": 1.0 / mask.sum(1),
    }  # fmt: skip


@cache
def log_of(kind: str, extra: str = "") -> tl.Log:
    """A random log; `extra` gives it several rewards, weights, or pictures."""
    columns, rng = dict(table(kind)), np.random.default_rng(1)
    count = len(columns["reward"])
    if extra == "rewards":
        columns["reward"] = rng.standard_normal((count, 2)).astype(np.float32)
    if extra == "weights":
        columns["weight"] = rng.gamma(2.0, size=count).astype(np.float32)
    if extra == "pictures":
        columns["observation"] = {"picture": rng.integers(0, 255, (count, 12, 12, 3)).astype(np.uint8)}
    return tl.Log.from_arrays(**columns)


# Learning from a log.


def learnt(run: tl.Run, log: tl.Log) -> list[Any]:
    """States, reports and what the policies do on rows of the log."""
    rows = np.arange(min(ROWS, log.steps))
    seen = {name: leaf[log.position[rows]] for name, leaf in log.observation.items()}
    mask = None if log.action_mask is None else log.action_mask[log.position[rows]]
    found: list[Any] = [floats(learner.state) for learner in run.learners()]
    found.append([{n: v for n, v in row.items() if not n.startswith("time/")} for row in run.metrics])
    for member in run.members:
        policy = run.policy(member=member.index)
        if policy.is_recurrent:
            state = policy.initial_state(len(rows))
            found += [policy.act(seen, mask=mask, state=state)[0] for _ in range(2)]
            continue
        found += [policy.act(seen, seed, mask)[0] for seed in (None, 3)]
        if isinstance(policy.spec.action, Discrete):
            found.append(policy.probabilities(seen, mask=mask))
    return found


def offline(folder: Path, algorithm: Callable[[], Any], kind: str, extra: str = "", **options: Any) -> Any:
    """A run of two seeds on a random log with a held-out part."""
    log = log_of(kind, extra)
    given = {"seeds": 2, "eval_every": UPDATES // 2, "held_out": 0.25, "progress": False, **options}
    return learnt(tl.fit(algorithm(), log, UPDATES, **given), log)


def small(algorithm: Any, **changes: Any) -> Callable[[], Any]:
    """An algorithm with small networks and rates at which a few updates show."""
    fields = algorithm.__dataclass_fields__
    rates = {name: 1e-2 for name in RATES if name in fields}
    return lambda: algorithm(**{**SMALL, **rates, **changes})


BCQ_SIZES = {"generator_hidden": (8,), "perturbation_hidden": (8,), "target_samples": 3, "samples": 4}
RECURRENT = {"recurrent_size": 6, "window": 4, "burn_in": 1}
PRIORITISED = {"priority_exponent": 0.6}
DESCENT = {"gradient_clip": 0.5, "optimiser": "rmsprop", "layer_norm": True, "dropout": 0.1}
OFFLINE: dict[str, tuple[Any, ...]] = {
    "bc: discrete": (tl.BC, "discrete", {}),
    "bc: continuous": (tl.BC, "continuous", {}),
    "bc: deterministic": (tl.BC, "continuous", {"actor_head": "deterministic"}),
    "bc: descent": (tl.BC, "continuous", {**DESCENT, "schedule": "cosine"}),
    "bc: recurrent": (tl.BC, "discrete", RECURRENT),
    "bc: epsilon": (tl.BC, "discrete", {"epsilon": 0.2}),
    "iql: discrete": (tl.IQL, "discrete", {}),
    "iql: continuous": (tl.IQL, "continuous", {}),
    "iql: descent": (tl.IQL, "continuous", DESCENT),
    "iql: n steps": (tl.IQL, "discrete", {"n_step": 3, "num_critics": 3, "critic_loss": "huber"}),
    "iql: targets": (tl.IQL, "continuous", {"target_update_period": 3, "reward_scaling": "return-range"}),
    "iql: recurrent": (tl.IQL, "continuous", RECURRENT),
    "iql: prioritised": (tl.IQL, "discrete", {**PRIORITISED, "n_step": 2}),
    "iql: recurrent prioritised": (tl.IQL, "discrete", {**RECURRENT, **PRIORITISED}),
    "bcq: continuous": (tl.BCQ, "continuous", BCQ_SIZES),
    "bcq: delay": (tl.BCQ, "continuous", {**BCQ_SIZES, "policy_delay": 2, "kl_reduction": "sum", "latent": 3}),
    "bcq: recurrent": (tl.BCQ, "continuous", {**BCQ_SIZES, **RECURRENT}),
    "bcq: prioritised": (tl.BCQ, "continuous", {**BCQ_SIZES, **PRIORITISED, "n_step": 2, "gradient_clip": 1.0}),
    "td3-bc: continuous": (tl.TD3BC, "continuous", {}),
    "td3-bc: descent": (tl.TD3BC, "continuous", {**DESCENT, **PRIORITISED, "n_step": 2}),
    "rebrac: continuous": (tl.ReBRAC, "continuous", {}),
    "rebrac: n steps": (tl.ReBRAC, "continuous", {"n_step": 3, "normalise_q": False}),
    "cql: continuous": (tl.CQL, "continuous", {"samples": 3}),
    "cql: fixed weight": (tl.CQL, "continuous", {"samples": 3, "entropy_weight": 0.2}),
    "discrete cql": (tl.DiscreteCQL, "discrete", {"epsilon": 0.3}),
    "fql: continuous": (tl.FQL, "continuous", {}),
    "fql: min": (tl.FQL, "continuous", {"q_aggregate": "min", "normalise_q": True, "flow_steps": 3}),
    "discrete bcq": (tl.DiscreteBCQ, "discrete", {"epsilon": 0.3}),
    "discrete bcq: copies": (
        tl.DiscreteBCQ, "discrete", {"tau": None, "copy_period": 5, "double": False, "shared": "always"},
    ),
    "discrete bcq: n steps": (tl.DiscreteBCQ, "discrete", {"n_step": 3}),
    "discrete bcq: recurrent": (tl.DiscreteBCQ, "discrete", RECURRENT),
    "discrete bcq: prioritised": (tl.DiscreteBCQ, "discrete", {**PRIORITISED, "layer_norm": True}),
}  # fmt: skip
for _name, (_class, _kind, _changes) in OFFLINE.items():
    case(_name, algorithm=small(_class, **_changes), kind=_kind)(offline)

case("iql: several rewards", algorithm=small(tl.IQL, reward_weights=(1.0, 0.5)), kind="discrete", extra="rewards")(
    offline
)
case("iql: weights", algorithm=small(tl.IQL), kind="continuous", extra="weights")(offline)
case("bc: pictures", algorithm=small(tl.BC, convolutions="small"), kind="discrete", extra="pictures")(offline)
case("iql: pictures", algorithm=small(tl.IQL, convolutions="small"), kind="continuous", extra="pictures")(offline)
case("discrete bcq: pictures", algorithm=small(tl.DiscreteBCQ), kind="discrete", extra="pictures")(offline)
case("options: together", algorithm=small(tl.IQL), kind="discrete", vmap=True)(offline)
case("options: scale", algorithm=small(tl.IQL), kind="continuous", scale="standard", split_seed=3)(offline)
case("options: best", algorithm=small(tl.BC), kind="discrete", best_metric="held_out/imitation_loss", patience=2)(
    offline
)


@case("options: population")
def population(folder: Path) -> Any:
    """Algorithms that differ in numbers, side by side."""
    log = log_of("discrete")
    several = [small(tl.IQL, temperature=t, expectile=e)() for t, e in ((1.0, 0.6), (3.0, 0.8))]
    run = tl.fit(several, log, UPDATES, seeds=[0, 3], eval_every=UPDATES, progress=False)
    return learnt(run, log), [floats(run.policy(member=member).params) for member in (0, 2)]


@case("options: resumed")
def resumed(folder: Path) -> Any:
    """A run that ends halfway, is loaded from its folder and goes on."""
    log = log_of("discrete")
    run = tl.fit(
        small(tl.IQL, **PRIORITISED)(),
        log,
        UPDATES,
        2,
        folder / "run",
        eval_every=UPDATES // 2,
        held_out=0.25,
        train=False,
    )
    stream: Any = run.stream()
    next(now for now in stream if now.rows)
    stream.close()
    run = tl.resume(folder / "run", log, progress=False)
    return learnt(run, log), floats(tl.load_run(folder / "run", log).policy().params)


@case("options: warm start")
def warm_start(folder: Path) -> Any:
    """Parts of another run, targets with them."""
    log = log_of("continuous")
    tl.fit(small(tl.IQL)(), log, UPDATES, out=folder / "first", eval_every=UPDATES, progress=False)
    run = tl.fit(
        small(tl.IQL)(), log, UPDATES, eval_every=UPDATES, progress=False,
        warm_start={"critic": folder / "first", "actor": folder / "first"},
    )  # fmt: skip
    return learnt(run, log)


def streamed(folder: Path, algorithm: Callable[[], Any], kind: str) -> Any:
    """From a log that stays on disk."""
    log_of(kind).save(folder / "log")
    log = tl.Log.load(folder / "log", memory_map=True)
    run = tl.fit(algorithm(), log, UPDATES, 2, folder / "run", eval_every=UPDATES, held_out=0.25, progress=False)
    return learnt(run, tl.Log.load(folder / "log"))


case("streamed: rows", algorithm=small(tl.IQL, n_step=2), kind="discrete")(streamed)
case("streamed: windows", algorithm=small(tl.BCQ, **BCQ_SIZES, **RECURRENT), kind="continuous")(streamed)
case("streamed: priorities", algorithm=small(tl.DiscreteBCQ, **PRIORITISED), kind="discrete")(streamed)


# Learning in an environment.

PHASES = {
    "num_envs": 4, "rollout_steps": 16, "policy_iterations": 2, "auxiliary_epochs": 2, "minibatches": 2,
    "auxiliary_minibatch": 2, "hidden": (8,), "embedding": 2, "learning_rate": 1e-2, "auxiliary_learning_rate": 1e-2,
}  # fmt: skip
REPLAY = {
    "num_envs": 4, "rollout_steps": 16, "update_per_collect": 3, "minibatch": 4, "policy_capacity": 6,
    "value_capacity": 8, "aux_every": 2, "auxiliary_epochs": 2, "auxiliary_minibatch": 2, "hidden": (8,),
    "embedding": 2, "learning_rate": 1e-2, "auxiliary_learning_rate": 1e-2,
}  # fmt: skip
DECISIONS, BETWEEN = 320, 128  # five collections of 64: two auxiliary phases, and one more


class Pictures:
    """A functional environment of small pictures that ends every nine steps."""

    name = "bits-pictures"
    spec = Spec({"picture": Image(12, 12, 3)}, Discrete(3))

    def start(self, key: Any) -> Any:
        """At the first step."""
        return jax.numpy.int32(0)

    def observe(self, world: Any) -> Any:
        """A picture of the step."""
        return {"picture": jax.numpy.full((12, 12, 3), 20 * world, jax.numpy.uint8)}

    def mask(self, world: Any) -> None:
        """Everything is allowed."""

    def step(self, world: Any, action: Any, key: Any) -> CopyStep:
        """One step on; actions earn their number."""
        return CopyStep(world + 1, action.astype(jax.numpy.float32), world > 8, jax.numpy.zeros((), bool))


def played(folder: Path, algorithm: Callable[[], Any], env: Any, recorded: bool = False, **options: Any) -> Any:
    """A run of two seeds in an environment."""
    given = {"seeds": 2, "eval_every": BETWEEN, "progress": False, **options}
    if recorded:
        given["log_out"] = folder / "log"
    run = tl.learn(algorithm(), env, DECISIONS, **given)
    found = [[floats(learner.state) for learner in run.learners()], reports(run)]
    if recorded:
        found.append([columns_of(tl.Log.load(path)) for path in saved_logs(folder / "log")])
    return found


def reports(run: tl.Run) -> list[dict[str, Any]]:
    """The rows of a run's reports without times."""
    return [{n: v for n, v in row.items() if not n.startswith("time/")} for row in run.metrics]


def saved_logs(folder: Path) -> list[Path]:
    """The logs below a folder."""
    return sorted({path.parent for path in folder.rglob("*.npy")})


def columns_of(log: Any) -> Any:
    """The columns of a log."""
    return dict(log.columns())


class Dials:
    """Two dials at once, which pay where both are set as the two numbers shown say."""

    name = "bits-dials"
    spec = Spec({"observation": Vector(2)}, MultiDiscrete((2, 3)))

    def start(self, key: Any) -> Any:
        """Two numbers, at the first step."""
        return jax.random.uniform(key, (2,)), jax.numpy.int32(0)

    def observe(self, world: Any) -> Any:
        """Both numbers."""
        return {"observation": world[0]}

    def mask(self, world: Any) -> None:
        """Everything is allowed."""

    def step(self, world: Any, action: Any, key: Any) -> CopyStep:
        """Other numbers."""
        seen, age = world
        right = (action[0] == (seen[0] > 0.5)) & (action[1] == jax.numpy.int32(3 * seen[1]))
        after = jax.random.uniform(key, (2,)), age + 1
        return CopyStep(after, right.astype(jax.numpy.float32), jax.numpy.zeros((), bool), age >= 8)


POINT = "point-mass"
JAX, CONTINUOUS = "jax:CartPole-v1", "jax:Pendulum-v1"
ONLINE: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    "ppg: compiled": (tl.PPG, JAX, {}, {}),
    "ppg: continuous": (tl.PPG, CONTINUOUS, {"value_normalisation": True}, {}),
    "ppg: host": (tl.PPG, "treatment", {}, {"recorded": True}),
    "ppg: host continuous": (tl.PPG, POINT, {"policy_epochs": 2, "value_epochs": 2}, {}),
    "ppg: together": (tl.PPG, JAX, {}, {"vmap": True}),
    "ppg: epochs apart": (tl.PPG, JAX, {"policy_epochs": 1, "value_epochs": 3, "num_chunks": 2}, {}),
    "ppg: divergence": (tl.PPG, JAX, {"clip": None, "divergence_weight": 1.0, "value_clip": 0.2}, {}),
    "ppg: separate": (tl.PPG, JAX, {"architecture": "single", "reward_normalisation": False}, {}),
    "ppg: recurrent": (tl.PPG, TMaze(), {"recurrent_size": 6}, {}),
    "ppg: pictures": (tl.PPG, Pictures(), {"convolutions": "small", "picture_width": 8}, {}),
    "ppg: several actions": (tl.PPG, Dials(), {}, {}),
    "ppg: gymnasium": (tl.PPG, "CartPole-v1", {}, {}),
    "ppg: ppo": (tl.PPO, JAX, {}, {}),
    "off-policy ppg: compiled": (tl.OffPolicyPPG, JAX, {}, {}),
    "off-policy ppg: continuous": (tl.OffPolicyPPG, CONTINUOUS, {"clip": None}, {}),
    "off-policy ppg: host": (tl.OffPolicyPPG, "treatment", {"policy_max_staleness": 4}, {"recorded": True}),
}
for _name, (_class, _env, _changes, _options) in ONLINE.items():
    _sizes = PHASES if _class is not tl.OffPolicyPPG else REPLAY
    if _class is tl.PPO:
        _sizes = {n: v for n, v in PHASES.items() if n in ("num_envs", "rollout_steps", "minibatches", "hidden")}
    case(_name, algorithm=lambda c=_class, s={**_sizes, **_changes}: c(**s), env=_env, **_options)(played)


def tuned(folder: Path, algorithm: Callable[[], Any], env: str, **options: Any) -> Any:
    """A run that learnt from a log and goes on in an environment."""
    log = tl.collect(env.removeprefix("jax:"), episodes=12, seed=0)
    run = tl.fit(algorithm(), log, UPDATES, 2, held_out=0.2, scale="standard", eval_every=UPDATES, progress=False)
    run = tl.finetune(run, env, 60, eval_every=30, log_out=folder / "log", progress=False, **options)
    logs = [columns_of(tl.Log.load(path)) for path in saved_logs(folder / "log")]
    return [[floats(learner.state) for learner in run.learners()], reports(run), logs]


case("fine-tuning: host", algorithm=small(tl.IQL, n_step=2), env=POINT)(tuned)
case("fine-tuning: compiled", algorithm=small(tl.DiscreteBCQ, epsilon=0.5), env=JAX, offline=0.25)(tuned)
case("fine-tuning: bcq", algorithm=small(tl.BCQ, **BCQ_SIZES), env=POINT, restart_schedules=True)(tuned)


# Recommending.

ITEMS = 10
RECOMMENDER = {
    "size": 8, "history": 6, "targets": 3, "batch_size": 8, "hidden": (8,), "generator_hidden": (8,),
    "perturbation_hidden": (8,), "tower_hidden": (8,), "latent": 4, "samples": 3, "target_samples": 3, "candidates": 4,
    "pretrain_share": 10 / UPDATES, "learning_rate": 1e-2, "critic_learning_rate": 1e-2,
    "generator_learning_rate": 1e-2, "perturbation_learning_rate": 1e-2,
}  # fmt: skip


@cache
def clicks(slates: bool = False) -> Any:
    """Users on a ring of items, with sessions, ratings, and features of both."""
    rng = np.random.default_rng(2)
    users, events = 24, 12
    user, step = np.repeat(np.arange(users), events), np.tile(np.arange(events), users)
    place = (user + 2 * step + rng.integers(0, 2, len(user))) % ITEMS
    frame = pl.DataFrame({
        "u": [f"u{one}" for one in user], "i": [f"i{one}" for one in place], "t": step * 10 + user,
        "kind": ["view" if one % 3 else "buy" for one in step], "r": rng.random(len(user)).round(3),
        "visit": step // 4,
    })  # fmt: skip
    roles: dict[str, Any] = {"user": "u", "item": "i", "time": "t", "reward": "r", "event": "kind", "session": "visit"}
    roles["item_features"] = pl.DataFrame(
        {"i": [f"i{n}" for n in range(ITEMS)], "x": np.cos(np.arange(float(ITEMS))), "y": ["a", "b"] * 5}
    )
    roles["user_features"] = pl.DataFrame(
        {"u": [f"u{n}" for n in range(users)], "age": 20.0 + np.arange(users) % 16.0, "plan": ["free", "paid"] * 12}
    )
    if slates:
        shown = ["|".join(f"i{(one + more) % ITEMS}" for more in range(4)) for one in place]
        frame, roles["slate"] = frame.with_columns(shown=pl.Series(shown)), "shown"
    return tl.read_interactions(frame, **roles)


def recommended(folder: Path, slates: bool = False, **changes: Any) -> Any:
    """A recommender's states, reports, scores and lists."""
    log = clicks(slates)
    algorithm = tl.RecommenderBCQ(**{**RECOMMENDER, **changes})
    run = tl.fit(algorithm, log, UPDATES, 2, eval_every=UPDATES // 2, held_out=0.25, progress=False)
    policy = run.policy(seed=0)
    lists = policy.recommend([["i1", "i3"], ["i2"], []], 4, exclude_seen=False)
    return [[floats(learner.state) for learner in run.learners()], reports(run), *(np.asarray(part) for part in lists)]


case("recommender: likelihood")(recommended)
case("recommender: vae", generator="vae", policy_delay=2)(recommended)
case("recommender: attention", encoder="attention", heads=2, dropout=0.1)(recommended)
case("recommender: mean", encoder="mean", q_weight=0.5, joint=False)(recommended)
case("recommender: content", content=True, profile=False)(recommended)
case("recommender: slates", slates=True, negative_weight=0.5, exclude_seen=True)(recommended)
case("recommender: sampled", full_softmax=0, sampled_items=4)(recommended)


@case("recommender: compared")
def compared(folder: Path) -> Any:
    """Rankers that learn nothing, on the last part of the time."""
    log = clicks(True)
    split = log.split(share=0.25)
    rankers = {
        "popularity": Popularity.of(split.train), "markov": Markov.of(split.train), "knn": ItemKNN.of(split.train),
        "own": OwnFrequency.of(split.train),
    }  # fmt: skip
    found = compare(rankers, next_events(log, split.test.targets), split.train.counts, 4)
    return list(numbers(found.to_json()))


# Judging.


@cache
def treatment_log(episodes: int = 400, seed: int = 0) -> tl.Log:
    """Episodes of the treatment problem, decided by equal chances."""
    return tl.collect("treatment", episodes=episodes, seed=seed)


class Tilted:
    """A policy that prefers the first action, by how much `tilt` says."""

    def __init__(self, actions: int, tilt: float) -> None:
        self._actions, self._tilt = actions, tilt

    def probabilities(self, observation: Any, mask: Any = None) -> np.ndarray:
        """[B, A]."""
        rows = len(next(iter(observation.values())))
        chances = np.ones((rows, self._actions)) if mask is None else np.asarray(mask, float)
        chances = chances * np.where(np.arange(self._actions) == 0, 1.0 + self._tilt, 1.0)
        return chances / chances.sum(1, keepdims=True)


def verdict_numbers(verdict: Any) -> Any:
    """The decision and every number of a verdict."""
    content = verdict.to_json()
    content.pop("context", None)
    return [verdict.decision, np.asarray(verdict.weights), list(numbers(content))]


def judged(folder: Path, kind: str, tilt: float = 0.5, **options: Any) -> Any:
    """A verdict on a policy from elsewhere."""
    log = treatment_log() if kind == "treatment" else bandit_log(kind)
    policy = Tilted(log.spec.action.n, tilt)
    return verdict_numbers(tl.judge(policy, log, ledger=False, learnt_from="other data", **options))


@cache
def bandit_log(kind: str) -> tl.Log:
    """One decision an episode; "clusters" come from users, "text" has observations that fit no table."""
    rng = np.random.default_rng(4)
    count = 500
    codes = rng.integers(0, 4, count)
    action = rng.integers(0, 3, count)
    reward = (action == codes % 3).astype(np.float32) + 0.1 * rng.standard_normal(count).astype(np.float32)
    observation: dict[str, Any] = {"code": codes}
    columns: dict[str, Any] = {}
    if kind == "continuous state":
        observation = {"x": np.stack([codes, rng.standard_normal(count)], 1).astype(np.float32)}
    if kind == "clusters":
        columns["cluster"] = np.arange(count) // 5
    return tl.Log.from_arrays(
        episode=np.arange(count), terminated=np.ones(count, bool), action=action, reward=reward, actions=3,
        observation=observation, propensity=np.full(count, 1 / 3), **columns,
    )  # fmt: skip


case("judge: one step", kind="codes")(judged)
case("judge: clusters", kind="clusters")(judged)
case("judge: networks", kind="continuous state")(judged)
case("judge: estimated", kind="codes", propensities="estimated")(judged)
case("judge: steps", kind="treatment")(judged)
case("judge: steps estimated", kind="treatment", propensities="estimated", seed=2)(judged)
case("judge: visits", kind="treatment", limits=tl.Limits(horizon=1))(judged)
case("judge: risk", kind="treatment", tilt=0.1, cvar=0.25, bad_outcome=0.0, level=0.9)(judged)


@case("judge: together")
def judged_together(folder: Path) -> Any:
    """Several policies on the same episodes."""
    policies = {f"tilt {tilt}": Tilted(3, tilt) for tilt in (0.2, 1.0, 3.0)}
    found = tl.judge(policies, bandit_log("codes"), ledger=False, learnt_from="other data")
    return [verdict_numbers(one) for one in found]


@case("judge: learnt policy")
def judged_learnt(folder: Path) -> Any:
    """A run's policies on the part that it held out, sampled and by their most likely action."""
    train, held_out = treatment_log().split(0.5, seed=0)
    policy = tl.fit(small(tl.IQL)(), train, UPDATES, progress=False).policy()
    return [verdict_numbers(tl.judge(policy, held_out, sample=one, ledger=False)) for one in (True, False)]


@case("judge: continuous")
def judged_continuous(folder: Path) -> Any:
    """Densities of one decision, a blurred deterministic policy, and two hundred steps."""
    rng = np.random.default_rng(6)
    seen, count = rng.standard_normal((600, 2)).astype(np.float32), 600
    noise = rng.standard_normal(count)
    action = np.clip(0.3 * seen[:, 0] + 0.5 * noise, -1.99, 1.99).astype(np.float32)[:, None]
    density = np.exp(-0.5 * noise**2) / (0.5 * np.sqrt(2.0 * np.pi))
    log = tl.Log.from_arrays(
        episode=np.arange(count), terminated=np.ones(count, bool), observation={"x": seen}, action=action,
        reward=-((action[:, 0] - seen[:, 0]) ** 2), bounds=([-2.0], [2.0]), propensity=density,
    )  # fmt: skip
    ways: list[dict[str, Any]] = [{"sample": True}, {"bandwidth": 0.3}]
    found = []
    for one in (log, tl.collect(POINT, episodes=60, seed=1)):
        train, held_out = one.split(0.5, seed=0)
        policy = tl.fit(small(tl.BC)(), train, UPDATES, progress=False).policy()
        found += [verdict_numbers(tl.judge(policy, held_out, ledger=False, **way)) for way in ways]
    return found


@case("judge: every estimator")
def estimated(folder: Path) -> Any:
    """All estimates of one step and of several."""
    found = []
    for log, actions in ((bandit_log("codes"), 3), (treatment_log(), treatment_log().spec.action.n)):
        found += [[row.estimate, row.low, row.high] for row in tl.estimate(Tilted(actions, 0.5), log)]
    return found


# Reading, writing, acting, exporting.


@cache
def csv_log() -> str:
    """A small table as text: words, gaps in a column that may have them, dates."""
    rng = np.random.default_rng(5)
    rows = ["patient,visit,severity,kind,dose,recovered,ended,chance"]
    for patient in range(40):
        length = int(rng.integers(1, 6))
        for visit in range(length):
            ended = int(visit == length - 1)
            rows.append(
                f"p{patient},{visit},{rng.normal():.3f},{'abc'[rng.integers(3)]},{rng.integers(3)},"
                f"{rng.random():.2f},{ended},{0.25 + 0.5 * rng.random():.3f}"
            )
    return "\n".join(rows) + "\n"


def columns() -> tl.Columns:
    """What is what in that table."""
    return tl.Columns(
        episode="patient", step="visit", terminated="ended", action="dose", reward="recovered",
        observation=["severity", "kind"], categorical=["kind"], propensity="chance",
    )  # fmt: skip


@case("data: read")
def read(folder: Path) -> Any:
    """A table read, split, saved, opened, and written in other forms."""
    (folder / "log.csv").write_text(csv_log())
    log = tl.read_log(folder / "log.csv", columns())
    train, rest = log.split(0.8, seed=0)
    log.save(folder / "saved")
    log.to_npz(folder / "log.npz")
    parts = (log, train, rest, tl.Log.load(folder / "saved"), tl.read_log(folder / "log.npz"))
    return [columns_of(part) for part in parts], list(numbers(json.loads(json.dumps(log.transitions.reward.tolist()))))


@case("data: interactions")
def interactions(folder: Path) -> Any:
    """Interactions with everything, split by time and by the last event."""
    log = clicks(True)
    split, last = log.split(share=0.25), log.leave_one_out()
    return [columns_of(part) for part in (log, split.train, split.test, last.train, last.test)]


@case("data: collected")
def collected(folder: Path) -> Any:
    """Logs of every environment that is built in."""
    names = ("treatment", "satiation", vault(), POINT, "CartPole-v1", JAX, CONTINUOUS)
    return [columns_of(tl.collect(name, episodes=3, seed=0)) for name in names]


@case("act: table")
def acted(folder: Path) -> Any:
    """Actions beside the rows of a table, by a run on that table, and returns of rollouts."""
    (folder / "log.csv").write_text(csv_log())
    log = tl.read_log(folder / "log.csv", columns())
    policy = tl.fit(small(tl.IQL)(), log, UPDATES, progress=False, scale="standard").policy()
    policy.save(folder / "policy")
    frames = [act_on_table(one, folder / "log.csv") for one in (policy, tl.load_policy(folder / "policy"))]
    return [[frame[name].to_numpy() for name in frame.columns] for frame in frames]


@case("act: rollout")
def rolled_out(folder: Path) -> Any:
    """Returns of policies in environments, as they choose and as they draw."""
    found = []
    for env, algorithm in (
        ("treatment", small(tl.IQL)),
        (POINT, small(tl.BC)),
        ("treatment", small(tl.BC, recurrent_size=4)),
    ):
        policy = tl.fit(algorithm(), tl.collect(env, episodes=12, seed=0), UPDATES, progress=False).policy()
        found += [tl.rollout(policy, env, episodes=6, seed=1, sample=sample) for sample in (False, True)]
    return found


def exported(folder: Path, algorithm: Callable[[], Any], kind: str) -> Any:
    """What the NumPy runtime makes of an exported policy."""
    log = log_of(kind)
    policy = tl.fit(algorithm(), log, UPDATES, progress=False).policy()
    export(policy, folder / "policy.zip")
    seen = {name: leaf[log.position[:ROWS]] for name, leaf in log.observation.items()}
    mask = None if log.action_mask is None else log.action_mask[log.position[:ROWS]]
    return np.asarray(load(folder / "policy.zip")(seen, mask=mask))


case("export: iql", algorithm=small(tl.IQL), kind="discrete")(exported)
case("export: bcq", algorithm=small(tl.BCQ, **BCQ_SIZES), kind="continuous")(exported)
case("export: discrete bcq", algorithm=small(tl.DiscreteBCQ), kind="discrete")(exported)


# All of them.


def run_case(name: str) -> tuple[str, list[str], float]:
    """A case's hashes, and how many seconds it took."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TIDELOG_STATE"] = folder
        found = hashes(CASES[name](Path(folder)))
    return name, found, time.perf_counter() - began


def run(names: list[str], jobs: int) -> tuple[dict[str, list[str]], list[str]]:
    """The hashes of these cases, in so many processes; and a line for each that raised an error."""
    found, failed = {}, []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for name, future in [(name, pool.submit(run_case, name)) for name in names]:
            error = future.exception()
            if error is not None:
                failed.append(f"{name}: {type(error).__name__}: {error}")
                print(failed[-1], flush=True)
                continue
            _, found[name], seconds = future.result()
            print(f"{name}: {len(found[name])} different arrays and numbers, {seconds:.1f} s", flush=True)
    return found, failed


def differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[str]:
    """A line for each case whose hashes are not the same."""
    found = []
    for name, hashed in after.items():
        if name not in before:
            found.append(f"{name}: is not in the file")
            continue
        old, new = set(before[name]), set(hashed)
        if old != new:
            found.append(f"{name}: {len(old - new)} of {len(old)} are gone, {len(new - old)} are new")
    return found


def study(*names: str, write: Path | None = None, check: Path | None = None, jobs: int = 2) -> None:
    """Run the cases whose names begin so, or all, in `jobs` processes; exit with 1 if one differs or fails."""
    chosen = [name for name in CASES if not names or name.startswith(names)]
    if not chosen:
        raise SystemExit(f"no case begins with {', '.join(names)}; there are {', '.join(CASES)}")
    found, failed = run(chosen, jobs)
    machine = this_machine()
    if write:
        text = json.dumps({"machine": machine, "cases": found}, indent=0)
        write.write_text(text.replace('",\n"', '", "') + "\n")
    lines = failed
    if check:
        known = json.loads(check.read_text())
        if known["machine"] != machine:
            print(f"{check} was made on {known['machine']}, this is {machine}: bits may differ for that alone")
        lines = [*differences(known["cases"], found), *failed]
        print(*lines, f"{len(chosen) - len(lines)} of {len(chosen)} cases are equal", sep="\n")
    if lines:
        raise SystemExit(1)
