"""Verdicts on logs whose truth is a randomised part: the plain mean of the decisions that match a policy.

Logs in the shape of real ones have two parts: one by a biased logger, which is judged on, and one whose decisions are
drawn evenly, which gives the truth. Coupons are single decisions with costs, a ward has four visits per patient, a
router pays for quality and loses heavy-tailed costs. In the small sample of the Open Bandit Dataset (Saito et al. 2021,
arXiv:2008.07146) the Bernoulli Thompson sampling log and the even log are the truth of each other; its truths rest
on few clicks, so their error widens the interval there.

Command: `python -m benchmarks randomised_part`
"""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import tidelog as tl
from benchmarks.adversarial_worlds import drawn
from benchmarks.calibration import Chances as Policy
from benchmarks.calibration import evidence, row, summary
from benchmarks.keep import SHARED, keep, share

COMMAND = "python -m benchmarks randomised_part"
SEEDS, FEW, FIRST_SEED = 24, 8, 7_000  # logs of coupons, and of each of the other kinds
RANDOMISED = 600_000  # episodes of the part that is the truth
VISITS = 4
MAPPINGS = Path(__file__).resolve().parents[1] / "examples"
BEFORE = {"supported": 12, "covered": 12}  # of version 1, on twelve logs
Floats = NDArray[np.float64]
Chances = Callable[[dict[str, Any]], Floats]


class World(NamedTuple):
    """A kind of log: its players, its logger, and policies to judge."""

    play: Callable[[Chances, int, Generator], dict[str, Any]]  # arrays [E * T] of episodes of `visits` decisions
    logger: Chances
    policies: dict[str, Chances]
    actions: int
    episodes: int  # of the judged part
    visits: int = 1


def even(actions: int) -> Chances:
    """Every action alike."""
    return lambda seen: np.full((len(next(iter(seen.values()))), actions), 1.0 / actions)


def softmax(scores: Floats) -> Floats:
    """[B, A]."""
    exponent = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(exponent / exponent.sum(1, keepdims=True))


def greedy(scores: Callable[[dict[str, Any]], Floats]) -> Chances:
    """The action with the largest score."""
    return lambda seen: np.eye(scores(seen).shape[1])[scores(seen).argmax(1)]


def mixed(one: Chances, other: Chances, part: float) -> Chances:
    """`part` of the other policy."""
    return lambda seen: (1.0 - part) * one(seen) + part * other(seen)


# Coupons: which of four coupons a customer is sent; profit of a sale less the coupon.

COUPON = np.asarray([0.0, 1.0, 3.0, 6.0])


DRAWN = np.asarray([0.3, 0.6, 0.9, 0.2, 0.5])  # by segment: how much a coupon attracts


def _sale(seen: dict[str, Any]) -> Floats:
    """[B, A]: the chance of a sale."""
    loyal, segment = seen["loyalty"] - 1.5, seen["segment"]
    return np.asarray(1.0 / (1.0 + np.exp(1.6 - 0.8 * loyal - 0.5 * DRAWN[segment] * COUPON)))


def _coupons(policy: Chances, count: int, generator: Generator) -> dict[str, Any]:
    seen = {"loyalty": generator.integers(0, 4, (count, 1)), "segment": generator.integers(0, 5, (count, 1))}
    chances = policy(seen)
    action = drawn(generator, chances)
    sold = generator.random(count) < _sale(seen)[np.arange(count), action]
    return {"observation": seen, "action": action, "propensity": chances[np.arange(count), action],
            "reward": (10.0 - COUPON[action]) * sold}  # fmt: skip


def _profit(seen: dict[str, Any]) -> Floats:
    return np.asarray(_sale(seen) * (10.0 - COUPON))


def _sender(seen: dict[str, Any]) -> Floats:
    """The shop's habit: large coupons for the loyal, who need none."""
    loyal = seen["loyalty"] - 1.5
    return softmax(0.7 * loyal * np.asarray([-1.0, -0.3, 0.4, 1.0]) + np.asarray([0.4, 0.2, 0.0, -0.2]))


# A ward: four visits, a dose or none; the reward is recovery at the end, less the burden of doses.


def _ward(policy: Chances, count: int, generator: Generator) -> dict[str, Any]:
    severity, age = generator.normal(size=count), generator.normal(size=count)
    visits = []
    for visit in range(VISITS):
        seen = {"state": np.stack([severity, age, np.full(count, float(visit))], 1).astype(np.float32)}
        chances = policy(seen)
        action = drawn(generator, chances)
        reward = -0.05 * action
        severity = severity + 0.35 + 0.15 * age - action * (0.9 - 0.5 * age) + 0.4 * generator.normal(size=count)
        if visit == VISITS - 1:
            reward = reward + (generator.random(count) < 1.0 / (1.0 + np.exp(severity)))
        visits.append((seen["state"], action, chances[np.arange(count), action], reward))
    state, taken, propensity, rewards = (np.stack(part, 1) for part in zip(*visits, strict=True))
    flat = {"action": taken.reshape(-1), "propensity": propensity.reshape(-1), "reward": rewards.reshape(-1)}
    ends = np.tile(np.arange(VISITS) == VISITS - 1, count)
    return {"observation": {"state": state.reshape(count * VISITS, -1)}, **flat, "terminated": ends,
            "episode": np.repeat(np.arange(count), VISITS), "step": np.tile(np.arange(VISITS), count)}  # fmt: skip


