"""The parts of docs/evidence.md about verdicts, from their kept results."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.calibration import KEYS, coverage_over_seeds
from benchmarks.keep import RESULTS, kept, source

JUDGES = {
    "tidelog": "tidelog", "obp": "OBP", "sb-obp": "sb-obp", "scope-rl": "SCOPE-RL", "skdr-eval": "skdr-eval",
    "skdr-eval, its advice": "skdr-eval's advice to deploy",
}  # fmt: skip
JUDGE_COLUMNS = (
    "judge",
    "version",
    "answered",
    "*better* of what is not",
    "*worse* of what is not",
    "*better* of what is",
    "no log can: answered",
    "*better* of what is not",
)
BAND_COLUMNS = (
    "episodes",
    "logs",
    "everything at once",
    "CVaR difference",
    "CVaR, tail below the log included",
    "a CVaR difference of the wrong sign",
)
OLDER = (
    "Measured before intervals reached as far as [permutations](judging-appendix.md#rare-clicks) do: today's are as "
    "long or longer, so no more is called *better* or *worse*, and no less is covered."
)


def _header(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


def calibration() -> str:
    """Verdicts on policies of known worth."""
    found = kept("calibration")
    rows = "\n".join(_calibrated(group) for group in found["groups"])
    whole, refitted, over = found["summary"], found["refits"], coverage_over_seeds(found["verdicts"])
    ratios = ", ".join(f"{one['half_width'] / one['refitted_half_width']:.2f}" for one in refitted)
    return f"""## How often verdicts are right

One verdict, at the defaults, for each log and each policy of known worth; the difference is from whoever made the log.
Coverage and errors are counts of verdicts; 95% intervals of shares are Wilson's. {OLDER}

| problem | propensities | episodes | policy | true difference | unsupported | better | worse | interval covers |
|---|---|---|---|---|---|---|---|---|
{rows}

Of {whole["verdicts"]:,} verdicts {whole["unsupported"]:,} were *unsupported*. Among the others the 95% interval of the
difference covered the truth in {_of(whole["covered"])}; over the
{over["seeds"]} seeds of logs, which are independent, that is {over["low"]:.1%} to {over["high"]:.1%}.
*Better* was said of
{_of(whole["better_though_not"])} that were not; *worse* of {_of(whole["worse_though_not"])} that were not.
Width of the interval over that of 50 refits of everything, log by log: {ratios}.
{_chosen_limits()}
{_judged_again(found["verdicts"])}
{source(found)} All policies of a problem are judged from the same logs: their verdicts are not
independent.
"""


def _judged_again(before: Sequence[dict]) -> str:
    """What a newer judge says of some of the same logs."""
    found = kept("calibration_again")
    was, now = (_decisions(packs) for packs in (before, found["verdicts"]))
    changed = Counter((was[one], decision) for one, decision in now.items() if was[one] != decision)
    told = "; ".join(f"{count} from *{old}* to *{new}*" for (old, new), count in sorted(changed.items())) or "none"
    one = found["summary"]
    return f"""
The judge with permutations ruled again on {len(now):,} of these verdicts (`{found["command"]}`): changed are {told}.
There *better* was said of {_of(one["better_though_not"])} that were not, *worse* of {_of(one["worse_though_not"])} that
were not, and the interval covered the truth in {_of(one["covered"])}.
"""


def _decisions(packs: Sequence[dict]) -> dict[tuple, str]:
    """The decision on each log and policy; `packs` are the rows of `calibration.packed`."""
    return {
        (*(pack[key] for key in KEYS), seed): decision
        for pack in packs
        for seed, decision in zip(pack["seed"], pack["decision"], strict=True)
    }


def randomised_part() -> str:
    """Verdicts on biased logs, beside the plain means of a randomised part."""
    found = kept("randomised_part")
    whole, over, before = found["summary"], found["coverage_over_logs"], found["before"]
    rows = "\n".join(
        f"| {one['log']} | {one['propensities']} | {one['policy']} | {one['truth']:+.3f} | "
        f"{one['answered']['count']} of {one['verdicts']} | {one['better']} | {one['worse']} | "
        f"{_covered(one['covered'])} |"
        for one in found["groups"]
    )
    exchanged = "\n".join(
        f"| {one['campaign']} | {one['judged_on']} | {one['policy']} | {one['decision']} | {one['value'][0]:.4f} "
        f"({one['value'][1]:.4f} to {one['value'][2]:.4f}) | {one['truth']:.4f} "
        f"({one['clicks']} of {one['matching']:,}) | "
        f"{'yes' if one['holds'] else 'no'} |"
        for one in found["open_bandit"]
    )
    earlier = kept("calibration")["summary"]
    answered = 1.0 - earlier["unsupported"] / earlier["verdicts"]
    unknown = sum(one["better"] for one in found["groups"] if one["propensities"] == "estimated")
    return f"""## A randomised part as the truth

