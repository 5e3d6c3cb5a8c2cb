"""How far verdicts can be trusted: policies of known worth, judged from many logs that somebody else made.

Problems with exact values (the treatment problem, ICU-Sepsis) and two whose values are long rollouts (CartPole,
Pendulum). For each log and each target policy one verdict, at the defaults. Counted are: how often the log was said not
to support an answer; among the supported, how often the 95 % interval on the difference from the logger covers the
true difference; and how often *better* or *worse* was said although it is not so.

Evidence and decision are apart: a row keeps what was shown (`deciding.Shown`), and every set of limits can rule on it.
The default limits were chosen so, by `benchmarks/choose_limits.py`, on logs of other seeds than those that are counted
here. `refits` compares the interval, which is bootstrapped over episodes with models fitted once, with the spread over
50 refits of everything.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

import tidelog as tl
from benchmarks.keep import SHARED, keep
from tidelog.acting.rollout import log_of
from tidelog.acting.statistics import Interval
from tidelog.envs import TabularEnvironment, clinician, icu_sepsis, make, play, treatment
from tidelog.envs.toys import pendulum_controller
from tidelog.judging.deciding import Case, Shown, ruled, shown
from tidelog.judging.estimate import Supports
from tidelog.judging.findings import Finding
from tidelog.judging.folds import episode_folds
from tidelog.judging.gather import TABLE_FOLDS, gather
from tidelog.judging.given import as_policy
from tidelog.judging.limits import Limits
from tidelog.judging.propensities import propensities_of
from tidelog.judging.results import Support
from tidelog.judging.reuse import Reuse
from tidelog.judging.tabular import distinct
from tidelog.judging.target import kernel_density, kernel_draws
from tidelog.types import Continuous

NOTHING_KNOWN = Reuse(None, None, None)
COMMAND = "pytest -m slow tests/learns/test_studies.py -k calibration"
LOGS, FEW = 24, 4  # logs of each size of the problem that is quick to judge, and of the others
REFITS, REFIT_LOGS, REFIT_EPISODES = 50, 2, 2_500
FIRST_SEED, LEARNT_SEED = 1_000, 1
TORQUE, NOISE = Continuous((-2.0,), (2.0,)), 0.5  # of Pendulum, and of its logger: a share of half the range


class Table:
    """A policy of a finite problem as a judge asks it; `states` finds the rows of its table [S, A]."""

    def __init__(self, chances: np.ndarray, states: Callable[[dict], np.ndarray]) -> None:
        self._chances, self._states = chances, states

    def probabilities(self, observation: dict, mask: object = None) -> np.ndarray:
        """[B, A]."""
        return self._chances[self._states(observation)]


class World(NamedTuple):
    """A problem, who makes its logs, and policies [S, A] to be judged."""

    problem: object
    logger: np.ndarray
    targets: dict[str, np.ndarray]


@cache
def gain(name: str, target: str) -> float:
    """By how much a policy is better than the logger, exactly."""
    here = world(name)
    return float(here.problem.value_of(here.targets[target]) - here.problem.value_of(here.logger))


@cache
def world(name: str) -> World:
    """A finite problem by name."""
    return {"treatment": _treatment, "icu-sepsis": _icu}[name]()


def _treatment() -> World:
    problem, logger = treatment(), clinician()
    best, even = problem.optimal()[1], np.full(logger.shape, 1.0 / logger.shape[1])
    habit = np.eye(logger.shape[1])[logger.argmax(1)]
    targets = {
        "the logger itself": logger,
        "its commonest choice": habit,
        "a fifth optimal": 0.8 * logger + 0.2 * best,
        "half optimal": 0.5 * logger + 0.5 * best,
        "optimal": best,
        "what IQL learnt from another log": _learnt(problem, logger),
        "a fifth even chances": 0.8 * logger + 0.2 * even,
        "even chances": even,
    }
    return World(problem, logger, targets)


def _learnt(problem, logger: np.ndarray) -> np.ndarray:
    """The greedy policy of IQL as the demo trains it, [S, A], from a log that is not judged."""
    environment = TabularEnvironment(problem, 500)
    find = state_finder(problem)
    played = play(environment, drawn_from(logger, find), 2_500, LEARNT_SEED)
    algorithm = tl.IQL(hidden=(64, 64), discount=1.0, temperature=10.0, expectile=0.8)
    policy = tl.fit(algorithm, log_of(environment.spec, played), 4_000, progress=False).policy()
    return np.eye(problem.actions)[policy(problem.observations())]


def _icu() -> World:
    problem, logger = icu_sepsis(SHARED / "data/icu_sepsis/dynamics.npz")
    logger = np.where(problem.final[:, None], 1.0 / problem.actions, logger)
    even = np.full(logger.shape, 1.0 / logger.shape[1])
    within = problem.optimal(allowed=logger >= 0.3 * logger.max(1, keepdims=True))[1]
    targets = {
        "the logger itself": logger,
        "a fifth of the best within its support": 0.8 * logger + 0.2 * within,
        "the best within its support": within,
        "a tenth even chances": 0.9 * logger + 0.1 * even,
        "nine tenths optimal": 0.9 * problem.optimal()[1] + 0.1 * even,
    }
    return World(problem, logger, targets)


@cache
def _lookup(name: str) -> Callable[[dict], np.ndarray]:
    return state_finder(world(name).problem)


def state_finder(problem) -> Callable[[dict], np.ndarray]:
    """From observations to state numbers."""
    rows = _bytes(problem.observations())
    index = {row: state for state, row in reversed(list(enumerate(rows)))}
    return lambda observation: np.asarray([index[row] for row in _bytes(observation)])


def _bytes(observation: dict) -> list[bytes]:
    leaves = [np.asarray(leaf, np.float32) for _, leaf in sorted(observation.items())]
    return [row.tobytes() for row in np.concatenate(leaves, axis=1)]


def made_log(name: str, episodes: int, seed: int) -> tl.Log:
    """Episodes of the logger, with its propensities."""
    here = world(name)
    environment = TabularEnvironment(here.problem, 500)
    return log_of(environment.spec, play(environment, drawn_from(here.logger, _lookup(name)), episodes, seed))


def drawn_from(table: np.ndarray, find: Callable[[dict], np.ndarray]):
    """A policy [S, A] as `play` asks it, with its propensities."""
    cumulative = table.cumsum(axis=1)

    def act(observed, generator):
        state = find(observed.observation)
        draw = generator.random((len(state), 1)) * cumulative[state, -1:]
        action = (cumulative[state] > draw).argmax(axis=1)
        return action.astype(np.int32), table[state, action]

    return act


def exact(name: str, episodes: int, seed: int, propensities: str) -> list[dict]:
    """What is shown of every target of a finite problem, from one log."""
    here, log = world(name), made_log(name, episodes, seed)
    asked = None if propensities == "recorded" else "estimated"
    known = propensities_of(log, episode_folds(log, TABLE_FOLDS, seed), asked, states=distinct(log), seed=seed)
    about = {"problem": name, "episodes": episodes, "propensities": propensities, "seed": seed}
    return [
        {**about, "target": label, **told(Table(target, _lookup(name)), log, gain(name, label),
                                          seed, propensities=known, model="tabular", cloning=False)}
        for label, target in here.targets.items()
    ]  # fmt: skip


def told(policy, log: tl.Log, truth: float, seed: int, **how) -> dict:
    """What a log shows of a policy, and what the default limits make of it: as `tl.judge`, without its table."""
    found = gather(as_policy(policy, log.spec), log, sample=True, seed=seed, **how)
    continuous = isinstance(log.spec.action, Continuous)
    asked = {"history": found.history, "drift": found.drift}
    case = Case(found.policy, found.cloning, NOTHING_KNOWN, Limits(), seed, densities=continuous, **asked)
    seen = shown(case, Supports(case.policy))
    return {"truth": truth, "deciding": case.deciding, **decision({"shown": kept_of(seen)}), "shown": kept_of(seen)}


def kept_of(seen: Shown) -> dict:
    """What was shown as plain values."""
    plain = seen._asdict()
    plain["support"] = asdict(seen.support)
    for part in ("by_visits", "by_products"):
        found = getattr(seen, part)
        plain[part] = None if found is None else asdict(found)
    return plain


def decision(row: dict, limits: Limits | None = None) -> dict:
    """The decision on a kept row under some limits, and its first reason."""
    said, findings = ruled(shown_of(row), limits or Limits(), NOTHING_KNOWN)
    return {"decision": said, "reason": findings[0].sentence if findings else None}


def shown_of(row: dict) -> Shown:
    """What was shown, from a kept row."""
    kept = dict(row["shown"])
    for part in ("against", "against_by_visits", "unable", "against_by_products"):
        kept[part] = [Finding(*one) for one in kept.get(part, ())]
    kept["difference"], kept["support"] = Interval(*kept["difference"]), Support(**kept["support"])
    for part in ("by_visits", "by_products"):
        kept[part] = None if kept.get(part) is None else Support(**kept[part])
    kept["bound"] = None if kept.get("bound") is None else Interval(*kept["bound"])
    return Shown(**kept)


# Problems without exact values.


def _cartpole_chances(sharpness: float) -> Callable[[dict], np.ndarray]:
    """A controller that pushes towards where the pole falls, drawn with the given sharpness."""

    def chances(observation: dict) -> np.ndarray:
        push = observation["observation"] @ np.asarray([0.1, 0.3, 6.0, 1.5])
        right = 1.0 / (1.0 + np.exp(-sharpness * push))
        return np.stack([1.0 - right, right], axis=1)

    return chances


class Chances:
    """A policy of two actions as a judge asks it."""

    def __init__(self, chances: Callable[[dict], np.ndarray]) -> None:
        self.probabilities = lambda observation, mask=None: chances(observation)


CARTPOLE = {"the logger itself": 0.5, "a little sharper": 0.6, "blunter": 0.3}


def cartpole(episodes: int, seed: int) -> list[dict]:
    """Verdicts on sharper and blunter controllers of CartPole, from one log."""
    environment = make("CartPole-v1", 64)
    log = log_of(environment.spec, play(environment, _drawing(_cartpole_chances(0.5)), episodes, seed))
    about = {"problem": "CartPole", "episodes": episodes, "propensities": "recorded", "seed": seed}
    rows = []
    for label, sharpness in CARTPOLE.items():
        truth = _cartpole_value(sharpness) - _cartpole_value(0.5)
        rows.append({**about, "target": label, **told(Chances(_cartpole_chances(sharpness)), log, truth, seed)})
    return rows


@cache
def _cartpole_value(sharpness: float) -> float:
    played = play(make("CartPole-v1", 64), _drawing(_cartpole_chances(sharpness)), 4_000, 5, keep=False)
    return float(played.returns.mean())


def _drawing(chances: Callable[[dict], np.ndarray]):
    def act(observed, generator):
        found = chances(observed.observation)
        action = (generator.random(len(found)) < found[:, 1]).astype(np.int32)
        return action, found[np.arange(len(found)), action]

    return act


def pendulum(episodes: int, seed: int) -> list[dict]:
    """Verdicts on what BC and IQL learnt from a Pendulum log of their own, sampled, from another log."""
    logger_value, policies = _pendulum_policies()
    log = _pendulum_log(episodes, seed)
    about = {"problem": "Pendulum", "episodes": episodes, "propensities": "recorded", "seed": seed}
    return [
        {**about, "target": label, **told(policy, log, value - logger_value, seed)}
        for label, (policy, value) in policies.items()
    ]


def _pendulum_log(episodes: int, seed: int) -> tl.Log:
    environment = make("Pendulum-v1", 50)
    return log_of(environment.spec, play(environment, _swinging, episodes, seed))


def _swinging(observed, generator):
    """The controller with noise drawn within the bounds: no torque is cut after its density is known."""
    steered = np.clip(pendulum_controller(observed.observation["observation"]), -2.0, 2.0)
    torque = kernel_draws(steered, TORQUE, NOISE, 1, int(generator.integers(2**31)))[:, 0]
    return torque, kernel_density(torque, steered, TORQUE, NOISE)


@cache
def _pendulum_policies() -> tuple[float, dict]:
    log, found = _pendulum_log(150, 1), {}
    for label, algorithm in {"bc": tl.BC(), "iql": tl.IQL.preset("locomotion")}.items():
        policy = tl.fit(algorithm, log, 3_000, progress=False).policy()
        found[label] = policy, float(tl.rollout(policy, "Pendulum-v1", 1_000, seed=5, sample=True, copies=50).mean())
    logger = play(make("Pendulum-v1", 50), _swinging, 1_000, 5, keep=False)
    return float(logger.returns.mean()), found


# Intervals against refits.


def refits(seed: int) -> dict:
    """Half the width of one verdict's interval, and of that from 50 resampled logs with everything fitted anew."""
    target = Table(world("treatment").targets["a fifth optimal"], _lookup("treatment"))
    log = made_log("treatment", REFIT_EPISODES, seed)
    once = tl.judge(target, log, seed=seed, ledger=False).difference
    generator = np.random.default_rng(seed)
    again = [log.take_episodes(generator.integers(len(log.episodes), size=len(log.episodes))) for _ in range(REFITS)]
    refitted = [tl.judge(target, one, seed=i, ledger=False).difference.estimate for i, one in enumerate(again)]
    half = 1.96 * float(np.std(refitted, ddof=1))
    return {"seed": seed, "half_width": (once.high - once.low) / 2, "refitted_half_width": half}


