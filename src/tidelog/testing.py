"""Conformance checks for an algorithm of your own: `tl.testing.check_algorithm(CRR())`.

The built-in offline algorithms pass the same checks.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tidelog import runtime
from tidelog.algorithms.contract import Algorithm, Portable
from tidelog.algorithms.hyperparameters import from_config, to_config
from tidelog.algorithms.names import learns_online, ranks
from tidelog.data.log import Log
from tidelog.errors import ConfigError, TidelogError
from tidelog.ope.policy_evidence import estimate
from tidelog.policies.policy import load_policy, named_arrays
from tidelog.runtime.policy import as_rows
from tidelog.training.fit import fit
from tidelog.training.learn import load_run
from tidelog.training.run import Run
from tidelog.types import Continuous, Discrete

UPDATES, EPISODES, ACTIONS = 12, 40, 3
SKIPPED = ("reward_scaling",)  # changes the log, not the update


class ConformanceError(TidelogError):
    """An algorithm does not conform; the message names each failed check."""


def check_algorithm(algorithm: Any, *, log: Log | None = None, without_effect: Iterable[str] = ()) -> list[str]:
    """Check an offline algorithm on small random logs, one for each kind of action that it takes, or on `log`.

    Checked are: the shapes and repeatability of actions; finite losses, equal in step and validation; the same bits for
    the same seed, however the run is cut; resume; seeds side by side; an effect of every hyper-parameter that is a
    number, except those in `without_effect`; saving, running without JAX, and ONNX where it has a recipe; off-policy
    estimates where it has a distribution. Returns what was checked. Raises ConformanceError.
    """
    if isinstance(algorithm, type):
        algorithm = algorithm()
    if not isinstance(algorithm, Algorithm) or learns_online(algorithm) or ranks(algorithm):
        raise ConfigError(
            f"check_algorithm: {type(algorithm).__name__} is no offline algorithm",
            fix="decorate it with @tl.algorithm('name')",
        )
    kinds = {"continuous": Continuous, "discrete": Discrete}
    logs = {kind: _random_log(kind) for kind, space in kinds.items() if space in algorithm.takes}
    logs = logs if log is None else {"given": log}
    if not logs:
        raise ConfigError(
            f"check_algorithm: no random log has actions that {type(algorithm).__name__} takes", fix="pass log="
        )
    passed: list[str] = []
    failed: list[str] = []
    for kind, one in logs.items():
        with tempfile.TemporaryDirectory() as folder:
            for name, check in _checks(algorithm, one, Path(folder), tuple(without_effect)):
                try:
                    problem = check()
                except Exception as error:  # whatever an algorithm of somebody else's raises is its result
                    problem = f"{type(error).__name__}: {error}"
                (failed if problem else passed).append(f"{name} ({kind} actions)" + (f": {problem}" if problem else ""))
    if failed:
        raise ConformanceError(
            f"{type(algorithm).__name__}: {len(failed)} of {len(failed) + len(passed)} checks failed.\n- "
            + "\n- ".join(failed)
        )
    return passed


def _random_log(kind: str) -> Log:
    """A log of short episodes: two numbers and one code seen, rewards that depend on the action."""
    random = np.random.default_rng(0)
    rows = 5 * EPISODES
    numbers = random.normal(size=(rows, 2)).astype(np.float32)
    ends = np.arange(rows) % 5 == 4
    known: dict[str, Any] = {
        "observation": {"numbers": numbers, "code": random.integers(0, 3, (rows, 1))},
        "episode": np.arange(rows) // 5,
        "terminated": ends,
    }
    if kind == "continuous":
        moves = np.clip(random.normal(size=(rows, 2)), -0.95, 0.95).astype(np.float32)
        reward = numbers[:, 0] * moves[:, 0]
        return Log.from_arrays(**known, action=moves, bounds=([-1.0, -1.0], [1.0, 1.0]), reward=reward)
    choices = random.integers(0, ACTIONS, rows)
    reward = numbers[np.arange(rows), choices % 2]
    return Log.from_arrays(**known, action=choices, actions=ACTIONS, reward=reward)


def _checks(
    algorithm: Any, log: Log, folder: Path, without_effect: tuple[str, ...]
) -> Iterator[tuple[str, Callable[[], str | None]]]:
    """Yield checks by name; each returns what is wrong, or None."""
    trained: dict[str, Run] = {}

    def run() -> Run:
        if "run" not in trained:
            trained["run"] = fit(
                algorithm, log, UPDATES, out=folder / "run", held_out=0.25, eval_every=4, progress=False
            )
        return trained["run"]

    def plain() -> Run:
        if "plain" not in trained:
            trained["plain"] = fit(algorithm, log, UPDATES, progress=False)
        return trained["plain"]

    yield "training gives finite losses, and validation has them too", lambda: _losses(run())
    yield "every network learns or follows", lambda: _moves(run(), algorithm, log)
    yield "actions have the log's shape, repeat without a seed, and are finite", lambda: _actions(run(), log)
    yield (
        "the same seed gives the same bits, however the run is cut",
        lambda: _equal(run(), fit(algorithm, log, UPDATES, held_out=0.25, eval_every=5, progress=False)),
    )
    yield "a stopped run resumes to the same bits", lambda: _resumed(run(), algorithm, log, folder / "stopped")
    yield "seeds side by side are seeds alone", lambda: _side_by_side(algorithm, log)
    yield "hyper-parameters survive a file", lambda: _saved_settings(algorithm)
    for field in dataclasses.fields(algorithm):
        if field.metadata["leaf"] and field.name not in (*without_effect, *SKIPPED):
            yield f"the hyper-parameter {field.name} has an effect", partial(_effect, plain, algorithm, log, field.name)
    yield "a saved policy acts as before", lambda: _saved(run(), log, folder / "policy")
    if isinstance(algorithm, Portable):
        yield "the policy acts the same without JAX", lambda: _without_jax(run(), log, folder / "policy")
    if isinstance(log.spec.action, Discrete):
        yield "probabilities, if there are any, sum to 1 and estimates are finite", lambda: _estimates(run(), log)


def _observations(log: Log) -> dict[str, Any]:
    return {name: np.asarray(leaf)[np.asarray(log.position)] for name, leaf in log.observation.items()}


def _mask(log: Log) -> Any:
    return None if log.action_mask is None else np.asarray(log.action_mask)[np.asarray(log.position)]


def _act(policy: Any, seen: Any, mask: Any, seed: int | None = None) -> np.ndarray[Any, Any]:
    """Return the actions of all rows, each as the first step of an episode; with a seed, samples."""
    return as_rows(policy.spec.action, policy.act(seen, seed, mask, _state(policy, seen))[0])


def _state(policy: Any, seen: Any) -> Any:
    return policy.initial_state(len(next(iter(seen.values())))) if policy.is_recurrent else None


def _losses(run: Run) -> str | None:
    last = run.metrics[-1]
    losses = {name for name in last if name.endswith("_loss") and not name.startswith("held_out/")}
    bad = [name for name, value in last.items() if isinstance(value, float) and not np.isfinite(value)]
    if bad:
        return f"not finite: {', '.join(bad)}"
    lacking = [name for name in losses if f"held_out/{name}" not in last]
    return f"no validation of {', '.join(lacking)}" if lacking else None


def _moves(run: Run, algorithm: Any, log: Log) -> str | None:
    before, after = (
        fit(algorithm, log, UPDATES, held_out=0.25, train=False).learners()[0].state,
        run.learners()[0].state,
    )
    still = []
    for part in set(getattr(before, "_fields", ())) - {"opt_states", "opt_state", "step", "updates", "key"}:
        first, second = named_arrays(getattr(before, part)), named_arrays(getattr(after, part))
        still += [part] * (bool(first) and all(np.array_equal(array, second[name]) for name, array in first.items()))
    return f"unchanged after {UPDATES} updates: {', '.join(sorted(still))}" if still else None


def _actions(run: Run, log: Log) -> str | None:
    policy, seen, mask = run.policy(), _observations(log), _mask(log)
    raw = jax.eval_shape(lambda params: policy.algorithm.act(params, seen, mask=mask), policy.params).action
    if raw.shape != np.shape(log.action):
        return f"`act` returns shape {raw.shape}, expected {np.shape(log.action)}"
    action = _act(policy, seen, mask)
    if not np.isfinite(action).all():
        return "some are not finite"
    return None if np.array_equal(action, _act(policy, seen, mask)) else "another action at the second call"


def _equal(one: Run, two: Run, seed: int = 0) -> str | None:
    first, second = (named_arrays(run.learners()[seed].state) for run in (one, two))
    different = [name for name in first if not np.array_equal(first[name], second[name])]
    return f"different: {', '.join(different[:3])}" if different else None


def _resumed(run: Run, algorithm: Any, log: Log, folder: Path) -> str | None:
    stopped = fit(algorithm, log, UPDATES, out=folder, held_out=0.25, eval_every=4, save_seconds=0.0, train=False)
    next(stopped.stream())
    return _equal(run, load_run(folder, log=log, algorithm=algorithm).train(progress=False))


def _side_by_side(algorithm: Any, log: Log) -> str | None:
    stacked = fit(algorithm, log, 3, seeds=[0, 1], vmap=True, progress=False)
    for index in (0, 1):
        alone = named_arrays(fit(algorithm, log, 3, seeds=[index], progress=False).learners()[0].state)
        found = named_arrays(stacked.learners()[index].state)
        far = [n for n, array in alone.items() if not np.allclose(array, found[n], rtol=1e-3, atol=1e-4)]
        if far:
            return f"seed {index} differs in {', '.join(far[:3])}"
    return None


def _saved_settings(algorithm: Any) -> str | None:
    config = to_config(algorithm)
    if any(isinstance(value, dict) for value in config.values()):
        return None  # a function of the user, which no file holds
    return None if from_config(type(algorithm), config) == algorithm else "other values come back"


def _effect(plain: Callable[[], Run], algorithm: Any, log: Log, name: str) -> str | None:
    value = getattr(algorithm, name)
    if value is None:
        return None  # switched off
    least, most, _ = type(algorithm).__dataclass_fields__[name].metadata["range"]
    tried = [
        one for one in (0.5 * value, 2.0 * value + 0.1, 0.5 * (least + most)) if least < one < most and one != value
    ]
    if not tried:
        return None
    first, second = plain(), fit(replace(algorithm, **{name: tried[0]}), log, UPDATES, progress=False)
    if _equal(first, second) is not None:
        return None
    seen, mask = _observations(log), _mask(log)
    one, two = (_act(run.policy(), seen, mask, seed=0) for run in (first, second))
    return "neither training nor sampled actions change with it" if np.array_equal(one, two) else None


def _saved(run: Run, log: Log, folder: Path) -> str | None:
    policy = run.policy()
    policy.save(folder)
    again = load_policy(folder, algorithm=policy.algorithm)
    seen, mask = _observations(log), _mask(log)
    return None if np.array_equal(_act(policy, seen, mask), _act(again, seen, mask)) else "other actions after loading"


def _without_jax(run: Run, log: Log, folder: Path) -> str | None:
    seen, mask = _observations(log), _mask(log)
    here, there = _act(run.policy(), seen, mask), _act(runtime.load(folder), seen, mask)
    same = here == there if here.dtype.kind in "iu" else np.isclose(here, there, atol=1e-4).all(axis=-1)
    return None if np.mean(same) > 0.99 else f"other actions in {1 - np.mean(same):.0%} of rows"


def _estimates(run: Run, log: Log) -> str | None:
    policy, seen, mask = run.policy(), _observations(log), _mask(log)
    if policy.log_probability(seen, np.asarray(log.action), mask, _state(policy, seen)) is None:
        return None
    chances = np.asarray(policy.probabilities(seen, mask, _state(policy, seen)))
    if not np.allclose(chances.sum(axis=1), 1.0, atol=1e-4):
        return "probabilities do not sum to 1"
    value = estimate(policy, log, ["wis"], sample=True)["wis"].estimate  # most likely actions may be in no episode
    return None if np.isfinite(value) else f"wis is {value}"
