"""The recommenders' parts of docs/evidence.md, from their kept results."""

from collections.abc import Sequence
from typing import Any

from benchmarks.keep import RESULTS, interval, kept, seed_interval, source

MEASURES = ("hit rate", "ndcg", "mrr", "reward", "discounted reward", "popularity lift", "cold share", "novelty")
PEER_MEASURES = ("hit rate", "ndcg", "mrr")
TITLES = {
    "entree": "Entree, sessions from 1999 on",
    "online_retail": "Online Retail, next basket from 2011-11-01 on",
    "open_bandit": "Open Bandit, the next click from 2019-11-29 on",
}


def recommenders() -> str:
    """Tables on real logs and clicks in the simulator, as far as there are results."""
    parts = ["## Recommenders\n"] if any(map(_there, (*TITLES, "satiation"))) else []
    parts += [
        _table(kept(f"recommender_{name}"), title) + _peers(name) for name, title in TITLES.items() if _there(name)
    ]
    if _there("satiation"):
        parts.append(_clicks(kept("recommender_satiation")))
    return "\n".join(parts)


def delays() -> str:
    """What Q adds where a choice costs visits some steps later."""
    found = kept("recommender_delays")
    names = ("reader alone", "chosen weight", "Q alone")
    rows = []
    for delay, one in found["delays"].items():
        exact, measured = one["exact"], one["intervals"]
        cells = [f"{exact[name]:.2f}" for name in ("logger", "best within support")]
        cells += [_clicks_cell(measured[name]) for name in names] + [
            _clicks_cell(measured[f"{names[1]} minus {names[0]}"])
        ]
        cells.append(f"{sum(weight > 0 for weight in one['weights'])} of {found['seeds']}")
        rows.append(f"| {delay if delay != '0' else 'never'} | {' | '.join(cells)} |")
    table = "\n".join(rows)
    return f"""## Where Q helps a recommender

Three items have the highest click probabilities, and make a user who clicked them leave more often, exactly 1, 3 or 8
steps later, or never. Clicks of a visit; the logger and the best policy within its support are exact, what is learnt is
played for {found["played"]:,} visits: the mean over {found["seeds"]} seeds, each with a log of {found["visits"]:,}
visits, with a 95% t interval. "Chosen weight" is what a training with a held-out period and propensities uses, "Q
alone" the same policy with `q_weight` set to {found["alone"]:g}; the last column counts
the seeds in which the held-out period chose a weight above 0.

| cost after | logger | best | reader alone | chosen weight | Q alone | chosen - reader | Q chosen |
|---|---|---|---|---|---|---|---|
{table}

{source(found)}
"""


def simulators() -> str:
    """Rankers of other packages and rules that count in both simulators."""
    found = kept("recommender_simulators")
    names = list(found["worlds"])
    lines = []
    for ranker in dict.fromkeys(row["ranker"] for one in found["worlds"].values() for row in one["rows"]):
        cells = []
        for one in found["worlds"].values():
            clicks = [row["clicks"] for row in one["rows"] if row["ranker"] == ranker]
            gain = one["gains"].get(ranker)  # none: recommender BCQ itself
            mean = f"{sum(clicks) / len(clicks):.2f}"
            cells.append(_clicks_cell(seed_interval(clicks)) if gain is None else f"{mean}, {_clicks_cell(gain, '+')}")
        lines.append(f"| {ranker} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    again = ", ".join(
        f"{peer} in {sum(one['chosen'][peer]['again'] for one in found['worlds'].values())} of {len(names)}"
        for peer in next(iter(found["worlds"].values()))["chosen"]
    )
    return f"""## Rankers of other packages in the simulators

Clicks of a visit where the first item of the list is shown, with the logs and the random numbers of the two studies
above; mean over {found["seeds"]} seeds, and recommender BCQ minus it with a 95% t interval over seeds. They learn from
clicks; a user without a click gets the item that is clicked most. Settings, and whether a clicked item may be shown
again, are those with most clicks on a seed that is not reported: it may for {again} simulators. What was tried is in
the results file.

| ranker | {" | ".join(names)} |
|---|{"---|" * len(names)}
{table}

These packages read what was clicked, not what was shown in vain, so between two clicks they show the same item.

{source(found)}
"""