Generated logs in the shape of real ones: coupons (3,000 decisions, a table of labels), a ward (900 patients of
four visits) and a router (3,000 questions, heavy-tailed costs). A biased logger makes the judged part. The truth is the
plain mean of the randomised decisions that match the policy, from 600,000 episodes, less the mean of as many of the
logger's; its standard error is at most {whole["largest_truth_error"]:.0%} of half an interval.

| log | propensities | policy | true difference | answered | better | worse | interval covers |
|---|---|---|---|---|---|---|---|
{rows}

Answered: {_of(whole["answered"])}. Intervals cover the truth in
{_of(whole["covered"])};
over the {over["logs"]} logs with their seeds {over["low"]:.1%} to {min(over["high"], 1.0):.1%}. *Better* was said of
{_of(whole["better_though_not"])} that were not, *worse* of
{_of(whole["worse_though_not"])} that were not.
The first version held in {before["covered"]} of {before["supported"]} supported verdicts on twelve logs; the problems
of the section before answer {answered:.0%} and cover {earlier["covered"]["share"]:.1%}.
Intervals here are wider than 95% asks for.
With estimated propensities *better* is said
{unknown} times: smaller gains do not outlast the allowance for a hidden cause.

In the small sample of the Open Bandit Dataset (10,000 rows a log) the even log and that of Bernoulli Thompson sampling
are the truth of each other; holds: the estimate and the plain mean differ by no more than their joint error.

| campaign | judged on | policy | verdict | estimated clicks a row | plain mean | holds |
|---|---|---|---|---|---|---|
{exchanged}

Command: `{found["command"]}` ({found["processor_seconds"]} s of one core). The policies of one log share its noise.
"""


def _chosen_limits() -> str:
    """How the default limits were chosen, on other logs."""
    found = kept("calibration_limits")
    one, before = found["of_chosen"], found["of_specified"]
    limits = ", ".join(f"`{name}` {value:g}" for name, value in found["chosen"].items())
    worlds = one["adversarial"]
    return f"""
The limits on support were chosen on logs of other seeds (by `benchmarks/choose_limits.py` in the history): of
{found["sets"]:,} sets of a grid, {found["admissible"]:,} kept the promises there. Of those that answer most often, up
to one answer in a hundred, the one nearest to the limits that stood was taken:
{limits}. It answers {one["answered"]} of {one["of"]} verdicts on these problems and covers
{_of(one["covered"]["all"])}; in the adversary's worlds *better* is wrong {worlds["wrong_better"]} times and *worse*
{worlds["wrong_worse"]} times in {worlds["verdicts"]:,} verdicts. The limits proposed before any study answer
{before["answered"]} and cover
{_of(before["covered"]["all"])}.
"""


def _verdict_speed(name: str, case: dict) -> str:
    bound = "" if case["bound_seconds"] is None else f"{case['bound_seconds']:.0f}"
    median, model = case["median"], case["rows"][0]["model"]
    used = f"{median['processor_seconds']:.1f}" if "processor_seconds" in median else ""
    return f"| {name} | {model} | {median['seconds']:.1f} | {used} | {bound} | {median['megabytes']:,.0f} MB |"


def _calibrated(group: dict) -> str:
    share = _covered(group["covered"])
    cells = [
        group["problem"],
        group["propensities"],
        f"{group['episodes']:,}",
        group["target"],
        f"{group['truth']:+.3g}",
    ]
    cells += [f"{group['unsupported']} of {group['verdicts']}", str(group["better"]), str(group["worse"]), share]
    return f"| {' | '.join(cells)} |"


def _of(share: dict) -> str:
    if not share["of"]:
        return "none of 0"
    return f"{share['count']} of {share['of']} ({share['share']:.1%}, {share['low']:.1%} to {share['high']:.1%})"


def judging_speed() -> str:
    """How long judging takes."""
    cases, verdict = kept("judging_speed"), kept("verdict_speed")
    rows = "\n".join(
        f"| {name}: {case['episodes']:,} episodes, {case['steps']:,} steps | {len(case['each']) - 1} | "
        f"{case['seconds']:.1f} | {case['peak_bytes'] / 2**20:,.0f} MB | {case['log_bytes'] / 2**20:,.0f} MB |"
        for name, case in cases["cases"].items()
    )
    whole = "\n".join(_verdict_speed(name, case) for name, case in verdict["cases"].items())
    return f"""## Speed of judging

