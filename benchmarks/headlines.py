"""One line for each part of docs/evidence.md, from its kept results: what was found, and with which uncertainty."""

import re
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.default_path_page import at_least, by_share, shown
from benchmarks.keep import RESULTS, kept

Found = dict[str, Any]


def _interval(found: list[float], digits: int = 0) -> str:
    mean, low, high = (f"{value:+.{digits}f}" for value in found[:3])
    return f"{mean} (95%: {low} to {high})"


def _share(found: Found) -> str:
    return f"{found['count']:,} of {found['of']:,} (at most {found['high']:.1%})"


def _league(found: Found) -> str:
    (good, acts), (better, power) = at_least(found), shown(found)
    return (
        f"recommendations not below the reference in {good} of {acts} logs; *better* in {better} of {power} splits "
        "with enough data"
    )


def _peers_learning(found: Found) -> str:
    rows = [row for row in found["parts"] if (row["task"], row["algorithm"]) == ("pendulum", "iql")]
    means = {way: [row["mean"][0] for row in rows if row["way"] == way] for way in ("default", "d3rlpy")}
    return "IQL's mean returns on two Pendulum logs: " + ", ".join(
        f"{', '.join(f'{mean:.0f}' for mean in values)} ({way})" for way, values in means.items() if values
    )


def _speed(found: Found) -> str:
    one = found["iql"]
    rate, share = one["updates_per_second"]["median"], one["share_of_ceiling"]["median"]
    return f"IQL: {rate:,.0f} updates a second, {share:.0%} of what this processor's matrix products allow"


def _peers(found: Found) -> str:
    named = []
    for way, title in (("eager", "eager PyTorch"), ("d3rlpy", "d3rlpy")):
        compared = [one[way] for one in found["algorithms"].values() if way in one]
        ratios = [one["tidelog_over_it_a_second"]["median"] for one in compared]
        named.append(f"{min(ratios):.1f} to {max(ratios):.1f} times {title}")
    return "updates a second: " + ", ".join(named)


def _several_seeds(found: Found) -> str:
    ratios = {name: one["four_over_two_processes"]["median"] for name, one in found["algorithms"].items()}
    return f"four seeds in one run: {min(ratios.values()):.2f} to {max(ratios.values()):.2f} times two processes"


def _overhead(found: Found) -> str:
    more = {one["engine"]: median(one["one_more"]) for one in found["engines"]}
    return "one more trial costs " + ", ".join(f"{seconds:.1f} s ({engine})" for engine, seconds in more.items())


def _simulators(found: Found) -> str:
    peers = ("ALS", "BM25 item-kNN", "SASRec")
    gains = {
        name: min((one["gains"][peer] for peer in peers), key=lambda gain: gain[0])
        for name, one in found["worlds"].items()
    }
    said = "; ".join(f"{name} {_interval(gain, 1)}" for name, gain in gains.items())
    return f"clicks of recommender BCQ minus those of the best package: {said}"


def _ppg_speed(found: Found) -> str:
    low, high = (
        min(one["over_it"]["tidelog"]["median"] for way, one in found["settings"][setting].items() if way in _SB3)
        for setting in ("two-networks", "small-minibatches")
    )
    return f"PPO on CartPole: {low:.1f} and {high:.1f} times the decisions a second of Stable-Baselines3"


_SB3 = ("one-thread", "all-threads", "processes")


def _calibration(found: Found) -> str:
    one = found["summary"]
    answered = 1 - one["unsupported"] / one["verdicts"]
    return f"*better* wrong in {_share(one['better_though_not'])}; {answered:.0%} of {one['verdicts']:,} logs answered"


def _randomised_part(found: Found) -> str:
    one = found["summary"]
    wrong = one["better_though_not"]["count"] + one["worse_though_not"]["count"]
    covered, answered = one["covered"], one["answered"]
    return (
        f"{answered['count']} of {answered['of']} answered; {covered['count']} of these intervals cover, "
        f"{wrong} wrong *better* or *worse*"
    )


def _carrying(found: Found) -> str:
    fresh = kept("carrying_report")["summary"]
    covered = fresh["covered"]
    return f"at least {found['chosen']:g} episodes; on fresh logs {covered['count']} of {covered['of']} intervals cover"


