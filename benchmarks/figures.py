"""What docs/evidence.md shows and no results file holds as it is shown: tables that add up, ratios, and pictures.

A function has the name of the results file that it reads, and returns further fields for its section of
`benchmarks/evidence.md.in`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.calibration import KEYS, coverage_over_seeds
from benchmarks.icu_sepsis_bcq import cell
from benchmarks.keep import RESULTS, by_key, kept, seed_interval, share
from benchmarks.peers import OWN
from tidelog.training.metrics import series

Found = dict[str, Any]


def computed(name: str, found: Found) -> Found:
    """The further fields of the section on a results file."""
    function: Callable[[Found], Found] | None = globals().get(name.replace("-", "_"))
    return {} if function is None else function(found)


def least_and_most(values: Iterable[float]) -> Found:
    """The ends of several values."""
    several = list(values)
    return {"least": min(several), "most": max(several)}


def league(found: Found) -> Found:
    """What the default path recommends, beside the best of other ways, a log a row."""
    table = found["table"]
    acts = [row for row in table if row["difference_where_it_acts"] is not None]
    units = [row for row in table if "," in row["log"]]
    same = all(
        next(one for one in table if one["log"] == row["log"].split(",")[0])[name] == row[name]
        for row in units
        for name in ("keeps", "power", "of_these_better")
    )
    rows = [
        {
            "name": row["log"].replace("_", " "),
            "acts": _with_error(row["difference_where_it_acts"], row["error_where_it_acts"]),
        }
        | row
        for row in table
        if row not in units
    ]
    return {
        "rows": rows,
        "good": sum(row["difference_where_it_acts"] >= -(row["error_where_it_acts"] or 0.0) for row in acts),
        "acts": len(acts),
        "better": sum(row["of_these_better"] for row in table),
        "power": sum(row["power"] for row in table),
        "units": "the same decisions" if same else "other decisions",
    }


def _with_error(value: float | None, error: float | None) -> str:
    return "-" if value is None else f"{value:+.3g}" + ("" if error is None else f" ± {error:.2g}")


def peers_learning(found: Found) -> Found:
    """A row a task, log and algorithm; a column a way of training."""
    ways = ("default", "d3rlpy")
    rows: dict[tuple, Found] = {}
    for part in found["parts"]:
        key = (part["task"], part["algorithm"].replace("_", " "), part["log"])
        rows.setdefault(key, dict.fromkeys(ways) | {"seeds": len(part["returns"])})
        if part["way"] in ways:
            rows[key][part["way"]] = part["mean"]
    table = [{"task": task, "algorithm": name, "log": log} | rows[task, name, log] for task, name, log in sorted(rows)]
    iql = [row for row in table if (row["task"], row["algorithm"]) == ("pendulum", "iql")]
    return {
        "rows": table,
        "iql_default": [row["default"][0] for row in iql],
        "iql_d3rlpy": [row["d3rlpy"][0] for row in iql if row["d3rlpy"] is not None],
    }


def speed_cpu(found: Found) -> Found:
    """A row an algorithm."""
    rows = {name: one for name, one in found.items() if isinstance(one, dict) and "operations_per_update" in one}
    return {"rows": rows}


PEER_GOALS = {  # of native layers over eager PyTorch in float32: float32 and bfloat16, by cores
    1: {"iql": (1.9, 3.2), "discrete-bcq": (3.0, 4.5), "bc": (2.2, 3.6), "bcq": (1.5, 2.3)},
    2: {"iql": (2.9, 4.6)},
}


def peers(found: Found) -> Found:
    """How many times an update of tidelog's ways is as fast as that of each peer, and native layers as XLA's."""
    rows, gains, missed = [], [], []
    for name, one in found["algorithms"].items():
        over = {way: one[way]["over_it"] for way in one if way != "failed"}
        rows.append(
            {"name": name, "rate": one["tidelog"]["updates_a_second"]["median"], "compile": over["compile"]["native"]}
            | {"d3rlpy": over["d3rlpy"]["native"], "torch_bfloat16": over["eager"]["eager-bfloat16"]}
            | {way.replace("-", "_"): over["eager"][way] for way in OWN}
        )
        share = one["native"]["updates_a_second"]["median"] * one["tidelog"]["operations_per_update"] / 1e9
        gains.append(
            {"name": name, "float32": over["tidelog"]["native"], "bfloat16": over["bfloat16"]["native-bfloat16"]}
            | {"both": over["tidelog"]["native-bfloat16"], "share": share / one["tidelog"]["ceiling_gflops"]}
        )
        for goal, way in zip(PEER_GOALS[found["cores"]].get(name, ()), ("native", "native-bfloat16"), strict=False):
            reached = over["eager"][way]["median"]
            if reached < goal:
                missed.append(f"{name} {way} {reached:.2f} of {goal:g}")
    ends = {
        f"over_{way}": least_and_most(row[key]["median"] for row in rows)
        for way, key in (("eager", "native"), ("d3rlpy", "d3rlpy"), ("eager_rounded", "native_bfloat16"))
    }
    gain = {kind: least_and_most(row[kind]["median"] for row in gains) for kind in ("float32", "bfloat16", "both")}
    return {
        "gains": gains,
        "gain": gain,
        "missed": ", ".join(missed) or "none",
    } | ends


peers_all_cores = peers


def rounding(found: Found) -> Found:
    """The rows of each task, and how many differences are within their noise."""
    rows = found["rows"]
    return {
        "returns": [row for row in rows if row["task"] == "pendulum"],
        "within": sum(row["difference"][1] <= 0.0 <= row["difference"][2] for row in rows),
        "of": len(rows),
    }


def start(found: Found) -> Found:
    """Commands as rows, and how many goals are met."""
    commands, rows = found["commands"], []
    for name, goal in found["goals"].items():
        start = (
            commands["a bare start"] if name in ("train, cold", "train, warm", "judge") else [0.0] * found["repeats"]
        )
        counted = [own - bare for own, bare in zip(commands[name], start, strict=True)]
        rows.append({"name": name, "seconds": commands[name], "counted": counted, "goal": goal})
    return {"table": rows, "met": sum(median(row["counted"]) <= row["goal"] for row in rows), "of": len(rows)}


def gpu_judge(found: Found) -> Found:
    """What was measured of the algorithms."""
    return {"rows": {name: kept(f"gpu_{name}")["found"] for name in ("iql", "bcq", "discrete_bcq", "bc")}}


def icu_sepsis_bcq(found: Found) -> Found:
    """The best threshold at the largest log, and what Q believes without and with a filter."""
    largest = found["sizes"][-1]
    values = {one: cell(found, "discrete bcq", largest, 1.0, one) for one in found["thresholds"]}
    best = max(values, key=lambda one: values[one]["interval"][0])
    return {
        "unfiltered": mean(values[0.0]["q_mean"]),
        "filtered": mean(values[0.3]["q_mean"]),
        "largest": largest,
        "highest": {"name": f"threshold {best:g}", "many": values[best]["interval"]},
    }


def _imperfect(found: Found) -> Found:
    """How many seeds there are."""
    return {"seeds": len(found["returns"]["bcq"])}


imperfect_pendulum = imperfect_hopper = _imperfect


def kills(found: Found) -> Found:
    """Resumed runs that differ, and runs on full disks."""
    full = found["full disks"].values()
    return {
        "unequal": sum(one["not equal"] for one in found["paths"].values()),
        "full": {name: sum(one[name] for one in full) for name in ("runs", "failed", "good")},
    }


def ppg_cartpole(found: Found) -> Found:
    """A row an environment."""
    return {"rows": {name: found[name] for name in ("CartPole-v1", "jax:CartPole-v1")}}


def ppg_speed_sb3(found: Found) -> Found:
    """Decisions a second beside the faster way of Stable-Baselines3."""
    over = {}
    for setting, ways in found["settings"].items():
        theirs = [one for name, one in ways.items() if name in ("one-thread", "all-threads", "processes")]
        over[setting] = max(theirs, key=lambda one: one["updates_a_second"]["median"])["over_it"]["tidelog"]["median"]
    return {"over": over}


def picture_speed_cpu(found: Found) -> Found:
    """What tidelog with a device a core makes of PyTorch with channels last."""
    batches = found["batches"].items()
    return {"over": {name: ways["channels-last"]["over_it"]["tidelog-cores"] for name, ways in batches}}


def _added(groups: Sequence[Found]) -> Found:
    """Several groups of verdicts as one."""
    counts = {
        name: share(*(sum(one[name][part] for one in groups) for part in ("count", "of")))
        for name in ("covered", "better_though_not", "worse_though_not")
    }
    whole = {name: sum(one[name] for one in groups) for name in ("verdicts", "unsupported", "better", "worse")}
    return whole | counts | {"answered": share(whole["verdicts"] - whole["unsupported"], whole["verdicts"])}


def calibration(found: Found) -> Found:
    """A row a problem; coverage over seeds; and what an earlier judge said of the same logs."""
    whole, over, before = found["summary"], coverage_over_seeds(found["verdicts"]), kept("calibration_before")
    judges = {"before": before["summary"], "now": whole}
    return {
        "rows": [
            {name: some[0][name] for name in KEYS} | _added(some)
            for _, some in by_key(found["groups"], lambda one: (one["problem"], one["propensities"], one["episodes"]))
        ],
        "over": over,
        "answered": 1 - whole["unsupported"] / whole["verdicts"],
        "judges": {name: _shares(one) for name, one in judges.items()},
    }


def _shares(one: Found) -> Found:
    """The share of verdicts of each kind, and of those that answer something: a part too."""
    no_difference = one["verdicts"] - one["unsupported"] - one["better"] - one["worse"]
    counts = {
        "better": one["better"], "worse": one["worse"], "narrow": one["narrow"], "part": one["parts"],
        "wide": no_difference - one["narrow"],
        "useful": one["better"] + one["worse"] + one["narrow"] + one["parts"],
        "whole": one["verdicts"] - one["unsupported"],
    }  # fmt: skip
    return one | {f"share_{name}": count / one["verdicts"] for name, count in counts.items()}


def power(found: Found) -> Found:
    """A row an effect of each kind of log: verdicts at each size that show it, beside those of the oracle."""
    effects = [one for one in found["cells"] if one["effect"] > 0.0]
    nothing = [one for one in found["cells"] if one["effect"] == 0.0]

    def shown(cells: Sequence[Found]) -> int:
        return sum(one["better"] + one["better_if_randomised"] for one in cells)

    def rows(kind: tuple[str, ...], cells: Sequence[Found]) -> Found:
        sizes = {f"at_{one['episodes']}": f"{one['better']} + {one['better_if_randomised']} of {one['oracle']}"
                 for one in cells}  # fmt: skip
        return dict(zip(("logging", "propensities", "rewards", "effect"), kind, strict=True)) | sizes

    kinds = by_key(effects, lambda one: tuple(one[name] for name in ("logging", "propensities", "rewards", "effect")))
    return {
        "rows": [rows(kind, cells) for kind, cells in kinds if kind[-1] < 0.5],
        "recorded": {
            "count": shown([one for one in effects if one["propensities"] == "recorded"]),
            "of": sum(one["oracle"] for one in effects if one["propensities"] == "recorded"),
        },
        "wrong": share(shown(nothing), sum(one["logs"] for one in nothing)),
    }


def parts(found: Found) -> Found:
    """How many parts were called better, and how many of them are not."""
    kinds = [one for one in found["kinds"].values() if one["part better"]]
    better = sum(one["part better"] for one in kinds)
    return {"wrong": share(sum(one["part better though not"]["count"] for one in kinds), better)}


def adversarial(found: Found) -> Found:
    """How many cells keep their promise, and wrong answers in the worlds that a log can show."""
    again = kept("adversarial_again")
    shown = [one for one in again["cells"] if "words" not in one]
    return {
        "all": len(found["cells"]),
        "words_alone": found["promises"].get("kept by its words", 0),
        "held": _held(found["cells"]),
        "again": {"count": _held(again["cells"]), "of": len(again["cells"])},
        "again_logs": again["logs"],
        "again_wrong": {
            side: share(
                sum(one[f"wrong_{side}"]["count"] for one in shown),
                sum(one["logs"] for one in shown if sign * one["truth"] <= 1e-9),
            )
            for side, sign in (("better", 1.0), ("worse", -1.0))
        },
    }


def _held(cells: Sequence[Found]) -> int:
    return sum(one["promise"].startswith("kept") for one in cells)


JUDGES = {
    "tidelog": "tidelog", "obp": "OBP", "sb-obp": "sb-obp", "scope-rl": "SCOPE-RL", "skdr-eval": "skdr-eval",
    "skdr-eval, its advice": "skdr-eval's advice to deploy",
}  # fmt: skip


def judge_peers(found: Found) -> Found:
    """A row a judge."""
    judges = found["judges"]
    return {
        "rows": [{"name": title} | judges[name] for name, title in JUDGES.items() if name in judges],
        "wrong": ", ".join(
            f"{title} {judges[name]['possible']['better_though_not']['count']}"
            for name, title in JUDGES.items()
            if name in judges
        ),
        "lacking": "".join(f" {name} could not be run: {why}." for name, why in found["failed"].items()),
    }


def looks(found: Found) -> Found:
    """A row a rule, a column a problem."""
    rules = dict.fromkeys(rule for row in found["rows"] for rule in row["rules"])
    cells = {rule: [row["rules"][rule] for row in found["rows"]] for rule in rules}
    better = {rule: sum(one["logs_with_some_better"] for one in cells[rule]) for rule in rules}
    return {
        "head": " | ".join(row["problem"] for row in found["rows"]),
        "table": {
            rule: " | ".join(f"{one['logs_with_some_better']} / {one['logs_with_some_worse']}" for one in cells[rule])
            for rule in rules
        },
        "policies": found["rows"][0]["policies"],
        "each": found["rows"][0]["logs"],
        "logs": sum(row["logs"] for row in found["rows"]),
        "ledger": better["ledger"],
        "once": better["at once"],
        "largest": max(row["rules"]["ledger"]["wilson_95"][1] for row in found["rows"]),
    }


def risk_bands(found: Found) -> Found:
    """How often everything holds at the largest size, and how often the sign of a difference is wrong."""
    signs = max(row["wrong sign of cvar difference"][2] for row in found["pooled"])
    return {"last": found["pooled"][-1], "signs": signs}


def verdict_speed(found: Found) -> Found:
    """Processor seconds of a whole verdict."""
    return {"used": least_and_most(one["median"]["processor_seconds"] for one in found["cases"].values())}


# Recommenders.

LOGS = {
    "entree": "Entree, sessions from 1999 on",
    "online_retail": "Online Retail, next basket from 2011-11-01 on",
    "open_bandit": "Open Bandit, the next click from 2019-11-29 on",
}


def recommender_satiation(found: Found) -> Found:
    """What is exact and what was played, in the simulator with satiation."""
    exact = {name: found["exact"][name] for name in ("logger", "best within support 0.2", "optimal")}
    clicks = exact | {name: one for name, one in found["intervals"].items() if name != "critic on proposed items"}
    minus = {name.removeprefix("minus "): one for name, one in found["differences"].items()}
    rows = [{"name": name, "clicks": one, "minus": minus.get(name)} for name, one in clicks.items()]
    return {"rows": rows, "gained": minus["logger"]}


def _log(found: Found) -> Found:
    """A row a ranker on a real log: those of tidelog, and those of other packages on the same cases."""
    name = found["command"].split()[-1]
    files = [RESULTS / f"recommender_{kind}_{name}.json" for kind in ("peers", "rectools")]
    others = [kept(file.stem) for file in files if file.exists()]
    measures = ("hit rate", "ndcg")
    rows: list[Found] = []
    for ranker, some in by_key((row for row in found["rows"] if row["kind"] == "all"), lambda row: row["ranker"]):
        scores = {one: _over_seeds([row["scores"][one] for row in some]) for one in measures}
        gains = [one["gain"] for one in found["together"] if (one["over"], one["measure"]) == (ranker, "ndcg")]
        above, below = sum(low > 0 for _, low, _ in gains), sum(high < 0 for _, _, high in gains)
        minus = f"{mean(one[0] for one in gains):+.3f} ({above} / {below} of {len(gains)})" if gains else "-"
        seconds = mean(row["seconds"] for row in some)
        rows.append({"ranker": ranker, **scores, "seconds": seconds, "minus": minus})
    over = {one["over"]: one["gain"] for other in others for one in other.get("gains", []) if one["measure"] == "ndcg"}
    for ranker, some in by_key((row for other in others for row in other["rows"]), lambda row: row["ranker"]):
        scores = {one: _over_seeds([[row[one]] for row in some]) for one in measures}
        seconds = mean(row["seconds"] for row in some)
        rows.append({"ranker": ranker, **scores, "seconds": seconds, "minus": over.get(ranker)})
    return {
        "title": LOGS[name],
        "table": rows,
        "added": _added_by_q([one["all"]["discounted reward"] for one in found["differences"]]),
    }


def _added_by_q(gains: list[list[float]]) -> str:
    """What recommender BCQ adds to the discounted reward of its encoder alone, each seed in which it adds something."""
    added = [f"{one:+.3f} ({low:+.3f} to {high:+.3f})" for one, low, high in gains if one]
    each = f", by {', '.join(added)} of discounted reward" if added else ""
    return f"Q changes the lists of the encoder alone in {len(added)} of {len(gains)} seeds{each}. "


def _over_seeds(scores: list[list[float]]) -> Any:
    """A score: its interval over users, or over seeds where there are several; one number where nothing varies."""
    if len(scores) > 1:
        return seed_interval([score[0] for score in scores])
    return scores[0] if len(scores[0]) == 3 else scores[0][0]


recommender_entree = recommender_online_retail = recommender_open_bandit = _log


def recommender_delays(found: Found) -> Found:
    """A row a delay."""
    return {
        "rows": {
            "never" if delay == "0" else delay: one["exact"]
            | one["intervals"]
            | {"gain": one["intervals"]["chosen weight minus reader alone"]}
            | {"chosen": sum(weight > 0 for weight in one["weights"])}
            for delay, one in found["delays"].items()
        },
    }


def recommender_size(found: Found) -> Found:
    """Most memory of a command."""
    return {"most": max(one["gigabytes"] for one in found["commands"].values())}


def retrieval(found: Found) -> Found:
    """Queries a second."""
    cores = found["all cores"]
    return {
        "queries": {name: found["batch"] / seconds for name, seconds in cores["seconds"].items()},
        "over": cores["seconds"]["faiss flat"] / cores["seconds"]["ours"],
    }


def serving(found: Found) -> Found:
    """The cases, each with its size of batch."""
    sizes = {name: next(key for key in case["http"] if "batch" in key) for name, case in found["cases"].items()}
    cases = found["cases"].items()
    return {"cases": {name: case | {"size": sizes[name], "batch": case["http"][sizes[name]]} for name, case in cases}}


def algorithms(found: Found) -> Found:
    """On each kind of log a row for each algorithm, and one for the log."""
    return {
        name.partition("-")[0]: {
            one: {"worth": worth, "difference": task["differences"].get(one)}
            for one, worth in task["intervals"].items()
        }
        for name, task in found["tasks"].items()
    }


def draw(folder: Path) -> None:
    """Draw the pictures of the page."""
    folder.mkdir(exist_ok=True)
    _draw_over_updates(kept("icu_sepsis_iql"), folder / "icu_sepsis.png")
    _draw_by_episodes(kept("icu_sepsis_bcq"), folder / "icu_sepsis_bcq.png")


def _draw_over_updates(found: Found, path: Path) -> None:
    """Seeds are thin lines, their mean is a thick one."""
    figure = Figure(figsize=(7.5, 4.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, name in enumerate(("iql", "bc")):
        updates, values = series(found[name]["curve"], "exact value")
        axes.plot(updates, values.T, color=f"C{i}", linewidth=0.8, alpha=0.45)
        axes.plot(updates, values.mean(axis=0), color=f"C{i}", linewidth=2.2, label=f"{name} (mean of {len(values)})")
    for line, level, name in (("--", found["optimal"], "optimal"), (":", found["expert"], "clinicians")):
        axes.axhline(level, color="0.35", linewidth=1.0, linestyle=line, label=name)
    axes.set(xlabel="updates", ylabel="exact value", title="ICU-Sepsis: exact value of the greedy policy")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", fontsize=8)
    figure.savefig(path)


def _draw_by_episodes(found: Found, path: Path) -> None:
    figure = Figure(figsize=(11, 4.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    lines = [("discrete bcq", threshold) for threshold in found["thresholds"]] + [("iql", None), ("bc", None)]
    for axes, discount in zip(figure.subplots(1, 2), found["discounts"], strict=True):
        for i, (policy, threshold) in enumerate(lines):
            cells = [cell(found, policy, size, discount, threshold) for size in found["sizes"]]
            means = [one["interval"][0] for one in cells]
            name = policy.upper() if threshold is None else f"threshold {threshold:g}"
            axes.plot(found["sizes"], means, color=f"C{i}", marker="o", label=name, linewidth=1.8)
            for one in cells:
                axes.plot([one["episodes"]] * len(one["values"]), one["values"], ".", color=f"C{i}", alpha=0.5)
            if threshold is not None:
                level = found["oracle"][str(discount)][i]
                axes.axhline(level, color=f"C{i}", linestyle="--", linewidth=0.9, alpha=0.8)
        axes.axhline(found["expert"][str(discount)], color="0.35", linestyle=":", label="clinicians")
        axes.set(xscale="log", xlabel="logged episodes", ylabel="exact value", title=f"discount {discount:g}")
        axes.set_xticks(found["sizes"], [f"{size:,}" for size in found["sizes"]])
        axes.grid(alpha=0.25)
    figure.axes[0].legend(loc="best", fontsize=8, title="dashed: oracle of that threshold", title_fontsize=8)
    figure.savefig(path)
