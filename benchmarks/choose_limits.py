"""Which limits on support a verdict needs: the loosest that keep its promises, chosen on logs of their own.

The rule was set before any number was seen. Policies of known worth are judged from logs of seeds that no reported
figure uses, the evidence is kept, and every set of limits of `GRID` rules on it. A set is *admissible* where

- the share of wrong *better* among the verdicts on policies that are no better is at most 2.5 %, and the upper end of
  its Wilson interval at most 5 %; the same for *worse*;
- the 95 % intervals of supported verdicts do not cover the truth less often than 95 %, up to sampling error (the upper
  end of Wilson's interval is at least 95 %): over all of them, and for each problem with each kind of propensities.

Of the admissible sets the one is taken that answers most often; of equals, the tightest.

`python -m benchmarks.choose_limits again` chooses from the kept evidence, without judging anew.
"""

import itertools
import sys
from dataclasses import asdict, fields

from benchmarks.calibration import NOTHING_KNOWN, done, exact, jobs, refits, share, shown_of
from benchmarks.keep import keep, kept
from tidelog.judging.deciding import Shown, ruled
from tidelog.judging.limits import Limits

NAME = "calibration_limits"
COMMAND = "python -m benchmarks.choose_limits"
FIRST_SEED, LOGS, FEW = 5_000, 12, 2
SMALL, MANY = 600, 24  # episodes, where the limit on the number of effective ones is felt, and logs of so many
WRONG, MOST_WRONG, LEVEL = 0.025, 0.05, 0.95
GRID: dict[str, tuple[float, ...]] = {  # from tight to loose
    "unsupported_mass": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0),
    "effective_episodes": (100.0, 50.0, 25.0),
    "effective_share": (0.1, 0.05, 0.02, 0.01),
    "largest_weight": (0.05, 0.1, 0.2),
    "pareto_k": (0.5, 0.7, 1.0),
    "mean_weight_errors": (2.0, 3.0, 5.0),
}


def chosen_jobs() -> list[tuple]:
    """What is judged to choose by."""
    small = [(exact, "treatment", SMALL, seed, "recorded") for seed in range(FIRST_SEED, FIRST_SEED + MANY)]
    return small + [job for job in jobs(FIRST_SEED, LOGS, FEW) if job[0] is not refits]


def judged(rows: list[dict], seen: list[Shown], limits: Limits) -> dict:
    """What a set of limits makes of the evidence, and whether it is admissible."""
    said = [ruled(one, limits, NOTHING_KNOWN)[0] for one in seen]
    supported = [row for row, what in zip(rows, said, strict=True) if what != "unsupported"]
    groups: dict[str, list[dict]] = {}
    for row in supported:
        groups.setdefault(f"{row['problem']}, {row['propensities']}", []).append(row)
    wrong = {
        what: share(
            sum(one == what for one, row in zip(said, rows, strict=True) if side * row["truth"] <= 1e-9),
            sum(side * row["truth"] <= 1e-9 for row in rows),
        )
        for what, side in (("better", 1.0), ("worse", -1.0))
    }
    covered = {"all": _covered(supported), **{name: _covered(group) for name, group in groups.items()}}
    honest = all(one["share"] <= WRONG and one["high"] <= MOST_WRONG for one in wrong.values())
    covers = all(one["high"] >= LEVEL for one in covered.values() if one["of"])
    return {"answered": len(supported), "wrong": wrong, "covered": covered, "admissible": honest and covers}


def _covered(rows: list[dict]) -> dict:
    inside = (row["shown"]["difference"][1] <= row["truth"] <= row["shown"]["difference"][2] for row in rows)
    return share(sum(inside), len(rows))


def sets() -> list[Limits]:
    """Every set of limits of the grid, tight ones first."""
    return [Limits(**dict(zip(GRID, values, strict=True))) for values in itertools.product(*GRID.values())]


def looseness(limits: Limits) -> int:
    """How many steps of the grid a set is away from the tightest."""
    return sum(values.index(getattr(limits, name)) for name, values in GRID.items())


def choose(rows: list[dict]) -> dict:
    """The chosen limits, what speaks for them, and what each step further would do."""
    seen = [shown_of(row) for row in rows]
    found = [(limits, judged(rows, seen, limits)) for limits in sets()]
    admissible = [one for one in found if one[1]["admissible"]]
    best, why = max(admissible, key=lambda one: (one[1]["answered"], -looseness(one[0])))
    before = Limits(**SPECIFIED)
    return {
        "grid": GRID,
        "verdicts": len(rows),
        "sets": len(found),
        "admissible": len(admissible),
        "chosen": named(best),
        "of_chosen": why,
        "of_specified": judged(rows, seen, before),
        "one_step_looser": [{**one, **judged(rows, seen, Limits(**{**named(best), **one}))} for one in _looser(best)],
    }


SPECIFIED = {
    "unsupported_mass": 0.05, "effective_episodes": 50.0, "effective_share": 0.05, "largest_weight": 0.1,
    "pareto_k": 0.7, "mean_weight_errors": 3.0,
}  # fmt: skip


def named(limits: Limits) -> dict:
    """The limits of the grid by name."""
    return {field.name: asdict(limits)[field.name] for field in fields(limits) if field.name in GRID}


def _looser(limits: Limits) -> list[dict]:
    found = []
    for name, values in GRID.items():
        at = values.index(getattr(limits, name)) + 1
        found += [{name: values[at]}] if at < len(values) else []
    return found


if __name__ == "__main__":
    again = sys.argv[1:] == ["again"]  # from kept evidence
    rows = kept(NAME)["evidence"] if again else [row for part in done(chosen_jobs()) for row in part]
    result = choose(rows)
    keep(NAME, COMMAND, result, evidence=rows)
    print(result["chosen"], result["of_chosen"], sep="\n")