# The whole study.


def jobs(first: int = FIRST_SEED, logs: int = LOGS, few: int = FEW) -> Iterator[tuple]:
    """Everything that is judged: a function and its arguments."""
    seeds = range(first, first + logs)
    for episodes in (2_500, 8_000):
        yield from ((exact, "treatment", episodes, seed, "recorded") for seed in seeds)
        yield from ((exact, "treatment", episodes, seed, "estimated") for seed in seeds[: logs // 2])
    for propensities in ("recorded", "estimated"):
        yield from ((exact, "icu-sepsis", 10_000, seed, propensities) for seed in seeds[:few])
    yield from ((cartpole, 300, seed) for seed in seeds[: few // 2])
    yield from ((pendulum, 100, seed) for seed in seeds[: few // 2])
    yield from ((refits, seed) for seed in seeds[:REFIT_LOGS])


def done(chosen: list[tuple]) -> Iterator:
    """What came of jobs, in their order, on two processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for count, future in enumerate([pool.submit(*job) for job in chosen], 1):
            yield future.result()
            print(f"{count} of {len(chosen)}", flush=True)


def study(only: str | None = None) -> dict:
    """Judge everything, and keep what came of it."""
    chosen = [job for job in jobs() if only is None or job[0].__name__ == only or only in job]
    found = list(done(chosen))
    rows = [row for part in found if isinstance(part, list) for row in part]
    content = {
        "summary": summary(rows),
        "groups": grouped(rows),
        "refits": [part for part in found if isinstance(part, dict)],
    }
    if only is None:
        keep("calibration", COMMAND, content, verdicts=rows)
    return content


def grouped(rows: list[dict]) -> list[dict]:
    """The counts of each problem, size, kind of propensities and target."""
    keys = ("problem", "propensities", "episodes", "target")
    found: dict[tuple, list[dict]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [{**dict(zip(keys, key, strict=True)), **summary(group)} for key, group in found.items()]


def summary(rows: list[dict]) -> dict:
    """Counts over verdicts; intervals of shares are Wilson's, at 95 %."""
    supported = [row for row in rows if row["decision"] != "unsupported"]
    covered = sum(row["shown"]["difference"][1] <= row["truth"] <= row["shown"]["difference"][2] for row in supported)
    not_better = [row for row in rows if row["truth"] <= 1e-9]
    not_worse = [row for row in rows if row["truth"] >= -1e-9]
    return {
        "verdicts": len(rows),
        "truth": float(np.mean([row["truth"] for row in rows])),
        "unsupported": len(rows) - len(supported),
        "better": sum(row["decision"] == "better" for row in rows),
        "worse": sum(row["decision"] == "worse" for row in rows),
        "covered": share(covered, len(supported)),
        "better_though_not": share(sum(row["decision"] == "better" for row in not_better), len(not_better)),
        "worse_though_not": share(sum(row["decision"] == "worse" for row in not_worse), len(not_worse)),
    }


def share(count: int, of: int) -> dict:
    """A share with Wilson's interval."""
    if not of:
        return {"count": 0, "of": 0}
    found = binomtest(count, of).proportion_ci(0.95, "wilson")
    return {"count": count, "of": of, "share": count / of, "low": float(found.low), "high": float(found.high)}


if __name__ == "__main__":
    found = study(sys.argv[1] if len(sys.argv) > 1 else None)
    print(found["summary"], *found["groups"], *found["refits"], sep="\n")
