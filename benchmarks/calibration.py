"""How far verdicts can be trusted: policies of known worth, judged from many logs that somebody else made.

Problems with exact values (the treatment problem, ICU-Sepsis) and two whose values are long rollouts (CartPole,
Pendulum). For each log and each target policy one verdict, at the defaults. Counted are: how often the log was said not
to support an answer; among the supported, how often the 95% interval on the difference from the behaviour policy covers
the true difference; and how often *better* or *worse* was said although it is not so. Where the whole has no support,
the largest part that is better (`ope/ladder.py`) is counted apart, beside the part's true difference; in the problems
with exact values as many other episodes are the training episodes that such parts ask for.

The default limits were chosen by `benchmarks/choose_limits.py` in the history, on logs of other seeds than those
that are counted here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import tidelog as tl
from benchmarks.adversarial import state
from benchmarks.icu_sepsis import icu_sepsis
from benchmarks.keep import by_key, keep, share
from benchmarks.mixed_quality import pendulum_controller
from benchmarks.problems import Table, recorded, state_finder, table_log
from benchmarks.spread import scratch, spread
from tidelog.envs import clinician, make, play, treatment
from tidelog.ope.decide import NOTHING_KNOWN, Assessment, decide
from tidelog.ope.judge import gather, question_of
from tidelog.ope.ladder import climb
from tidelog.ope.policies import kernel_density, kernel_draws
from tidelog.ope.verdict import LadderStep
from tidelog.types import Continuous

PROPENSITIES = {"recorded": None, "estimated": "estimated"}  # how `tl.judge` is asked
COMMAND = "python -m benchmarks calibration"
LOGS, FEW = 400, 40  # logs of each size of the problem that is quick to judge, and of ICU-Sepsis: 10,100 verdicts
KEYS = ("problem", "propensities", "episodes", "target")
NARROW = 0.2  # deviations of returns: half-width of an interval around no difference that says something
DEVIATIONS = {"treatment": 0.486, "icu-sepsis": 0.41, "CartPole": 34.9, "Pendulum": 134.5}  # of one log each
FIRST_SEED, SEPSIS_SEED, LEARNT_SEED = 1_000, 3_000, 1  # of logs; of ICU-Sepsis; of what IQL learnt from
TRAIN_SEED = 600_000  # more, of the training episodes
TORQUE, NOISE = Continuous((-2.0,), (2.0,)), 0.5  # of Pendulum, and of its behaviour policy: a share of half the range


class World(NamedTuple):
    """A problem, who makes its logs, and policies [S, A] to be judged."""

    problem: Any
    behavior_policy: np.ndarray
    targets: dict[str, np.ndarray]


@cache
def gain(name: str, target: str) -> float:
    """By how much a policy is better than the behaviour policy, exactly."""
    return mixed_gain(name, target, np.ones(len(world(name).behavior_policy)))


def mixed_gain(name: str, target: str, follows: np.ndarray) -> float:
    """By how much the policy is better that follows one with these probabilities [S], and else decides as before."""
    here, follows = world(name), follows[:, None]
    mixed = (1.0 - follows) * here.behavior_policy + follows * here.targets[target]
    return float(here.problem.value_of(mixed) - here.problem.value_of(here.behavior_policy))


def part_gain(name: str, target: str, seen: Assessment, step: LadderStep) -> float:
    """By how much a part of a policy is better than the behaviour policy, exactly."""
    here = world(name)
    follows = np.full(len(here.behavior_policy), step.level)
    if step.largest_ratio is not None:
        usual = seen.ladder.practice.probabilities(here.problem.observations())
        follows[(here.targets[target] / np.maximum(usual, 1e-12)).max(axis=1) > step.largest_ratio] = 0.0
    return mixed_gain(name, target, follows)


@cache
def world(name: str) -> World:
    """A finite problem by name."""
    return {"treatment": _treatment, "icu-sepsis": _icu}[name]()


def _treatment() -> World:
    problem, behavior_policy = treatment(), clinician()
    best, even = problem.optimal()[1], np.full(behavior_policy.shape, 1.0 / behavior_policy.shape[1])
    habit = np.eye(behavior_policy.shape[1])[behavior_policy.argmax(1)]
    targets = {
        "the logger itself": behavior_policy,
        "its commonest choice": habit,
        "a fifth optimal": 0.8 * behavior_policy + 0.2 * best,
        "half optimal": 0.5 * behavior_policy + 0.5 * best,
        "optimal": best,
        "what IQL learnt from another log": _learnt(problem, behavior_policy),
        "a fifth even chances": 0.8 * behavior_policy + 0.2 * even,
        "even chances": even,
    }
    return World(problem, behavior_policy, targets)


def _learnt(problem, behavior_policy: np.ndarray) -> np.ndarray:
    """The greedy policy of IQL as the demo trains it, [S, A], from a log that is not judged."""
    log = table_log(problem, behavior_policy, 2_500, LEARNT_SEED)
    algorithm = tl.IQL(hidden=(64, 64), discount=1.0, temperature=10.0, expectile=0.8, reward_scaling="none")
    policy = tl.fit(algorithm, log, 4_000, progress=False).policy()
    return np.eye(problem.actions)[policy.act(problem.observations())[0]]


def _icu() -> World:
    problem, behavior_policy = icu_sepsis()
    behavior_policy = np.where(problem.final[:, None], 1.0 / problem.actions, behavior_policy)
    even = np.full(behavior_policy.shape, 1.0 / behavior_policy.shape[1])
    within = problem.optimal(allowed=behavior_policy >= 0.3 * behavior_policy.max(1, keepdims=True))[1]
    targets = {
        "the logger itself": behavior_policy,
        "a fifth of the best within its support": 0.8 * behavior_policy + 0.2 * within,
        "the best within its support": within,
        "a tenth even chances": 0.9 * behavior_policy + 0.1 * even,
        "nine tenths optimal": 0.9 * problem.optimal()[1] + 0.1 * even,
    }
    return World(problem, behavior_policy, targets)


def made_log(name: str, episodes: int, seed: int) -> tl.Log:
    """Episodes of the behaviour policy, with its propensities."""
    return table_log(world(name).problem, world(name).behavior_policy, episodes, seed)


@cache
def policies(name: str) -> dict[str, Table]:
    """The policies of a finite problem as a judge asks them."""
    find = state_finder(world(name).problem)
    return {label: Table(target, find) for label, target in world(name).targets.items()}


def exact(name: str, episodes: int, seed: int, propensities: str) -> list[dict]:
    """What is shown of every target of a finite problem, from one log."""
    how = {"propensities": PROPENSITIES[propensities], "train": made_log(name, episodes, seed + TRAIN_SEED)}
    found = evidence(policies(name), made_log(name, episodes, seed), seed, model="tabular", **how)
    about = {"problem": name, "episodes": episodes, "propensities": propensities, "seed": seed}
    return [
        {**about, "target": label, **row(found_of, gain(name, label), partial(part_gain, name, label))}
        for label, found_of in found.items()
    ]


def evidence(policies: Mapping[str, object], log: tl.Log, seed: int, **how) -> dict[str, Assessment | None]:
    """What a log shows of each policy by itself, at the first look, as to `tl.judge`; None where it refuses.

    What a policy learnt from is not counted.
    """
    found = {}
    for one in gather(question_of(policies, log, True, seed=seed, ledger=False, progress=False, **how)):
        one.reuse = NOTHING_KNOWN
        found[one.name] = None if one.policy_evidence is None else one
    return found


def row(
    seen: Assessment | None, truth: float, of_part: Callable[[Assessment, LadderStep], float] | None = None
) -> dict:
    """What the default limits make of what was shown, beside the truth: of the whole, and of the best part."""
    if seen is None:
        return {"truth": truth, "decision": "unsupported", "rule": "refused", "interval": None, "part": None}
    decide(seen)
    rule = seen.findings[0].rule if seen.findings else None
    better = [one for one in climb(seen) if one.decision == "better"] if of_part is not None else []
    part = [better[-1].share, of_part(seen, better[-1])] if better and of_part is not None else None
    return {"truth": truth, "decision": seen.decision, "rule": rule, "interval": seen.difference, "part": part}


# Problems without exact values.


def _cartpole_chances(sharpness: float) -> Callable[[dict], np.ndarray]:
    """A controller that pushes towards where the pole falls, drawn with the given sharpness."""

    def chances(observation: dict) -> np.ndarray:
        push = observation["observation"] @ np.asarray([0.1, 0.3, 6.0, 1.5])
        right = 1.0 / (1.0 + np.exp(-sharpness * push))
        return np.stack([1.0 - right, right], axis=1)

    return chances


def _asked(chances: Callable[[dict], np.ndarray]) -> Any:
    return SimpleNamespace(probabilities=lambda observation, mask=None: chances(observation))


CARTPOLE = {"the logger itself": 0.5, "a little sharper": 0.6, "blunter": 0.3}


def cartpole(episodes: int, seed: int) -> list[dict]:
    """Verdicts on sharper and blunter controllers of CartPole, from one log."""
    log = recorded(make("CartPole-v1", 64), _drawing(_cartpole_chances(0.5)), episodes, seed)
    about = {"problem": "CartPole", "episodes": episodes, "propensities": "recorded", "seed": seed}
    targets = {label: _asked(_cartpole_chances(sharpness)) for label, sharpness in CARTPOLE.items()}
    truths = {label: _cartpole_value(sharpness) - _cartpole_value(0.5) for label, sharpness in CARTPOLE.items()}
    found = evidence(targets, log, seed)
    return [{**about, "target": label, **row(found_of, truths[label])} for label, found_of in found.items()]


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
    behavior_value, policies = _pendulum_policies()
    log = _pendulum_log(episodes, seed)
    about = {"problem": "Pendulum", "episodes": episodes, "propensities": "recorded", "seed": seed}
    found = evidence({label: policy for label, (policy, _) in policies.items()}, log, seed)
    return [
        {**about, "target": label, **row(found_of, policies[label][1] - behavior_value)}
        for label, found_of in found.items()
    ]


def _pendulum_log(episodes: int, seed: int) -> tl.Log:
    return recorded(make("Pendulum-v1", 50), _swinging, episodes, seed)


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
        found[label] = policy, float(tl.rollout(policy, "Pendulum-v1", 1_000, seed=5, sample=True, num_envs=50).mean())
    behavior_policy = play(make("Pendulum-v1", 50), _swinging, 1_000, 5, keep=False)
    return float(behavior_policy.returns.mean()), found


# The whole study.


def jobs(first: int, logs: int, few: int, sepsis: int | None = None) -> Iterator[tuple]:
    """Everything that is judged, a function and its arguments; the first logs of every problem come first.

    Logs of ICU-Sepsis have the seeds from `sepsis` on, if given: those from 1,000 on were looked at before
    `carrying_episodes` was chosen.
    """
    for seed in range(first, first + logs):
        sizes = (2_500, 8_000)
        yield from ((exact, "treatment", size, seed, "recorded") for size in sizes)
        yield from ((exact, "treatment", size, seed, "estimated") for size in sizes if (seed - first) % 2 == 0)
        if seed < first + few:
            own = seed if sepsis is None else seed - first + sepsis
            yield from ((exact, "icu-sepsis", 10_000, own, asked) for asked in PROPENSITIES)
        if seed < first + few // 2:
            yield from ((cartpole, 300, seed), (pendulum, 100, seed))


def study(logs: int = LOGS, few: int = FEW, workers: int = 2) -> dict:
    """Judge everything, and keep what came of it: `logs` of each size of the treatment problem, `few` of ICU-Sepsis."""
    found = spread(jobs(FIRST_SEED, logs, few, SEPSIS_SEED), scratch("calibration") / state(), workers)
    rows = [row for part in found for row in part]
    content = {"logs": logs, "few": few, "state": state(), "summary": summary(rows), "groups": grouped(rows)}
    keep("calibration", f"{COMMAND} --logs {logs} --few {few}", content, verdicts=packed(rows))
    return content


def _kind(row: dict) -> tuple:
    return tuple(row[key] for key in KEYS)


def packed(rows: Sequence[dict]) -> list[dict]:
    """A line for all verdicts of a problem, size, kind of propensities and target: lists in the order of seeds."""
    columns = ("seed", "decision", "rule", "interval", "part")
    return [
        {**dict(zip(KEYS, group, strict=True)), "truth": some[0]["truth"],
         **{name: [one[name] for one in some] for name in columns}}
        for group, some in by_key(rows, _kind)
    ]  # fmt: skip


def grouped(rows: list[dict]) -> list[dict]:
    """The counts of each problem, size, kind of propensities and target."""
    return [{**dict(zip(KEYS, key, strict=True)), **summary(group)} for key, group in by_key(rows, _kind)]


def summary(rows: list[dict]) -> dict:
    """Counts over verdicts; intervals of shares are Wilson's, at 95%."""
    supported = [row for row in rows if row["decision"] != "unsupported"]
    covered = sum(one["interval"][1] <= one["truth"] <= one["interval"][2] for one in supported)
    not_better = [row for row in rows if row["truth"] <= 1e-9]
    not_worse = [row for row in rows if row["truth"] >= -1e-9]
    parts = [row["part"][1] for row in rows if row["part"] is not None]
    return {
        "verdicts": len(rows),
        "truth": float(np.mean([row["truth"] for row in rows])),
        "unsupported": len(rows) - len(supported),
        "better": sum(row["decision"] == "better" for row in rows),
        "worse": sum(row["decision"] == "worse" for row in rows),
        "narrow": sum(is_narrow(row) for row in rows),
        "parts": len(parts),
        "covered": share(covered, len(supported)),
        "better_though_not": share(sum(row["decision"] == "better" for row in not_better), len(not_better)),
        "worse_though_not": share(sum(row["decision"] == "worse" for row in not_worse), len(not_worse)),
        "part_though_not": share(sum(truth <= 1e-9 for truth in parts), len(parts)),
    }