Estimates with their intervals ({cases["interval"]}, {cases["replicates"]:,} replicates) and measures of support, given
probabilities and model values; the median of {len(next(iter(cases["cases"].values()))["runs"])} processes.

| log | estimators | seconds | peak | of which the log |
|---|---|---|---|---|
{rows}

A whole verdict, of {verdict["repeats"]} fresh processes the median; memory is all that the process held. Processor
seconds stand where other work shared the two cores:

| log | model | seconds | processor seconds | bound | memory |
|---|---|---|---|---|---|
{whole}
{_fqe()}
{source(cases, verdict, kept("fqe_speed"))}
"""


def _fqe() -> str:
    found = kept("fqe_speed")
    best = {kind: (max(found[kind]["fqe"]), max(found[kind]["iql_critic_part"])) for kind in ("continuous", "discrete")}
    rows = "\n".join(f"| {k} | {a:,.0f} | {b:,.0f} | {found[k]['ratio']:.2f} |" for k, (a, b) in best.items())
    return f"""
Fitted Q evaluation by networks beside IQL's critic part alone, in one process, in turn; updates a second, the best of
{len(found["discrete"]["fqe"])}, and the median ratio:

| actions | fitted Q evaluation | IQL's critic part | ratio |
|---|---|---|---|
{rows}
"""


# Worlds that an adversary chose.


def adversarial() -> str:
    """Verdicts in the adversary's worlds, and what the log cannot show in some of them."""
    if not (RESULTS / "adversarial.json").exists():
        return ""
    found = kept("adversarial")
    cells = found["cells"]
    asked = [cell for cell in cells if "words" not in cell]
    cannot = [cell for cell in cells if "words" in cell]
    promises, before, again = found["promises"], kept("adversarial_before"), kept("adversarial_again")
    newer = again["cells"]
    rows = "\n".join(_world_line(world, [cell for cell in asked if cell["world"] == world]) for world in _worlds(asked))
    lines = "\n".join(
        _impossible_line(world, variant, [one for one in cannot if (one["world"], one["variant"]) == (world, variant)])
        for world, variant in dict.fromkeys((cell["world"], cell["variant"]) for cell in cannot)
    )
    kept_cells = promises.get("kept", 0) + promises.get("kept by its words", 0)
    return f"""## Verdicts in worlds chosen against the judge

{len(cells)} cells: a variant of a world at one number of episodes, {found["logs"]} logs each
({found["logs_of_networks"]} where networks are trained). A cell keeps its promise where *better* and *worse* are each
wrong in at most {found["promised"]:.1%} of its logs, up to the error of the simulation (exact binomial test, 1%), or
where every wrong verdict says in its own words what the log cannot show. {kept_cells} of {len(cells)} cells keep it
({promises.get("kept by its words", 0)} of them by words); {_broken(cells)}.
When the worlds were written, the judge of then did not keep {_count(before)}. {OLDER}
Today's judge, with permutations of whole clusters, ruled on {len(newer)} cells of
{", ".join(f"*{world}*" for world in _worlds(newer))} again, {again["logs"]} logs each: {_broken(newer)}
(`{again["command"]}`).

Worlds in which a log can show the truth; shares are of the worst cell:

| world | cells | logs | *better*, wrong | *worse*, wrong | answered | broken cells |
|---|---|---|---|---|---|---|
{rows}

Worlds in which it cannot; every number of episodes together. `said` counts the wrong verdicts whose text names the
limitation:

| world | variant | logs | true difference | *better*, wrong | *worse*, wrong | said |
|---|---|---|---|---|---|---|
{lines}

{source(found)}
"""