def _clicks_cell(found: Sequence[float], sign: str = "") -> str:
    mean, low, high = (f"{round(value, 2) + 0.0:{sign}.2f}" for value in found)  # no -0.00
    return f"{mean} ({low} to {high})"


def size() -> str:
    """A shop of real size."""
    found = kept("recommender_size")
    commands = "\n".join(
        f"| {name} | {one['seconds'] / 60:.1f} | {one['processor_seconds'] / 60:.1f} | {one['gigabytes']:.1f} |"
        for name, one in found["commands"].items()
    )
    lists = "\n".join(f"| {row['lists']} | {row['hit rate']} | {row['ndcg']} |" for row in found["measures"])
    learnt = found["steps"] * found["events_of_an_update"]
    return f"""## A shop of real size

{found["events"]:,} events of {found["users"]:,} users over {found["items"]:,} items, by the commands that a user types,
on {found["machine"]["threads"]} cores of {found["machine"]["processor"]}. `train` holds out the last tenth of the time
and makes {found["steps"]:,} updates, {found["pretrain_share"]:.0%} of them of table and reader alone; they learn from
about {learnt / 1e6:.1f} million events. `recommend` writes lists for {found["lists"]:,} users.

| command | minutes | processor minutes | most memory, GB |
|---|---|---|---|
{commands}

The report's lists on held-out users, with 95% intervals over users. The training is short: it reads a part of the log
once. Before [successors were counted](#counted-successors), 4,000 updates of the same training gave a hit rate of 0.084
(0.072 to 0.096).

| lists | hit rate | ndcg |
|---|---|---|
{lists}

{source(found)}
"""


