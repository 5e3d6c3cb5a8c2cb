"""The parts of docs/evidence.md about the default path of a new user, and about learning beside d3rlpy."""

from typing import Any

from benchmarks.keep import kept, source


def _value(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:+.{digits}g}"


def _with_error(value: float | None, error: float | None) -> str:
    return "" if value is None else _value(value) + ("" if error is None else f" ± {error:.2g}")


def shown(found: dict[str, Any]) -> tuple[int, int]:
    """The splits with something *better* of those in which a two-sample test rejects."""
    return sum(row["of_these_better"] for row in found["table"]), sum(row["power"] for row in found["table"])


def at_least(found: dict[str, Any]) -> tuple[int, int]:
    """The logs with recommendations that are not below the reference by more than a standard error, and their count."""
    acts = [row for row in found["table"] if row["difference_where_it_acts"] is not None]
    good = [row for row in acts if row["difference_where_it_acts"] >= -(row["error_where_it_acts"] or 0.0)]
    return len(good), len(acts)


def league() -> str:
    """What the default path recommends on randomised logs."""
    found = kept("league")
    rows = "\n".join(
        f"| {row['log'].replace('_', ' ')} | {_value(row['gain'])} | {_value(row['reference'])} "
        f"({', '.join(sorted({str(one) for one in row['references']}))}) | "
        f"{_with_error(row['difference_where_it_acts'], row['error_where_it_acts'])} | "
        f"{_with_error(row['difference'], row['error'])} | {row['keeps']} | "
        f"{row['of_these_better']} of {row['power']} |"
        for row in found["table"]
    )
    (good, acts), (better, power) = at_least(found), shown(found)
    head = ("log", "gain over the logger", "gain of the reference", "recommended - reference", "all splits - reference",
            "keeps", "*better* where a test rejects")  # fmt: skip
    return f"""## The default path on randomised logs

Ten field experiments and clinical trials, a campaign of Open Bandit, three generated problems in three units, the
clinic and ICU-Sepsis, {found["splits"]} splits or draws each: {found["train"]:.0%} of a table goes through
`tidelog train iql` with its defaults, and what it recommends is valued on the other rows by the log's own chances, or
exactly. The reference is the best of the best single action, the rule of two questions, Open Bandit Pipeline's learners
by logistic regression and by forests, and EconML's policy tree, by cross-fitted values on the same rows, none of which
it has to hold out for a verdict. Where tidelog recommends something, this is not below the reference by more than a
standard error on {good} of {acts} logs. In {better} of {power} splits in which a two-sample test of the best single
action rejects at the judge's level, something is *better*. The price of asking for evidence is the last difference:
*keep what you have* earns 0.

| {" | ".join(head)} |
|{"---|" * len(head)}
{rows}

Gains per decision (an episode in the clinic and ICU-Sepsis) in the log's unit; ± one standard error over splits.
{source(found)}
"""


def null_path() -> str:
    """Recommendations on logs in which no action matters."""
    found = kept("null_path")
    rows = "\n".join(
        f"| {row['kind']} | {row['logs']} | {row['recommended']} | {row['better']} | {row['better_if_randomised']} |"
        for row in found["cells"]
    )
    whole = found["cells"][0]
    return f"""## The default path where no action matters

{whole["logs"]} logs of eight kinds, in which the reward never depends on an action, through training, the choice among
ways of acting and simple rules, and the verdict. Something was recommended in {whole["recommended"]}; the 97.5% bound
for the promised 2.5% is {whole["bound"]}.

| logs | count | recommended | some candidate *better* | *better if randomised* |
|---|---|---|---|---|
{rows}

{source(found)}
"""


def by_share(found: dict[str, Any]) -> list[tuple[float, float]]:
    """Each share of held-out decisions with its mean gain over all problems."""
    shares = sorted({row["share"] for row in found["cells"]})
    gains = {share: [row["gain"] for row in found["cells"] if row["share"] == share] for share in shares}
    return [(share, sum(some) / len(some)) for share, some in gains.items()]


def held_out() -> str:
    """What several shares of held-out decisions earn."""
    found = kept("held_out")
    shares = [share for share, _ in by_share(found)]
    groups: dict[tuple[Any, ...], dict[float, Any]] = {}
    for row in found["cells"]:
        groups.setdefault((row["problem"], row["reward"], row["rows"]), {})[row["share"]] = row
    rows = "\n".join(
        f"| {problem}, {reward} | {count:,} | "
        + " | ".join(f"{one[share]['gain']:.2f} ± {one[share]['error']:.2f}" for share in shares)
        + " |"
        for (problem, reward, count), one in groups.items()
    )
    means = " | ".join(f"**{gain:.2f}**" for _, gain in by_share(found))
    logs = found["cells"][0]["logs"]
    return f"""## How many decisions judge what the others teach

Generated logs of single decisions with three actions, {logs} each: the true gain of what the default path recommends,
as a share of the best policy's gain, by the held-out share; *keep what you have* counts 0. ± one standard error.

| problem, reward | decisions | {" | ".join(f"{share:.0%} held out" for share in shares)} |
|---|---|{"---|" * len(shares)}
{rows}
| mean | | {means} |

{source(found)}
"""


def peers_learning() -> str:
    """IQL, BCQ, BC and discrete BCQ beside d3rlpy."""
    found = kept("peers_learning")
    rows = "\n".join(
        f"| {row['task']}, {row['log']} | {row['algorithm'].replace('_', ' ')} | {row['way']} "
        f"| {len(row['returns'])} | "
        f"{round(row['mean'][0]):,} ({round(row['mean'][1]):,} to {round(row['mean'][2]):,}) "
        f"| {round(min(row['returns'])):,} |"
        for row in sorted(found["parts"], key=lambda row: (row["task"], row["algorithm"], row["log"]))
    )
    return f"""## Short trainings beside d3rlpy

Logs of mixed quality of Pendulum and CartPole and of imperfect demonstrations of Hopper, {found["steps"]:,} updates,
the same settings where both libraries have them; mean returns of {found["played"]} episodes a seed with 95% t intervals
over seeds. BCQ has layers of 128 units on both sides. The ways exchange one part each; *as before* is features and
rewards as they came.

| task, log | algorithm | way | seeds | return | worst seed |
|---|---|---|---|---|---|
{rows}

{source(found)}
"""
