"""How often the best of thirty policies is called better on logs of noise, one by one and at once.

Policies that were drawn at random are judged on logs whose rewards depend on nothing, so that none is better than the
behaviour policy. Four rules: every policy by itself at 95% (what `tl.judge` did before looks were counted); in turn
with the error divided by the number of looks so far, which is not what `tl.judge` does and shows why; in turn as the
ledger has it; and at once. After the table of all at once, one more policy is made from its results: the mixture in the
direction of all estimates. It is judged by the ledger's rule, and by the level of a second look alone, which is not
what `tl.judge` does either. The best of the table judged again is the same look, so it needs no rule. Counted are logs
in which some policy was called better, and decisions of each kind. `python -m benchmarks looks [--logs 200]`.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.keep import keep, share
from benchmarks.problems import Table
from tidelog.data.log import Log
from tidelog.ope.decide import Assessment, decide
from tidelog.ope.intervals import adaptive_deviate, critical_values, normal_deviate, spent_error
from tidelog.ope.judge import gather, question_of

COMMAND = "python -m benchmarks looks"
POLICIES, LOGS, ACTIONS, STATES = 30, 200, 4, 5
RULES = ("alone", "error over looks", "ledger", "at once", "made from results", "made from results, level alone")

Sampler = Any  # (generator, rows) -> rewards


def normal(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Rewards of a normal distribution."""
    return generator.standard_normal(rows)


def clicks(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Rewards of 1 in one row of ten."""
    return (generator.random(rows) < 0.1).astype(np.float64)


def long_tailed(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Rewards of which few are very large."""
    return np.exp(generator.standard_normal(rows))


# problem -> rewards, episodes, steps an episode, concentration of the policies' chances, share of even chances in them
PROBLEMS: dict[str, tuple[Sampler, int, int, float, float]] = {
    "normal, 300 episodes of 1 step": (normal, 300, 1, 2.0, 0.0),
    "clicks, 500 episodes of 1 step": (clicks, 500, 1, 2.0, 0.0),
    "log-normal, 300 episodes of 1 step": (long_tailed, 300, 1, 2.0, 0.0),
    "normal, 200 episodes of 4 steps": (normal, 200, 4, 2.0, 0.5),
}


def policy_of(chances: np.ndarray) -> Table:
    """A policy by the state that is seen, [S, A]."""
    return Table(chances, lambda seen: next(iter(seen.values()))[:, 0])


def drawn(name: str, seed: int) -> tuple[Log, dict[str, Table]]:
    """A log of noise, and policies that know nothing of it."""
    reward, episodes, steps, concentration, even = PROBLEMS[name]
    generator = np.random.default_rng([seed, list(PROBLEMS).index(name)])
    rows = episodes * steps
    log = Log.from_arrays(
        observation=generator.integers(0, STATES, rows), action=generator.integers(0, ACTIONS, rows),
        reward=reward(generator, rows), terminated=np.arange(rows) % steps == steps - 1,
        episode=np.repeat(np.arange(episodes), steps), propensity=np.full(rows, 1 / ACTIONS), actions=ACTIONS,
    )  # fmt: skip
    chances = generator.dirichlet(np.full(ACTIONS, concentration), (POLICIES, STATES + 1))
    return log, {f"{at}": policy_of(even / ACTIONS + (1 - even) * one) for at, one in enumerate(chances)}


def decisions(name: str, seed: int) -> dict[str, list[str]]:
    """The decision on each policy under each rule."""
    log, policies = drawn(name, seed)
    options = {"ledger": False, "progress": False}
    question = question_of(policies, log, True, **options)
    cases = gather(question)
    level = question.limits.level
    together = critical_values([case.deciding_ratios for case in cases], cases[0].confidence, 1.0 - level)
    looks = np.arange(1, POLICIES + 1)
    reach = {
        "alone": np.full(POLICIES, normal_deviate(1.0 - level)),
        "error over looks": [normal_deviate((1.0 - level) / number) for number in looks],
        "ledger": [adaptive_deviate(spent_error(level, number), number - 1) for number in looks.tolist()],
        "at once": together,
    }
    said: dict[str, list[str]] = {rule: [] for rule in RULES}
    for place, case in enumerate(cases):
        alone = decide(case).decision
        for rule in reach:
            decision = alone
            if rule != "alone" and alone in ("better", "worse"):  # else longer arms change nothing
                widening = float(reach[rule][place]) / normal_deviate(1.0 - level)
                decision = decide(replace(case, widening=max(widening, 1.0))).decision
            said[rule].append(decision)
    second = spent_error(level, 2)
    deviates = {RULES[4]: adaptive_deviate(second, POLICIES), RULES[5]: normal_deviate(second)}
    (one,) = gather(question_of(made(policies, cases), log, True, **options))
    for rule, deviate in deviates.items():
        said[rule].append(decide(replace(one, widening=deviate / normal_deviate(1.0 - level))).decision)
    return said


def made(policies: dict[str, Table], cases: list[Assessment]) -> Table:
    """Even chances, moved along every policy by its estimated difference in standard errors, [S, A]."""
    ratios = [case.deciding_ratios for case in cases]
    scores = [one.estimate / max(float(one.contributions.std() / np.sqrt(len(one))), 1e-12) for one in ratios]
    moved = np.mean([s * (one.chances - 1 / ACTIONS) for s, one in zip(scores, policies.values(), strict=True)], axis=0)
    moved = 1 / ACTIONS + moved * 0.9 / (ACTIONS * np.abs(moved).max())
    return policy_of(moved / moved.sum(axis=1, keepdims=True))


def counted(name: str, logs: int) -> dict[str, Any]:
    """How often each rule called some policy better, or worse, over many logs of a problem."""
    found = [decisions(name, seed) for seed in range(logs)]
    row: dict[str, Any] = {"problem": name, "logs": logs, "policies": POLICIES, "rules": {}}
    for rule in RULES:
        better, worse = (sum(kind in one[rule] for one in found) for kind in ("better", "worse"))
        every = [decision for one in found for decision in one[rule]]
        row["rules"][rule] = {
            "logs_with_some_better": better,
            "wilson_95": [share(better, logs)[end] for end in ("low", "high")],
            "logs_with_some_worse": worse,
            "decisions": {kind: every.count(kind) for kind in sorted({*every})},
        }
    print(row, flush=True)
    return row


def study(logs: int = LOGS) -> None:
    """Count, and keep what was counted."""
    keep("looks", COMMAND, {"rows": [counted(name, logs) for name in PROBLEMS]})