def is_narrow(row: dict) -> bool:
    """Whether *no difference shown* says that there is none that matters: an interval of under .2 deviations."""
    if row["decision"] != "no difference shown":
        return False
    return (row["interval"][2] - row["interval"][1]) / 2.0 < NARROW * DEVIATIONS[row["problem"]]


def coverage_over_seeds(packs: Sequence[dict]) -> dict:
    """The share of answered verdicts whose interval covers the truth, with a 95% interval over the seeds of logs.

    Several policies are judged from each log, and a short log of a problem is the beginning of the long one with its
    seed. Seeds, not verdicts, are independent: a ratio of sums over the seeds of each problem, with its linearised
    standard error. `packs` are the rows of `packed`.
    """
    seeds: dict[tuple, list[int]] = {}
    for pack in packs:
        for seed, decision, interval in zip(pack["seed"], pack["decision"], pack["interval"], strict=True):
            if decision != "unsupported":  # which has no interval where it was refused at once
                counts = seeds.setdefault((pack["problem"], seed), [0, 0])
                counts[0] += interval[1] <= pack["truth"] <= interval[2]
                counts[1] += 1
    covered, answered = np.asarray(list(seeds.values()), float).T
    share = covered.sum() / answered.sum()
    off = covered - share * answered
    error = np.sqrt(len(off) / (len(off) - 1) * (off @ off)) / answered.sum()
    about = {"covered": int(covered.sum()), "answered": int(answered.sum()), "seeds": len(off), "error": float(error)}
    return {**about, "share": float(share), "low": float(share - 1.96 * error), "high": float(share + 1.96 * error)}