def _dose(slope: float, offset: float, by_age: float = 0.0) -> Chances:
    def chances(seen: dict[str, Any]) -> Floats:
        state = seen["state"].astype(np.float64)
        dose = 1.0 / (1.0 + np.exp(-(slope * state[:, 0] + offset + by_age * state[:, 1])))
        return np.stack([1.0 - dose, dose], 1)

    return chances


# A router: which of three models answers a question; quality less a heavy-tailed cost.

SKILL = np.random.default_rng(1).normal(size=(6, 3)) * np.asarray([0.3, 0.5, 0.8])
PRICE = np.asarray([0.02, 0.10, 0.35])


def _quality(seen: dict[str, Any]) -> Floats:
    question = seen["question"].astype(np.float64)
    return np.asarray(1.0 / (1.0 + np.exp(-(np.asarray([-0.2, 0.3, 1.0]) + question @ SKILL))))


def _router(policy: Chances, count: int, generator: Generator) -> dict[str, Any]:
    seen = {"question": generator.normal(size=(count, 6)).astype(np.float32)}
    chances = policy(seen)
    action = drawn(generator, chances)
    good = generator.random(count) < _quality(seen)[np.arange(count), action]
    cost = PRICE[action] * np.exp(0.8 * generator.normal(size=count) - 0.32)  # its mean is the price
    return {"observation": seen, "action": action, "propensity": chances[np.arange(count), action],
            "reward": good - cost}  # fmt: skip


def _by_length(seen: dict[str, Any]) -> Floats:
    return softmax(1.2 * seen["question"][:, :1].astype(np.float64) * np.asarray([-1.0, 0.0, 1.0]))


WORLDS = {
    "coupons": World(_coupons, _sender, {
        "its commonest choice": greedy(_sender),
        "the best": greedy(_profit),
        "half the best": mixed(_sender, greedy(_profit), 0.5),
        "even chances": even(4),
        "the largest coupon to everybody": lambda seen: np.eye(4)[np.full(len(seen["segment"]), 3)],
    }, 4, 3_000),
    "ward": World(_ward, _dose(0.8, -0.4), {
        "doses by age": _dose(1.2, 0.2, -1.0),
        "doses more often": _dose(0.8, 0.4),
        "doses to the young": greedy(_dose(0.5, 0.3, -2.0)),
        "doses less often": _dose(0.8, -1.2),
        "even chances": even(2),
    }, 2, 900, VISITS),
    "router": World(_router, _by_length, {
        "the best": greedy(lambda seen: _quality(seen) - PRICE),
        "half the best": mixed(_by_length, greedy(lambda seen: _quality(seen) - PRICE), 0.5),
        "the cheapest": lambda seen: np.eye(3)[np.zeros(len(seen["question"]), int)],
        "even chances": even(3),
    }, 3, 3_000),
}  # fmt: skip


@cache
def truths(name: str) -> dict[str, tuple[float, float]]:
    """For every policy, its value less that of the logger, and the standard error.

    A policy draws an action for every decision of the randomised part; its value is the plain mean of the episodes
    whose decisions are all equal to these. The value of the logger is the plain mean of as many of its own episodes.
    """
    world, generator = WORLDS[name], np.random.default_rng(11)
    randomised = world.play(even(world.actions), RANDOMISED, generator)
    reward = randomised["reward"].reshape(RANDOMISED, -1).sum(1)
    own = world.play(world.logger, RANDOMISED, generator)["reward"].reshape(RANDOMISED, -1).sum(1)
    found = {}
    for policy, chances in world.policies.items():
        equal = drawn(generator, chances(randomised["observation"])) == randomised["action"]
        matches = reward[equal.reshape(RANDOMISED, -1).all(1)]
        error = np.hypot(matches.std() / np.sqrt(len(matches)), own.std() / np.sqrt(RANDOMISED))
        found[policy] = (float(matches.mean() - own.mean()), float(error))
    return found