def _adversarial(found: Found) -> str:
    promises = found["promises"]
    held = promises.get("kept", 0) + promises.get("kept by its words", 0)
    return f"{held} of {len(found['cells'])} cells keep their promise, {promises.get('kept by its words', 0)} by words"


def _looks(found: Found) -> str:
    logs = sum(row["logs"] for row in found["rows"])
    wrong = [
        sum(row["rules"][rule]["logs_with_some_better"] for row in found["rows"]) for rule in ("ledger", "at once")
    ]
    return f"30 policies on {logs} logs of noise: some *better* in {wrong[0]} by the ledger, in {wrong[1]} at once"


def _judges(found: Found) -> str:
    counts = {name: one["possible"]["better_though_not"] for name, one in found["judges"].items()}
    return "wrong *better*: " + ", ".join(f"{name} {one['count']} of {one['of']}" for name, one in counts.items())


def _ppg_tasks(found: Found) -> str:
    tasks = [kept("ppg_hopper-v5"), kept("ppg_pendulum-v1")]
    return "PPG - PPO in return: " + "; ".join(f"{one['env']} {_interval(one['interval'])}" for one in tasks)


def _recommenders(found: Found) -> str:
    gained = kept("recommender_satiation")["differences"]
    return f"value gained on the simulated shop over the logger: {_interval(gained['minus logger'], 2)}"


def _delays(found: Found) -> str:
    gains = {delay: one["intervals"]["chosen weight minus reader alone"] for delay, one in found["delays"].items()}
    return "clicks that the chosen weight of Q adds where a click costs visits " + ", ".join(
        f"{'never' if delay == '0' else f'{delay} later'}: {_interval(gain, 2)}" for delay, gain in gains.items()
    )


def _verdict_speed(found: Found) -> str:
    medians = [one["median"] for one in found["cases"].values()]
    seconds = [one.get("processor_seconds", one["seconds"]) for one in medians]
    return f"a whole verdict in {min(seconds):.0f} to {max(seconds):.0f} s"


def _start(found: Found) -> str:
    cold, warm = (median(found["entries"]["iql"][f"{way}_over_bare"]) for way in ("cold", "warm"))
    return f"100 updates of IQL in a new process: {cold:.1f} bare starts cold, {warm:.1f} warm"