def successors() -> str:
    """Counted successors in large catalogues."""
    found = kept("recommender_successors")
    means = {(row["log"], row["ranker"], row["measure"]): row["mean"] for row in found["rows"] if "ranker" in row}
    gains = {(row["log"], row["over"], row["measure"]): row["gain"] for row in found["rows"] if "over" in row}
    lines = []
    for log, ranker in dict.fromkeys(key[:2] for key in means):
        cells = [interval(means[log, ranker, measure]) for measure in ("hit rate", "ndcg")]
        gain, seconds = gains.get((log, ranker, "ndcg")), means.get((log, ranker, "seconds"))
        cells += ["-" if gain is None else interval(gain, 4, "+"), "-" if seconds is None else f"{seconds[0]:.0f}"]
        lines.append(f"| {log} | {ranker} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"""## Counted successors

{found["events"]:,} events over {found["events"] // 50:,} items, {found["steps"]} updates of table and reader alone
with a sampled softmax, {found["seeds"]} seeds, each with its own log; {found["cases"]:,} events of the last tenth of
the time, lists of {found["k"]}; 95% t intervals over seeds. In `groups` the next item is of the same group of 50 seven
times in ten; in `independent` there is no order at all, and counts of what followed are noise. The fifth column is the
NDCG of the training with counts minus that of the row.

| log | lists | hit rate | ndcg | counted minus this | processor seconds of a training |
|---|---|---|---|---|---|
{table}

{source(found)}
"""


def retrieval() -> str:
    """Exact search beside faiss."""
    found = kept("retrieval")
    searches = found["one thread"]["seconds"]
    rows = "\n".join(
        f"| {name} | {found['one thread']['seconds'][name]:.2f} | {found['all cores']['seconds'][name]:.2f} |"
        for name in searches
    )
    recall = found["one thread"].get("recall")
    said = f" The approximate index finds {recall:.3f} of the exact list (random vectors)." if recall else ""
    return f"""## Finding items

The {found["k"]} best of {found["rows"]:,} x {found["width"]} for {found["batch"]} queries, seconds, in turns in one
process. Ours adds {found["one thread"]["memory"] / 1e6:.0f} MB of memory.{said}

The goal was 3,000 queries a second on {found["all cores"]["threads"]} cores of {found["machine"]["processor"]}. Ours
answers {_queries(found, "ours"):,.0f}; the inner products alone, which no exact search in float32 can do without, allow
{_queries(found, "products alone"):,.0f}.

| search | one thread | {found["all cores"]["threads"]} threads |
|---|---|---|
{rows}

{source(found)}
"""


def _queries(found: dict[str, Any], search: str) -> float:
    """The queries a second of a search on all cores."""
    seconds: float = found["all cores"]["seconds"][search]
    return found["batch"] / seconds


def _there(name: str) -> bool:
    return (RESULTS / f"recommender_{name}.json").exists()


def _table(found: dict[str, Any], title: str) -> str:
    """A row a ranker, kinds of events that matter; rankers that are learnt as means over seeds."""
    rows = [row for row in found["rows"] if row["kind"] in ("all", "accept")]
    names = dict.fromkeys((row["kind"], row["ranker"]) for row in rows)
    measures = [measure for measure in MEASURES if measure in rows[0]["scores"]]  # older results have fewer
    lines = []
    for kind, ranker in names:
        same = [row for row in rows if (row["kind"], row["ranker"]) == (kind, ranker)]
        cells = [_cell([row["scores"][measure] for row in same]) for measure in measures]
        whole = [f"{sum(row[one] for row in same) / len(same):.3f}" for one in ("coverage", "entropy")]
        lines.append(f"| {kind} | {ranker} | {' | '.join(cells + whole)} |")
    head = f"| events | ranker | {' | '.join(measures)} | coverage | entropy |\n|{'---|' * (len(measures) + 4)}"
    body = "\n".join(lines)
    return f"""### {title}

{found["cases"]:,} cases, lists of {found["k"]} of {found["items"]:,} items; {found["seeds"]} seeds, {found["steps"]:,}
updates. What counts has its 95% interval over users; what is learnt has the mean over seeds with a 95% t interval.

{head}
{body}

{_gained(found["differences"])}
{_over(found.get("together", []))}
{source(found)} Settings were chosen on an earlier cut of what is
learnt from, as [its page](recommender-bcq.md) says.
"""


def _peers(name: str) -> str:
    """Every ranker on all cases of a log, those of other packages among them, with the time until it can rank."""
    found = kept(f"recommender_{name}")
    rows = [
        {"ranker": row["ranker"], "seconds": row["seconds"]} | {one: row["scores"][one][0] for one in PEER_MEASURES}
        for row in found["rows"]
        if row["kind"] == "all" and "seconds" in row
    ]
    others = [kept(f"recommender_{kind}_{name}") for kind in ("peers", "rectools") if _there(f"{kind}_{name}")]
    others = [one for one in others if one["rows"]]
    if not rows or not others:
        return ""
    rows += [row for other in others for row in other["rows"]]
    gains = {gain["over"]: gain["gain"] for one in others for gain in one.get("gains", []) if gain["measure"] == "ndcg"}
    lines = []
    for ranker in dict.fromkeys(row["ranker"] for row in rows):
        same = [row for row in rows if row["ranker"] == ranker]
        cells = [_mean([row[measure] for row in same]) for measure in PEER_MEASURES]
        cells.append(f"{sum(row['seconds'] for row in same) / len(same):,.1f}")
        cells.append(interval(gains[ranker], 4, "+") if ranker in gains else "-")
        lines.append(f"| {ranker} | {' | '.join(cells)} |")
    table, commands = "\n".join(lines), "; ".join(f"`{one['command']}`" for one in others)
    return f"""
All of them beside rankers of other packages, on the same cases: means over seeds with a 95% t interval where a ranker
has random numbers, and processor seconds until it can rank (of `implicit` seconds by the clock), for recommender BCQ
with the run that chooses the weight of Q. The last column is the ndcg of recommender BCQ minus the row's.

| ranker | {" | ".join(PEER_MEASURES)} | seconds | recommender BCQ minus it |
|---|---|---|---|---|---|
{table}

Commands: {commands}.

"""


def _mean(scores: list[float]) -> str:
    if len(scores) == 1:
        return f"{scores[0]:.3f}"
    return interval(seed_interval(scores), 3)


def _over(found: list[dict[str, Any]]) -> str:
    """By how much BCQ is over every other ranker in ndcg, and in how many seeds an interval is above or below 0."""
    others = dict.fromkeys(row["over"] for row in found)
    said = []
    for other in others:
        gains = [row["gain"] for row in found if (row["over"], row["measure"]) == (other, "ndcg")]
        above, below = sum(low > 0 for _, low, _ in gains), sum(high < 0 for _, _, high in gains)
        mean = sum(gain for gain, _, _ in gains) / len(gains)
        said.append(f"| {other} | {mean:+.3f} | {above} of {len(gains)} | {below} of {len(gains)} |")
    if not said:
        return ""
    lines = "\n".join(said)
    return f"""
Recommender BCQ minus each other ranker, ndcg: the mean over seeds, and the number of seeds whose interval over users is
above or below 0. The intervals of a seed hold together for all rankers and for hit rate, ndcg and mrr.

| over | ndcg | above 0 | below 0 |
|---|---|---|---|
{lines}
"""


def _gained(found: list[dict[str, Any]]) -> str:
    """What BCQ adds to its own encoder, each seed with its interval over users."""
    said = []
    for kind in (kind for kind in ("all", "accept") if kind in found[0]):
        seeds = "; ".join(interval(one[kind]["discounted reward"], 4, "+") for one in found)
        said.append(f"recommender BCQ - encoder alone, discounted reward, {kind} events, each seed: {seeds}.")
    return " ".join(said)


def _cell(scores: list[list[float]]) -> str:
    return interval(scores[0] if len(scores) == 1 else seed_interval([score[0] for score in scores]), 3)


def _clicks(found: dict[str, Any]) -> str:
    exact = "\n".join(f"| {name} | {value:.2f} |" for name, value in found["exact"].items())
    played = "\n".join(f"| {name} | {interval(values, 2)} |" for name, values in found["intervals"].items())
    return f"""### The simulator with satiation: clicks a visit

Logs of {found["visits"]:,} visits, each seed with one of its own, {found["steps"]:,} updates; each policy is played for
{found["played"]:,} visits. Mean over {found["seeds"]} seeds with a 95% t interval; the first rows are exact.

| policy | clicks |
|---|---|
{exact}
{played}

Recommender BCQ against the rest, over seeds:

| difference | mean (95% t interval) |
|---|---|
{_beside(found["differences"])}

"Critic on proposed items" is the mistake of published ports, made on purpose (`benchmarks/mistaken.py`): the critic
rates items that the policy proposes by the rewards of logged ones.

{source(found)} Settings were chosen on other seeds, as
[its page](recommender-bcq.md) says.
"""


def _beside(found: dict[str, list[float]]) -> str:
    share = "share of best within support"
    return "\n".join(
        f"| {name} | {mean:.0%} ({low:.0%} to {high:.0%}) |"
        if name == share
        else f"| {name} | {mean:+.2f} ({low:+.2f} to {high:+.2f}) |"
        for name, (mean, low, high) in found.items()
    )


def speed() -> str:
    """Events a second while training on a large catalogue, and the time of an update by the number of users."""
    found = kept("recommender_speed")
    rows = "\n".join(
        f"| {name} | {one['updates']:.2f} | {one['events']:,.0f} ({one['least']:,.0f} to {one['most']:,.0f}) | "
        f"{one['memory'] / 1e9:.1f} GB |"
        for name, one in found["phases"].items()
    )
    return f"""## Training a recommender on {found["items"]:,} items

{found["log"]:,} events; batches of {found["settings"]["batch_size"]} windows with {found["settings"]["targets"]} events
that are learnt from, cross-entropy over {found["settings"]["sampled_items"]:,} drawn items,
{_machine(found, "phases")}. The step with everything rates the likeliest of all items in every state.

| phase | updates a second | events a second (range) | most memory |
|---|---|---|---|
{rows}
{_by_users(found)}
{source(found)}
"""


def _machine(found: dict, part: str) -> str:
    """The machine of a part of a kept file."""
    machine = found.get("machines", {}).get(part, found["machine"])
    return f"{machine['threads']} threads" + (f" of {machine['processor']}" if "processor" in machine else "")


def _by_users(found: dict) -> str:
    """The time of an update by the number of users that have a vector."""
    if "users" not in found:
        return ""
    users = found["users"]
    rows = "\n".join(
        f"| {'no vectors' if name == 'none' else f'{int(name):,}'} | {one['milliseconds']:.1f} "
        f"({one['least']:.1f} to {one['most']:.1f}) | {one['over_fewest']:.2f} |"
        for name, one in users["found"].items()
    )
    return f"""
With a vector for each user (`user_embedding`), over {users["items"]:,} items, {users["turns"]} turns on
{_machine(found, "users")}; an update moves the rows of its batch alone:

| users | milliseconds an update (range) | over the fewest users, median of turns |
|---|---|---|
{rows}
"""


def peers() -> str:
    """Events a second beside GRU4Rec and SASRec in PyTorch, and what our update's time is spent on."""
    found = kept("recommender_peers")
    settings, rows = found["settings"], []
    events = settings["batch_size"] * settings["targets"]
    for cores, cases in found["parts"].items():
        for case, one in cases.items():
            ways = one["ways"]
            rates = " | ".join(
                f"{events * ways[way]['updates_a_second']['median']:,.0f}" for way in ("tidelog", "torch", "defaults")
            )
            ratio = ways["torch"]["tidelog_over_it_a_second"]
            rows.append(
                f"| {case} | {cores} | {rates} | **{ratio['median']:.2f}** ({ratio['min']:.2f} to {ratio['max']:.2f}) |"
            )
    first = next(iter(next(iter(found["parts"].values())).values()))
    table = "\n".join(rows)
    return f"""## Training a recommender beside PyTorch

The table and the reader alone beside single-file scripts in PyTorch {first["ways"]["torch"]["torch"].split("+")[0]}, on
the same events: {found["users"]:,} users, twice as many for a million items, with 50 events each, batches of
{settings["batch_size"]} windows of {settings["history"]} events, of which {settings["targets"]} are learnt from,
vectors of {settings["size"]} numbers, dropout {settings["dropout"]}, Adam, and the cross-entropy over all of
{found["catalogues"]["all items"]:,} items or over a sample of {found["sampled_items"]:,} out of
{found["catalogues"]["a sample"]:,}, or of a million. {first["rounds"]} rounds in turn, each way in a process of its
own, on {first["processor"]}. tidelog normalises item vectors and has a bias an item, the scripts do not. The defaults
also learn scores of repeated items and, above 20,000 items, of counted successors. The goal was 3 times PyTorch.

| model, cross-entropy over | on | tidelog, events a second | PyTorch | the defaults | over PyTorch (range) |
|---|---|---|---|---|---|
{table}
{_profiles(found["profiles"])}
Commands: `{found["command"]}` with `--cores 0`, with `--cores 0,1`, and with `--profile`.
"""


def _profiles(profiles: dict) -> str:
    """What our update's time is spent on."""
    if not profiles:
        return ""
    parts = list(next(iter(profiles.values()))["shares"])
    rows = "\n".join(
        f"| {case} | {sum(one['milliseconds'].values()):.1f} | "
        + " | ".join(f"{one['shares'][part]:.0%}" for part in parts)
        + " |"
        for case, one in profiles.items()
    )
    return f"""
What tidelog's update spends its time on, on one core: an implementation with the same matrix products at the same speed
and nothing else would take the first share of it.

| model, cross-entropy over | milliseconds | {" | ".join(parts)} |
|---|---|{"---|" * len(parts)}
{rows}
"""