def _worlds(cells: Sequence[dict]) -> list[str]:
    return list(dict.fromkeys(cell["world"] for cell in cells))


def _world_line(world: str, cells: Sequence[dict]) -> str:
    answered = [1.0 - cell["decisions"]["unsupported"] / cell["logs"] for cell in cells]
    broken = sum(not cell["promise"].startswith("kept") for cell in cells)
    spread = f"{min(answered):.0%} to {max(answered):.0%}"
    cells_and_logs = f"{len(cells)} | {sum(cell['logs'] for cell in cells):,}"
    return (
        f"| {world} | {cells_and_logs} | {_worst(cells, 'better')} | {_worst(cells, 'worse')} | {spread} | {broken} |"
    )


def _worst(cells: Sequence[dict], side: str) -> str:
    worst = max((cell[f"wrong_{side}"] | {"of": cell["logs"]} for cell in cells), key=lambda one: one["share"])
    return f"{worst['count']} of {worst['of']} (at most {worst['high']:.1%})"


def _impossible_line(world: str, variant: str, cells: Sequence[dict]) -> str:
    logs = sum(cell["logs"] for cell in cells)
    better, worse = (sum(cell[f"wrong_{side}"]["count"] for cell in cells) for side in ("better", "worse"))
    wrong, said = (sum(cell[name] for cell in cells) for name in ("wrong", "said_where_wrong"))
    truths = sorted({round(cell["truth"], 3) for cell in cells})
    truth = f"{truths[0]:+.3g}" if len(truths) == 1 else f"{truths[0]:+.3g} to {truths[-1]:+.3g}"
    return f"| {world} | {variant} | {logs:,} | {truth} | {better} | {worse} | {said} of {wrong} |"


def _broken(cells: Sequence[dict]) -> str:
    broken = [cell for cell in cells if not cell["promise"].startswith("kept")]
    if not broken:
        return "none is broken"
    named = "; ".join(
        f"{cell['world']}, {cell['variant']}, {cell['episodes']} episodes: *better* wrong in "
        f"{cell['wrong_better']['count']}, *worse* in {cell['wrong_worse']['count']} of {cell['logs']}"
        + (", too few answers" if cell["promise"] == "not answered" else "")
        for cell in broken
    )
    return f"{len(broken)} broken ({named})"


def _count(found: dict) -> str:
    promises = Counter(cell["promise"] for cell in found["cells"])
    return f"{promises['broken'] + promises['not answered']} of {len(found['cells'])}"


# Judges side by side.


def judges() -> str:
    """tidelog and other packages on the same logs."""
    found = kept("judge_peers")
    if "tidelog" not in found["judges"]:
        return ""
    rows = "\n".join(
        _judge_line(title, found["judges"][name]) for name, title in JUDGES.items() if name in found["judges"]
    )
    lacking = "".join(f" {name} could not be run: {why}." for name, why in found["failed"].items())
    return f"""## Judges side by side

The same logs of known truth, {found["logs_of_a_problem"]} of each problem, judged by tidelog and by other packages,
each with the settings that its documentation recommends. Problems that no log can answer are apart. Shares are of logs.

{_header(*JUDGE_COLUMNS)}
{rows}

![Error of *better* against the share answered](figures/judge_peers.svg)

A log that a package does not read (several steps, no recorded propensities) counts as no answer.{lacking}
{source(found)}
"""


def _judge_line(title: str, one: dict[str, Any]) -> str:
    possible, impossible = one["possible"], one["impossible"]
    cells = [possible[name] for name in ("answered", "better_though_not", "worse_though_not", "better_and_is")]
    cells += [impossible[name] for name in ("answered", "better_though_not")]
    return f"| {title} | {one['version']} | {' | '.join(_of(cell) for cell in cells)} |"


# Many looks, and the worst episodes.