def judged(name: str, seed: int, propensities: str) -> list[dict[str, Any]]:
    """Verdicts on all policies of a world from one log of its biased logger."""
    world = WORLDS[name]
    played = world.play(world.logger, world.episodes, np.random.default_rng([seed, list(WORLDS).index(name)]))
    if propensities == "estimated":
        played.pop("propensity")
    log = tl.Log.from_arrays(**({"terminated": True} | played), actions=world.actions)
    asked = {policy: Policy(chances) for policy, chances in world.policies.items()}
    how = {} if propensities == "recorded" else {"propensities": "estimated"}
    about = {"log": name, "propensities": propensities, "seed": seed}
    rows = []
    for policy, seen in evidence(asked, log, seed, **how).items():
        truth, error = truths(name)[policy]
        found = row(seen, truth)
        rows.append({**about, "policy": policy, "truth": truth, "truth_error": error,
                     **{key: found[key] for key in ("decision", "rule", "interval")}})  # fmt: skip
    return rows


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of verdicts, and how far estimates lie from the truth, in half widths of their intervals."""
    answered = [one for one in rows if one["decision"] != "unsupported"]
    whole = summary(rows)
    whole["answered"] = share(len(answered), len(rows))
    whole["largest_truth_error"] = max(
        (one["truth_error"] / (one["interval"][2] - one["interval"][1]) * 2 for one in answered), default=0.0
    )
    return whole


def over_logs(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The coverage of answered verdicts with a 95% interval over seeds: the policies of one log share its noise."""
    logs: dict[tuple[str, int], list[int]] = {}
    for one in rows:
        if one["decision"] != "unsupported":
            counts = logs.setdefault((one["log"], one["seed"]), [0, 0])
            counts[0] += one["interval"][1] <= one["truth"] <= one["interval"][2]
            counts[1] += 1
    covered, answered = np.asarray(list(logs.values()), float).T
    middle = float(covered.sum() / answered.sum())
    off = covered - middle * answered
    half = 1.96 * float(np.sqrt(len(off) / (len(off) - 1) * (off @ off)) / answered.sum())
    return {"logs": len(off), "share": middle, "low": middle - half, "high": middle + half}


# The Open Bandit sample.


def bandit() -> list[dict[str, Any]]:
    """The value of policies judged from one log of a campaign; the other log is the truth."""
    rows = []
    for campaign in ("men", "women"):
        logs = {
            logger: tl.read_log(
                SHARED / f"data/obd_small/{logger}/{campaign}/{campaign}.csv.gz",
                MAPPINGS / f"open_bandit_{campaign}.toml",
            )
            for logger in ("random", "bts")
        }
        clicks = {logger: np.asarray(log.reward, np.float64) for logger, log in logs.items()}
        shown = {logger: np.asarray(log.action) for logger, log in logs.items()}
        items = logs["bts"].spec.action.n
        frequency = np.bincount(shown["bts"], minlength=items) / len(shown["bts"])
        common = np.zeros(items)
        common[np.argsort(-frequency)[: items // 3]] = 1.0
        sets = {"the items that bts shows most": common, "the other items": 1.0 - common}
        cases: list[tuple[str, str, Floats, Floats]] = [
            ("bts", "even chances", np.full(items, 1.0 / items), clicks["random"]),
            ("random", "shares of bts", frequency, clicks["bts"]),
        ]
        for policy, flags in sets.items():
            matching = clicks["random"][flags[shown["random"]] > 0]
            cases.append(("bts", policy, flags / flags.sum(), matching))
        for logger, policy, chances, matching in cases:
            log, middle = logs[logger], float(matching.mean())
            rule = Policy(lambda seen, chances=chances: np.tile(chances, (len(next(iter(seen.values()))), 1)))
            verdict = tl.judge(rule, log, sample=True, seed=1, ledger=False, progress=False)
            error = float(matching.std(ddof=1) / np.sqrt(len(matching)))
            value = verdict.estimates[verdict.deciding].interval
            within = None
            if value is not None:
                off = value.estimate - middle
                half = (value.estimate - value.low) if off > 0 else (value.high - value.estimate)
                within = bool(abs(off) <= np.hypot(half, 1.96 * error))
            rows.append({
                "campaign": campaign, "judged_on": logger, "policy": policy, "decision": str(verdict.decision),
                "truth": middle, "truth_error": error, "matching": len(matching), "clicks": int(matching.sum()),
                "value": None if value is None else list(value), "holds": within,
            })  # fmt: skip
    return rows


def study(seeds: int = SEEDS, few: int = FEW) -> dict[str, Any]:
    """Judge `seeds` logs of coupons and `few` of each other kind; what came of it is kept after every seed."""
    began, rows, exchanged = time.process_time(), [], bandit()
    content: dict[str, Any] = {}
    for index in range(seeds):
        for name in list(WORLDS) if index < few else list(WORLDS)[:1]:
            for asked in ("recorded", "estimated"):
                rows += judged(name, FIRST_SEED + index, asked)
        groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for one in rows:
            groups.setdefault((one["log"], one["propensities"], one["policy"]), []).append(one)
        content = {
            "seeds": index + 1, "few": min(few, index + 1), "before": BEFORE, "summary": counted(rows),
            "coverage_over_logs": over_logs(rows), "open_bandit": exchanged,
            "groups": [
                dict(zip(("log", "propensities", "policy"), key, strict=True)) | counted(some)
                for key, some in groups.items()
            ],
            "processor_seconds": round(time.process_time() - began),
        }  # fmt: skip
        keep("randomised_part", f"{COMMAND} --seeds {index + 1} --few {min(few, index + 1)}", content, verdicts=rows)
        print(f"{len(rows)} verdicts, {content['processor_seconds']} s of processor", flush=True)
    return content
