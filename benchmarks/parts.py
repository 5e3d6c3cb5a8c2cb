"""Parts of policies whose whole has no support: how often the log can answer, and how often the answer is wrong.

Problems with exact values. Sequences: the treatment problem of `benchmarks/calibration.py` with its eight
policies, 2,500 episodes, propensities recorded or estimated, without and with as many training episodes; parts are by
share, with training episodes also of the decisions that the log shows. Single decisions: a shop with twenty
segments and three, six or ten offers, of which the behaviour policy explores some segments; the policy makes the offers
that earned most in 3,000 training decisions, and 3,000 others are judged; parts are by support. In a third of the shops
no offer matters. Three more problems hide a deed that was never logged and costs much, among others that gain: in a
quarter of the cases, in a fifth of those that the behaviour policy never varied, or at the third of five steps
(`benchmarks/adversarial_worlds.py`); the last also where all else that the policy changes gains or loses nothing, or
loses.

Counted are verdicts on the whole that say *better*, verdicts of which a part is *better*, such claims that are wrong
(the part, exactly, is no better), and how often the interval of the largest better part covers its exact difference.

`python -m benchmarks parts [--logs 100] [--workers 2]`: some 6 seconds a log; a stopped run goes on.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tidelog as tl
from benchmarks.adversarial import state
from benchmarks.adversarial_worlds import partly_fixed, quarter, unsupported_step
from benchmarks.calibration import PROPENSITIES, TRAIN_SEED, gain, made_log, part_gain, policies
from benchmarks.keep import keep, share
from benchmarks.problems import Table
from benchmarks.spread import scratch, spread
from tidelog.ope.decide import Assessment, decide, look_at
from tidelog.ope.judge import gather, question_of
from tidelog.ope.ladder import climb
from tidelog.ope.verdict import LadderStep

NAME, COMMAND, FIRST_SEED, SEGMENTS = "parts", "python -m benchmarks parts", 90_000, 20
GAINS = (0.2, 0.08, 0.0)  # of offers in the shops, standard deviations


def judged(policies: dict[str, Any], log: tl.Log, seed: int, **how: Any) -> list[Assessment]:
    """The decided assessments of policies that are each judged alone."""
    found = []
    for name, policy in policies.items():
        question = question_of({name: policy}, log, True, seed=seed, ledger=False, progress=False,
                               learnt_from="other data", **how)  # fmt: skip
        found += gather(question)
        look_at(found[-1:], question)
        decide(found[-1])
    return found


def row(a: Assessment, truth: float, part_truth: Any) -> dict[str, Any]:
    """The decision on the whole and on its largest better part, beside the truth; `part_truth(step)` is that of it."""
    better = [one for one in climb(a) if one.decision == "better"]
    last = better[-1] if better else None
    return {
        "decision": a.decision, "truth": truth, "asked": a.ladder is not None,
        "part": None if last is None else [last.share, *last.difference, part_truth(last)],
    }  # fmt: skip


def sequences(seed: int, propensities: str, training: bool) -> list[dict[str, Any]]:
    """The policies of the treatment problem on one log, without or with training episodes."""
    name, log = "treatment", made_log("treatment", 2_500, seed)
    known = {"train": made_log(name, 2_500, seed + TRAIN_SEED)} if training else {}
    kind = f"sequences, {propensities}{', training episodes' if training else ''}"
    return [
        {"kind": kind, "target": a.name, **row(a, gain(name, a.name), partial(part_gain, name, a.name, a))}
        for a in judged(policies(name), log, seed, propensities=PROPENSITIES[propensities], model="tabular", **known)
    ]


def decisions(seed: int, gain: float) -> list[dict[str, Any]]:
    """The policy of one shop."""
    random = np.random.default_rng([seed, round(1_000 * gain)])
    offers, explored, rare = int(random.choice([3, 6, 10])), int(random.choice([0, 4, 8])), random.choice([0.01, 0.03])
    chances = np.full((SEGMENTS, offers), rare)
    chances[np.arange(SEGMENTS), np.arange(SEGMENTS) % offers] = 1.0 - rare * (offers - 1)
    chances[:explored] = 1.0 / offers
    bought = np.clip(0.3 + gain * np.clip(random.standard_normal((SEGMENTS, offers)), -1.5, 1.5), 0.0, 1.0)
    segment = random.integers(SEGMENTS, size=6_000)
    offer = (chances[segment].cumsum(axis=1) > random.random((6_000, 1))).argmax(axis=1)
    reward = (random.random(6_000) < bought[segment, offer]).astype(np.float32)
    log = tl.Log.from_arrays(
        observation=np.eye(SEGMENTS, dtype=np.float32)[segment], action=offer, reward=reward, terminated=True,
        propensity=chances[segment, offer],
    )  # fmt: skip
    train, held_out = log.take_episodes(np.arange(3_000)), log.take_episodes(np.arange(3_000, 6_000))
    sums, counts = np.zeros((SEGMENTS, offers)), np.zeros((SEGMENTS, offers))
    np.add.at(sums, (segment[:3_000], offer[:3_000]), reward[:3_000])
    np.add.at(counts, (segment[:3_000], offer[:3_000]), 1.0)
    table = np.eye(offers)[((sums + 0.6) / (counts + 2.0)).argmax(axis=1)]
    gains = ((table - chances) * bought).sum(axis=1) / SEGMENTS  # of each segment

    (a,) = judged(
        {"offers": Table(table, lambda seen: seen["observation"].argmax(axis=1))}, held_out, seed, train=train
    )

    def gain_of(step: LadderStep) -> float:
        followed = np.zeros(SEGMENTS)
        followed[segment[3_000:]] = a.ladder.ratio <= step.level
        return float(followed @ gains)

    kind = f"single decisions, {'no effect' if gain == 0.0 else f'effects of {gain:g}'}"
    return [{"kind": kind, "target": "most bought", **row(a, float(gains.sum()), gain_of)}]


HIDDEN = {"a quarter never logged": quarter, "half never varied": partly_fixed}


def hidden(seed: int, name: str, propensities: str) -> list[dict[str, Any]]:
    """A policy of single decisions with a deed that the log does not show."""
    bandit, generator = HIDDEN[name](), np.random.default_rng([seed, len(name), len(propensities)])
    train, held_out = bandit.draw(generator, 2_000, propensities).log.split(0.5, seed)
    policy = {"policy": Table(bandit.target)}
    (a,) = judged(policy, held_out, seed, train=train, propensities=PROPENSITIES[propensities])
    context = np.asarray(held_out.transitions.observation["context"]).reshape(-1)
    gains = bandit.odds * ((bandit.target - bandit.behavior_policy[0]) * bandit.worth[0]).sum(axis=1)  # of each context

    def gain_of(step: LadderStep) -> float:
        followed = np.zeros(len(gains))
        followed[context] = a.ladder.ratio <= step.level
        return float(followed @ gains)

    return [{"kind": f"{name}, {propensities}", "target": "policy", **row(a, bandit.truth, gain_of)}]


def hidden_step(seed: int, propensities: str, training: bool = False, gain: float = 2 / 3) -> list[dict[str, Any]]:
    """A policy of five steps with such a deed at the third; the others gain `gain` each time that it changes them."""
    generator = np.random.default_rng([seed, len(propensities)])
    drawn = unsupported_step(generator, 600, propensities, gain=gain)
    known = {"train": unsupported_step(generator, 600, propensities, gain=gain).log} if training else {}
    (a,) = judged({"policy": drawn.policies[0]}, drawn.log, seed, propensities=PROPENSITIES[propensities], **known)
    context = np.asarray(drawn.log.transitions.observation["context"]).reshape(-1)

    def gain_of(step: LadderStep) -> float:
        """What a share gains is that share of what the whole gains where it is followed."""
        if step.largest_ratio is None or (a.ladder.ratio[context == 3] <= step.largest_ratio).any():
            return step.level * drawn.truth
        return step.level * (drawn.truth + 0.25 * 20.0)

    kind = f"a step never logged, {propensities}{', training episodes' if training else ''}"
    kind += "" if gain > 0.0 else ", no effect" if gain == 0.0 else ", a loss"
    return [{"kind": kind, "target": "policy", **row(a, drawn.truth, gain_of)}]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over verdicts of one kind; intervals of shares are Wilson's, at 95%."""
    parts = [one for one in rows if one["part"] is not None]
    wrong = sum(one["part"][4] <= 1e-9 for one in parts)
    return {
        "verdicts": len(rows), "better": sum(one["decision"] == "better" for one in rows),
        "without support": sum(one["asked"] for one in rows), "part better": len(parts),
        "part better though not": share(wrong, sum(one["asked"] for one in rows)) if parts else None,
        "covered": share(sum(one["part"][2] <= one["part"][4] <= one["part"][3] for one in parts), len(parts))
        if parts else None,
    }  # fmt: skip


def study(logs: int = 100, workers: int = 2) -> dict[str, Any]:
    """Judge all logs, and keep the counts of each kind."""

    def jobs() -> Iterator[tuple[Any, ...]]:
        for seed in range(FIRST_SEED, FIRST_SEED + logs):
            yield from ((sequences, seed, kind, training) for kind in PROPENSITIES for training in (False, True))
            yield from ((decisions, seed, gain) for gain in GAINS)
            yield from ((hidden, seed, name, kind) for name in HIDDEN for kind in PROPENSITIES)
            yield from ((hidden_step, seed, kind) for kind in PROPENSITIES)
            yield from ((hidden_step, seed, kind, True, gain) for kind in PROPENSITIES for gain in (2 / 3, 0.0, -0.1))

    rows = [one for part in spread(jobs(), scratch(NAME) / state(), workers) for one in part]
    kinds = {
        kind: summary([one for one in rows if one["kind"] == kind]) for kind in sorted({one["kind"] for one in rows})
    }
    content = {"logs": logs, "kinds": kinds}
    keep(NAME, f"{COMMAND} --logs {logs}", content)
    for kind, counts in kinds.items():
        print(kind, counts)
    return content