def looks() -> str:
    """The best of many policies on logs of noise."""
    if not (RESULTS / "looks.json").exists():
        return ""
    found = kept("looks")
    rows = "\n".join(
        f"| {row['problem']} | {rule} | {one['logs_with_some_better']} of {row['logs']} "
        f"({one['wilson_95'][0]:.1%} to {one['wilson_95'][1]:.1%}) | {one['logs_with_some_worse']} |"
        for row in found["rows"]
        for rule, one in row["rules"].items()
    )
    return f"""## Many looks at one log

{found["rows"][0]["policies"]} random policies on logs of noise: logs in which some policy was called better, or worse,
under several rules. `alone` counts no looks; `ledger` is `tl.judge` asked again and again; `at once` is
`tl.judge([...])`; `made from results` is one more policy after these thirty, the mixture in the direction of all their
estimates, as `tl.judge` judges it. `error over looks` and `made from results, level alone` are not used by tidelog.

| problem | rule | some *better* | some *worse* |
|---|---|---|---|
{rows}

{source(found)}
"""


def carrying() -> str:
    """How many episodes must carry a difference by ratios of visits, and verdicts on fresh logs."""
    found, fresh = kept("choose_carrying"), kept("carrying_report")
    tried = "\n".join(
        f"| {one['least']:g} | {one['answered']:,} | {one['covered']:,} | {one['wrong']} | "
        f"{'yes' if one['keeps'] else 'no'} |"
        for one in found["tried"]
    )
    rows = "\n".join(
        f"| {name.split(' | ')[2]} | {name.split(' | ')[1]} | {one['truth']:+.3f} | {one['unsupported']} of "
        f"{one['verdicts']} | {one['better']} | {one['worse']} | {_covered(one['covered'])} |"
        for name, one in fresh["each"].items()
    )
    return f"""## Ratios of visits that few episodes carry

Policies of known worth on ICU-Sepsis and CartPole, {found["tried"][0]["verdicts"]:,} verdicts. For each least effective
number of episodes behind a difference by ratios of visits: answers, intervals that cover the truth, wrong *better* or
*worse*, and whether no policy speaks against it (coverage of 95%, 2.5% wrong, exact tests at 1%). The smallest such
number is {found["chosen"]:g}. The rule on estimates beyond all returns of the log was not used here.

{_header("least", "answered", "covered", "wrong", "kept")}
{tried}

ICU-Sepsis at the defaults on fresh logs, policies that the study above does not have:

{_header("policy", "propensities", "true difference", "unsupported", "better", "worse", "interval covers")}
{rows}

{source(found, fresh)}
"""


def _covered(share: dict) -> str:
    return f"{share['count']} of {share['of']}" if share["of"] else ""


def risk_bands() -> str:
    """How often bands of return distributions hold, and how wide they are."""
    found = kept("risk_bands")
    pooled = "\n".join(
        f"| {row['episodes']:,} | {row['logs']:,} | {_three(row['covered']['all'])} | "
        f"{_three(row['covered']['cvar difference'])} | {_three(row['covered']['cvar uncut'])} | "
        f"{row['wrong sign of cvar difference'][0]:.1%} (at most {row['wrong sign of cvar difference'][2]:.1%}) |"
        for row in found["pooled"]
    )
    widths = "\n".join(
        f"| {row['problem']} | {row['policy width']:.2f} | {row['beside']['constant width']['policy width']:.2f} | "
        f"{row['beside']['key points']['policy width']:.2f} |"
        for row in found["rows"]
        if row["episodes"] == 1_000
    )
    return f"""## Bands of return distributions

Share of logs in which they hold, with 95% Wilson intervals, over ten problems of one and of five steps:

{_header(*BAND_COLUMNS)}
{pooled}

Median width of the interval of the policy's CVaR of {found["alpha"]:g}, 1,000 episodes: by this band, by a bootstrap
band of constant width, and by bounds at ten key points (Chandak et al. 2021):

| problem | this band | constant width | key points |
|---|---|---|---|
{widths}

{source(found)}
"""


def _three(share: Sequence[float]) -> str:
    return f"{share[0]:.1%} ({share[1]:.1%} to {share[2]:.1%})"