def _rounded(found: Found) -> str:
    ratios = [one["ratio"] for one in found["parts"]["speed"]["algorithms"].values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times the updates a second of float32, on one core"


HEADLINES: dict[str, Callable[[Found], str]] = {
    "speed_cpu": _speed,
    "peers": _peers,
    "update_profile": lambda f: (
        f"matrix products take {min(one['shares']['matrix products'] for one in f['profiles'].values()):.0%} to "
        f"{max(one['shares']['matrix products'] for one in f['profiles'].values()):.0%} of an update on one core"
    ),
    "rounded_products": _rounded,
    "start": _start,
    "icu_sepsis_iql": lambda f: f"survival {f['iql']['interval'][0]:.3f} by IQL, {f['expert']:.3f} by the clinicians",
    "pendulum_iql_bc": lambda f: f"IQL - BC in return: {_interval(f['interval'])} over {len(f['difference'])} seeds",
    "imperfect_pendulum": lambda f: f"BCQ - BC in return: {_interval(f['difference_intervals']['bc'])}",
    "imperfect_hopper": lambda f: f"BCQ - BC in return: {_interval(f['difference_intervals']['bc'])}",
    "own_algorithms": lambda f: (
        f"TD3+BC - BC in return: {_interval(f['td3-bc']['interval'])}; CQL - BC: {_interval(f['cql']['interval'])}"
    ),
    "kills": lambda f: f"{f['kills']} killed processes, every resumed run equal to the last bit: {f['equal']}",
    "ppg_cartpole": lambda f: f"return {f['jax:CartPole-v1']['interval'][0]:.0f} of 500 after {f['steps']:,} decisions",
    "ppg_": _ppg_tasks,
    "ppg_speed_sb3": _ppg_speed,
    "play_ahead": lambda f: (
        f"up to {max(one['gain'] for one in f['environments'].values()):.2f} times the decisions a second"
    ),
    "several_seeds": _several_seeds,
    "gpu_bc": lambda f: (
        f"behaviour cloning with 64 seeds makes {median(f['found']['seeds_64']['updates_per_second']):,.0f} updates a "
        "second"
    ),
    "sweep_overhead": _overhead,
    "off_policy_ppg_cartpole": lambda f: f"decisions saved until solved: {_interval(f['saved_interval'])}",
    "off_policy_ppg_stale": lambda f: f"recomputed - stored in return: {_interval(f['gained_interval'])}",
    "pictures_vault": lambda f: f"PPG - PPO in return: {_interval(f['final_gained_interval'], 2)}",
    "picture_speed_cpu": lambda f: (
        f"{f['batches']['64']['channels-last']['tidelog_over_it_a_second']['median']:.2f} times as many pictures a "
        "second as PyTorch, "
        f"{f['batches']['64']['channels-last']['over_it']['tidelog-cores']['median']:.2f} with each core a device"
    ),
    "t_maze": lambda f: (
        f"return {f['runs']['PPG with a memory']['interval'][0]:.2f} of {f['best']:.0f}, "
        f"{f['without_memory']} without a recurrent policy"
    ),
    "league": _league,
    "null_path": lambda f: (
        f"something recommended in {f['cells'][0]['recommended']} of {f['cells'][0]['logs']} logs without an effect "
        f"(bound {f['cells'][0]['bound']})"
    ),
    "held_out": lambda f: (
        "share of the best gain: " + ", ".join(f"{gain:.2f} with {share:.0%}" for share, gain in by_share(f))
    ),
    "peers_learning": _peers_learning,
    "fine_tuning_pendulum": lambda f: f"online - offline in return: {_interval(f['interval'])}",
    "calibration": _calibration,
    "randomised_part": _randomised_part,
    "choose_carrying": _carrying,
    "adversarial": _adversarial,
    "judge_peers": _judges,
    "looks": _looks,
    "cartpole_discrete_bcq": lambda f: f"discrete BCQ - BC in return: {_interval(f['interval'])}",
    "icu_sepsis_bcq": lambda f: "value by threshold and size of the log",
    "risk_bands": lambda f: (
        f"everything at once holds in {f['pooled'][-1]['covered']['all'][0]:.1%} of logs of "
        f"{f['pooled'][-1]['episodes']:,} episodes"
    ),
    "verdict_speed": _verdict_speed,
    "recommender_": _recommenders,
    "recommender_delays": _delays,
    "recommender_simulators": _simulators,
    "recommender_size": lambda f: (
        f"{f['events'] / 1e6:.0f} million events trained on within "
        f"{max(one['gigabytes'] for one in f['commands'].values()):.0f} GB"
    ),
    "recommender_successors": lambda f: (
        "ndcg that counted successors add after a short training: "
        + "; ".join(
            f"{row['log']} {_interval(row['gain'], 3)}"
            for row in f["rows"]
            if (row.get("over"), row["measure"]) == ("without counts", "ndcg")
        )
    ),
    "recommender_peers": lambda f: (
        f"times PyTorch's events a second, on {next(iter(f['parts']))}: "
        + "; ".join(
            f"{case} {one['ways']['torch']['tidelog_over_it_a_second']['median']:.1f}"
            for case, one in next(iter(f["parts"].values())).items()
        )
    ),
    "recommender_speed": lambda f: (
        f"{f['phases']['table and reader alone']['events']:,.0f} events a second over {f['items']:,} items"
    ),
    "serving": lambda f: "times to start, to act and to answer",
    "sampling": lambda f: f"prioritised sampling takes {f['prioritised_share']['median']:.0%} of an update",
    "door_size": lambda f: f"{f['rows']:,} rows read in {f['seconds']:.0f} s",
    "retrieval": lambda f: (
        f"exact search of {f['rows']:,} items, "
        f"{f['all cores']['seconds']['faiss flat'] / f['all cores']['seconds']['ours']:.1f} times as fast as FAISS flat"
    ),
}


def index(sections: list[tuple[str, str]]) -> str:
    """Return the table that leads the page, from the results names and the texts of its sections."""
    rows = []
    for name, text in sections:
        title = text.split("\n", 1)[0].removeprefix("## ")
        stem = min(path.stem for path in RESULTS.glob(f"{name}*.json"))
        headline = HEADLINES.get(name) or HEADLINES[stem]
        result = headline(kept(stem))
        rows.append(f"| [{title}](#{anchor(title)}) | {result} |")
    return "| what was measured | result |\n|---|---|\n" + "\n".join(rows) + "\n"


def anchor(title: str) -> str:
    """Return the anchor of a heading as GitHub and Sphinx make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
