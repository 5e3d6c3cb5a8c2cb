"""`python -m benchmarks redraw`: docs/evidence.md and its pictures, from the kept results alone."""

from pathlib import Path
from statistics import median

from benchmarks.curves import draw_curves
from benchmarks.default_path_page import held_out, league, null_path, peers_learning
from benchmarks.headlines import index
from benchmarks.icu_sepsis_bcq import cell
from benchmarks.judging_page import (
    adversarial,
    calibration,
    carrying,
    judges,
    judging_speed,
    looks,
    randomised_part,
    risk_bands,
)
from benchmarks.keep import RESULTS, interval, kept, ranged, source
from benchmarks.pictures_page import speed as picture_speed
from benchmarks.pictures_page import vault
from benchmarks.recommender_page import delays, recommenders, retrieval, simulators, successors
from benchmarks.recommender_page import peers as recommender_peers
from benchmarks.recommender_page import size as recommender_size
from benchmarks.recommender_page import speed as recommender_speed
from benchmarks.serving_page import serving
from benchmarks.speed_page import (
    gpu,
    overhead,
    peers,
    rounded_products,
    several_seeds,
    speed,
    start,
    update_profile,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"


def icu() -> str:
    """Discrete IQL on ICU-Sepsis."""
    found = kept("icu_sepsis_iql")
    levels = {"optimal": found["optimal"], "clinicians": found["expert"]}
    runs = {name: found[name]["curve"] for name in ("iql", "bc")}
    title = "ICU-Sepsis: exact value of the greedy policy"
    (DOCS / "figures").mkdir(exist_ok=True)
    draw_curves(runs, "exact value", DOCS / "figures/icu_sepsis.png", levels=levels, title=title)
    rows = "\n".join(
        f"| {name} | {interval(found[name]['interval'])} | {', '.join(f'{v:.4f}' for v in found[name]['greedy'])} |"
        for name in ("iql", "bc")
    )
    return f"""## Discrete IQL on ICU-Sepsis

{found["episodes"]:,} episodes played by the clinicians' policy; {found["steps"]:,} updates, 3 seeds; values by linear
solve at discount 1. Clinicians {found["expert"]:.4f}, optimal {found["optimal"]:.4f}. Mean with a 95% t interval.

| policy | exact value | each seed |
|---|---|---|
{rows}

![exact value over updates](figures/icu_sepsis.png)

{source(found)} Settings were chosen on a log played with another seed.
"""


def pendulum() -> str:
    """IQL against BC on Pendulum."""
    found = kept("pendulum_iql_bc")
    columns = zip(found["logger"], found["bc"], found["iql"], found["difference"], strict=True)
    rows = "\n".join(f"| {i} | {log:.0f} | {b:.0f} | {q:.0f} | {d:+.0f} |" for i, (log, b, q, d) in enumerate(columns))
    return f"""## IQL against BC on mixed-quality Pendulum logs

{found["episodes"]} episodes a log, each seed with a log of its own; {found["steps"]:,} updates; mean return over 50
episodes. IQL - BC: **{interval(found["interval"], 0)}**, 95% t interval over {len(found["iql"])} seeds.

| seed | logger | BC | IQL | IQL - BC |
|---|---|---|---|---|
{rows}

{source(found)} Nothing was tuned on these logs: IQL's locomotion preset, BC's
defaults, features and rewards in their own units.
"""


def icu_bcq() -> str:
    """Discrete BCQ on ICU-Sepsis."""
    found = kept("icu_sepsis_bcq")
    _draw_by_episodes(found, DOCS / "figures/icu_sepsis_bcq.png")
    sizes = found["sizes"]
    head = " | ".join(f"{size:,} episodes" for size in sizes)
    tables = "\n".join(
        f"Discount {discount:g}; clinicians {found['expert'][str(discount)]:.4f}:\n\n"
        f"| policy | {head} | counts alone, {sizes[-1]:,} | oracle |\n|---|{'---|' * len(sizes)}---|---|\n"
        + "\n".join(_icu_bcq_rows(found, discount))
        + "\n"
        for discount in found["discounts"]
    )
    unfiltered, filtered = (cell(found, "discrete bcq", sizes[-1], 1.0, threshold) for threshold in (0.0, 0.3))
    believed = [sum(row["q_mean"]) / len(row["q_mean"]) for row in (unfiltered, filtered)]
    return f"""## Discrete BCQ on ICU-Sepsis

Episodes played by the clinicians' policy; {found["steps"]:,} updates, {found["seeds"]} seeds; values by linear solve at
the discount that was trained with. Mean with a 95% t interval over seeds, all on the same log. The oracle is the best
policy within the clinicians' true support; "counts alone" is the same rule on the log's counts, exactly and without a
network: what lies between these two is due to the log's size.

{tables}
At threshold 0 nothing is filtered: at {sizes[-1]:,} episodes and discount 1, Q says {believed[0]:.1f} on average of the
logged decisions, where no return is above 1; at threshold 0.3 it says {believed[1]:.2f}.

![exact value by episodes](figures/icu_sepsis_bcq.png)

{source(found)} Settings were chosen on a log played with another seed; IQL's are those of its own study.
"""


def _icu_bcq_rows(found: dict, discount: float) -> list[str]:
    def line(name: str, policy: str, threshold: float | None, *rest: str) -> str:
        cells = (cell(found, policy, size, discount, threshold)["interval"] for size in found["sizes"])
        return f"| {' | '.join([name, *map(interval, cells), *rest])} |"

    rows = []
    for threshold, best in zip(found["thresholds"], found["oracle"][str(discount)], strict=True):
        counts = cell(found, "counts", found["sizes"][-1], discount, threshold)["values"][0]
        rows.append(line(f"threshold {threshold:g}", "discrete bcq", threshold, f"{counts:.4f}", f"{best:.4f}"))
    return [*rows, line("IQL", "iql", None, "", ""), line("BC", "bc", None, "", "")]


def _draw_by_episodes(found: dict, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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


def imperfect_pendulum() -> str:
    """BCQ on imperfect demonstrations of Pendulum."""
    return _imperfect("pendulum")


def imperfect_hopper() -> str:
    """BCQ on imperfect demonstrations of Hopper."""
    return _imperfect("hopper")


def _imperfect(name: str) -> str:
    found = kept(f"imperfect_{name}")
    returns, order = found["returns"], ("logger", "demonstrator", "bc", "iql", "bcq")
    rows = "\n".join(
        f"| {seed} | " + " | ".join(f"{returns[who][seed]:,.0f}" for who in order) + " |"
        for seed in range(len(returns["bcq"]))
    )
    means = " | ".join(interval(found["intervals"][who], 0) for who in order)
    titles = {"logger": "the noisy logger", "demonstrator": "the clean demonstrator", "bc": "BC", "iql": "IQL"}
    differences = "\n".join(
        f"| BCQ - {titles[who]} | {interval(values, 0)} |" for who, values in found["difference_intervals"].items()
    )
    return f"""## BCQ on imperfect demonstrations: {found["environment"]}

At each decision with chance 0.3 a random action, otherwise the demonstrator's with Gaussian noise of 0.3 of half the
range. {found["decisions"]:,} decisions a log, each seed with a log of its own; {found["steps"]:,} updates each; mean
return over {found["played"]} episodes from the same starts. 95% t intervals over {len(returns["bcq"])} seeds.

| seed | logger | demonstrator | BC | IQL | BCQ |
|---|---|---|---|---|---|
{rows}
| mean | {means} |

| paired over seeds | difference |
|---|---|
{differences}

{source(found)} Nothing was tuned on these logs: defaults of BCQ and BC, IQL's
locomotion preset, features and rewards in their own units.
"""


def cartpole() -> str:
    """Discrete BCQ against BC on CartPole."""
    found = kept("cartpole_discrete_bcq")
    columns = zip(found["logger"], found["bc"], found["discrete_bcq"], strict=True)
    rows = "\n".join(f"| {i} | {log:.0f} | {b:.0f} | {q:.0f} |" for i, (log, b, q) in enumerate(columns))
    return f"""## Discrete BCQ against BC on mixed-quality CartPole logs

{found["episodes"]:,} episodes a log, one in ten by a player who mostly balances, the others mostly push the wrong way;
each seed with a log of its own; {found["steps"]:,} updates; mean return over 50 episodes, at most {found["most"]:.0f}.
Discrete BCQ: **{interval(found["returns"], 0)}**; discrete BCQ - BC: {interval(found["interval"], 0)}, 95% t intervals
over {len(found["bc"])} seeds.

| seed | logger | BC | discrete BCQ |
|---|---|---|---|
{rows}

{source(found)} Algorithms at their defaults, features and rewards in their own units;
the mix was chosen on logs of other seeds.
"""


def kills() -> str:
    """SIGKILL and resume."""
    found = kept("kills")
    rows = "\n".join(
        f"| {name} | {one['kills']} | {'NO' if one['not equal'] else 'yes'} |" for name, one in found["paths"].items()
    )
    return f"""## Killed and resumed

{found["kills"]} SIGKILLs at random moments of a process's life; each run resumed until done and compared with one never
interrupted: learners, metrics and best policies, to the last bit.

| run | kills | equal |
|---|---|---|
{rows}

{source(found)}
"""


def sampling() -> str:
    """Prioritised sampling, and logs on disk."""
    found = kept("sampling")
    large = found["large"]
    held, peak, ceiling = (f"{large[name] / 1e6:,.0f} MB" for name in ("log_bytes", "peak_bytes", "ceiling_bytes"))

    return f"""## Other ways of sampling, IQL at paper size

A log of {found["rows"]:,} steps, rates taken in turn; median (range).

| what | figure |
|---|---|
| share of an update that prioritised sampling takes | {ranged(found["prioritised_share"], ".1%")} |
| rate from a warm log on disk, of the rate in memory | {ranged(found["on_disk_over_memory"], ".1%")} |
| the same bits after 600 updates | {"yes" if found["on_disk_equals_memory"] else "NO"} |
| anonymous memory at most, training on {large["rows"]:,} steps ({held}) from disk | {peak}, ceiling {ceiling} |
| updates a second there, cold / warm cache | {large["cold_rate"]:.0f} / {large["warm_rate"]:.0f} |

{source(found)}
"""


def door() -> str:
    """The door for logs: size and fuzz."""
    size, fuzz = kept("door_size"), kept("door_fuzz")
    return f"""## Reading a large table

| what | figure |
|---|---|
| {size["rows"]:,} rows of {size["columns"]} columns from Parquet, read and checked | {size["seconds"]:.1f} s |
| peak of anonymous memory, of the log's size | {size["ratio"]:.2f} |
| random valid logs through round trips, and random damage, caught or harmless | {fuzz["examples"]:,} examples |

{source(size, fuzz)}
"""


def ppg_cartpole() -> str:
    """PPG until CartPole is solved."""
    found = kept("ppg_cartpole")
    rows = "\n".join(
        f"| {name} | {', '.join(f'{value:.0f}' for value in found[name]['returns'])} | {found[name]['decisions']:,} "
        f"| {found[name]['auxiliary_phases']} |"
        for name in ("CartPole-v1", "jax:CartPole-v1")
    )
    return f"""## PPG on CartPole

Preset `classic-control`, {found["steps"]:,} decisions a seed; deterministic play of the final policy,
{found["episodes"]} episodes a seed. Solved is a mean return of {found["solved"]:.0f}.

| environment | return of each seed | decisions | auxiliary phases |
|---|---|---|---|
{rows}

{source(found)} The preset was chosen on other seeds.
"""


def t_maze() -> str:
    """A T-maze with and without a memory."""
    found = kept("t_maze")
    seeds = len(next(iter(found["runs"].values()))["returns"])
    rows = "\n".join(
        f"| {name} | {interval(run['interval'], 2)} | {', '.join(f'{value:.2f}' for value in run['returns'])} | "
        f"{', '.join('never' if at is None else f'{at:,}' for at in run['solved'])} |"
        for name, run in found["runs"].items()
    )
    return f"""## A T-maze with and without a memory

`jax:t-maze`: which way is paid was seen {found["length"]} steps before the corridor divides. Best return
{found["best"]:.0f}; without a memory {found["without_memory"]:g}, whatever the policy. {found["steps"]:,} decisions a
seed; deterministic play of the final policy, {found["episodes"]} episodes a seed; a recurrent unit of {found["width"]}
or none. Mean with a 95% t interval over {seeds} seeds. Solved: the sampled policy returns 0.95 at a report.

| algorithm | return | each seed | decisions until solved |
|---|---|---|---|
{rows}

{source(found)} The classic-control preset with a learning rate of 1e-3 and an entropy
bonus of 0.01, chosen on seeds 100 to 102 after these five had been seen at the preset's rate: there, after 122,880
decisions PPG with a memory earned 1.00 and PPO 0.90 (0.63 to 1.17), and after 184,320 both 0.90, because one seed of
PPG's had lost what it had found and one of PPO's had never found it.
"""


def off_policy_cartpole() -> str:
    """Off-policy PPG against PPG until CartPole is solved."""
    found = kept("off_policy_ppg_cartpole")
    rows = "\n".join(
        f"| {name} | {interval(found[key]['solved_interval'], 0)} | "
        f"{', '.join(f'{at:,}' for at in found[key]['solved_at'])} |"
        for name, key in (("PPG", "ppg"), ("off-policy PPG", "off_policy_ppg"))
    )
    return f"""## Off-policy PPG against PPG on CartPole

Decisions until {found["episodes"]} deterministic episodes return {found["solved"]:.0f} on average at a report, reports
every {found["every"]:,} decisions; {found["env"]}, both with their classic-control presets. Decisions saved:
**{interval(found["saved_interval"], 0)}**, 95% t interval over {len(found["saved"])} seeds.

| algorithm | decisions | each seed |
|---|---|---|
{rows}

{source(found)} The presets were chosen on other seeds.
"""


def stale_advantages() -> str:
    """Off-policy PPG with targets recomputed, and with targets stored when they were collected."""
    found = kept("off_policy_ppg_stale")

    def line(name: str) -> str:
        solved = ", ".join("never" if at is None else f"{at:,}" for at in found[name]["solved_at"])
        return f"| {name} | {interval(found[name]['mean_return_interval'], 0)} | {solved} |"

    rows = "\n".join(line(name) for name in ("recomputed", "stored"))
    return f"""## Off-policy PPG: targets recomputed or stored

The published way stores advantages and targets when a segment is collected. Both ways on {found["env"]} with rings of
32 collections in which segments live until they are replaced; {found["steps"]:,} decisions, otherwise the
classic-control preset; the mean over all reports of {found["episodes"]} deterministic episodes. Recomputed - stored:
**{interval(found["gained_interval"], 0)}**, 95% t interval over {len(found["gained"])} seeds.

| targets | mean return while learning | solved at decision, each seed |
|---|---|---|
{rows}

{source(found)}
"""


def fine_tuning() -> str:
    """IQL on a log, then online."""
    found = kept("fine_tuning_pendulum")
    head = " | ".join(f"{at:,}" for at in found["decisions"])
    rows = "\n".join(
        f"| {seed} | {log:.0f} | {start:.0f} | {' | '.join(f'{worth:.0f}' for _, worth in curve)} |"
        for seed, (log, start, curve) in enumerate(zip(found["logger"], found["offline"], found["curves"], strict=True))
    )
    means = " | ".join(interval(values, 0, "+") for values in found["along_the_way"])
    return f"""## IQL from a log into the environment

{found["env"]}: {found["episodes"]} episodes of mixed quality a log, {found["offline_updates"]:,} updates on it, then
online with half of each minibatch from the log. Online - offline at the end:
**{interval(found["interval"], 0)}**, 95% t interval over {len(found["offline"])} seeds. Mean
return of deterministic play after so many decisions:

| seed | logger | offline | {head} |
|---|---|---|{"---|" * len(found["decisions"])}
{rows}
| online - offline | | | {means} |

{source(found)} Nothing was tuned.
"""


def continuous() -> str:
    """PPG against PPO, continuous actions."""
    parts = []
    for path in sorted(RESULTS.glob("ppg_*.json")):
        found = kept(path.stem)
        if "difference" not in found:
            continue
        each = {name: ", ".join(f"{value:.0f}" for value in found[name]["returns"]) for name in ("ppg", "ppo")}
        rows = "\n".join(f"| {name} | {interval(found[name]['interval'], 0)} | {each[name]} |" for name in each)
        parts.append(
            f"""## PPG against PPO on {found["env"]}

Preset `{found["preset"]}` for both, PPO without the auxiliary phase; {found["steps"]:,} decisions a seed; deterministic
play of the final policy. PPG - PPO: **{interval(found["interval"], 0)}**, 95% t interval over
{len(found["difference"])} seeds.

| algorithm | mean return | each seed |
|---|---|---|
{rows}

{source(found)}
"""
        )
    return "\n".join(parts)


def playing() -> str:
    """Decisions a second."""
    found, beside = kept("ppg_speed_cpu"), kept("ppg_speed_sb3")
    figures = ("collecting", "ppo", "ppo_two_networks", "ppo_small_minibatches", "ppg")
    rows = "\n".join(
        f"| {name} | " + " | ".join(_rate(found[name].get(figure)) for figure in figures) + " |"
        for name in ("jax:CartPole-v1", "CartPole-v1", "Hopper-v5")
    )
    solved = "\n".join(
        f"| {name} | {', '.join(_solved(one) for one in measured['solved'])} |"
        for name, measured in found.items()
        if isinstance(measured, dict) and "solved" in measured
    )
    alone, learnt = (found[name][figure]["median"] for name, figure in _ALONE)
    return f"""## Decisions a second in environments

CartPole: {found["environments"]} environments x {found["rollout_steps"]} steps, 64 x 64 tanh, 4 minibatches. `ppo` has
one trunk and 3 epochs, `two networks` has 4, `small minibatches` is that with 10 epochs in minibatches of 64, `ppg` is
`two networks` with an auxiliary phase every 16 rounds. Hopper: the preset `mujoco`, without the auxiliary phase and
with it. One seed on {found["machine"]["processor"]}; median (range).

| environment | playing alone | ppo | ppo, two networks | ppo, small minibatches | ppg |
|---|---|---|---|---|---|
{rows}

Seconds until a report's episodes reach 475 on CartPole (`ppo`) and -200 on Pendulum (the preset `classic-control`
without its auxiliary phase) on average, once compiled, and decisions, by seed:

| environment | seconds (decisions) |
|---|---|
{solved}

{source(found)}

Beside Stable-Baselines3 with the same environments, networks, epochs and minibatches, on gymnasium's environments;
{beside["cores"]} cores of {beside["machine"]["processor"]}, {beside["rounds"]} rounds of {beside["seconds"]:.0f}
seconds in which all ways take turns. `ahead` plays the next round while it learns from the last one. A ratio is to the
faster way of Stable-Baselines3 and that of one round, with its range; the last one is of CartPole compiled in JAX.

| setting | Stable-Baselines3 | tidelog | over that | ahead | over that | in JAX, over that |
|---|---|---|---|---|---|---|
{_beside_sb3(beside["settings"])}

The goals were 10 times on CartPole and 2 times on Hopper. With large minibatches the first is missed: of a decision of
`two networks`, playing gymnasium's CartPole takes {1e6 / alone:.1f} microseconds and learning {1e6 / learnt:.1f} (all
of a decision in JAX, where playing takes next to nothing), and a tenth of Stable-Baselines3's time is
{_tenth(beside["settings"]["two-networks"]):.1f}.

{source(beside)}
"""


_ALONE = (("CartPole-v1", "collecting"), ("jax:CartPole-v1", "ppo_two_networks"))
_SB3 = {"one-thread": "one thread", "all-threads": "all threads", "processes": "a process for each environment"}


def _faster(ways: dict) -> str:
    """The way of Stable-Baselines3 with the higher median."""
    return max((way for way in _SB3 if way in ways), key=lambda way: ways[way]["updates_a_second"]["median"])


def _tenth(ways: dict) -> float:
    """Microseconds: a tenth of the time of a decision in Stable-Baselines3."""
    return 1e5 / ways[_faster(ways)]["updates_a_second"]["median"]


def _beside_sb3(settings: dict) -> str:
    lines = []
    for setting, ways in settings.items():
        way = _faster(ways)
        theirs = ways[way]
        ours = [_rate(theirs["updates_a_second"]) + f", {_SB3[way]}"]
        for mine in ("tidelog", "ahead", "in JAX"):
            ratios = theirs.get("over_it", {}).get(mine)
            if mine != "in JAX":
                ours.append(_rate(ways[mine]["updates_a_second"]))
            ours.append("-" if ratios is None else ranged(ratios, ".1f"))
        lines.append(f"| {setting} | {' | '.join(ours)} |")
    return "\n".join(lines)


def play_ahead() -> str:
    """With and without the thread that plays."""
    found = kept("play_ahead")
    rows = "\n".join(
        f"| {name} | {median(one['rates']['at once']):,.0f} | {median(one['rates']['ahead']):,.0f} | "
        f"{one['collect_share']['at once']:.2f} | **{one['gain']:.2f}** ({min(one['gains']):.2f} to "
        f"{max(one['gains']):.2f}) |"
        for name, one in found["environments"].items()
    )
    return f"""## Playing one round ahead

Decisions a second of PPG's classic-control preset, {found["rounds"]} rounds after {found["warm_rounds"]} that do not
count, {len(next(iter(found["environments"].values()))["gains"])} pairs of runs that take turns: each round played and
then learnt from, or (`ahead`) the next one played by a thread meanwhile. Median, and of the gain the range.

| environment | at once | ahead | share of playing, at once | gain |
|---|---|---|---|---|
{rows}

{source(found)}
"""


def _rate(found: dict | None) -> str:
    return "" if found is None else ranged(found, ",.0f")


def _solved(found: dict) -> str:
    return f"{found['seconds']:.1f} ({found['decisions']:,})" if found["seconds"] else f"not in {found['decisions']:,}"


SECTIONS = (
    (league, "league"),
    (null_path, "null_path"),
    (held_out, "held_out"),
    (peers_learning, "peers_learning"),
    (speed, "speed"),
    (peers, "peers"),
    (update_profile, "update_profile"),
    (rounded_products, "rounded_products"),
    (start, "start"),
    (several_seeds, "several_seeds"),
    (gpu, "gpu_"),
    (icu, "icu_sepsis_iql"),
    (icu_bcq, "icu_sepsis_bcq"),
    (pendulum, "pendulum_iql_bc"),
)
SECTIONS += ((imperfect_pendulum, "imperfect_pendulum"), (imperfect_hopper, "imperfect_hopper"), (kills, "kills"))
SECTIONS += ((ppg_cartpole, "ppg_cartpole"), (continuous, "ppg_"), (playing, "ppg_speed_sb3"))
SECTIONS += ((play_ahead, "play_ahead"), (overhead, "sweep_overhead"))
SECTIONS += ((off_policy_cartpole, "off_policy_ppg_cartpole"), (stale_advantages, "off_policy_ppg_stale"))
SECTIONS += ((vault, "pictures_vault"), (picture_speed, "picture_speed_cpu"))
SECTIONS += ((t_maze, "t_maze"),)
SECTIONS += ((fine_tuning, "fine_tuning_pendulum"),)
SECTIONS += ((calibration, "calibration"), (randomised_part, "randomised_part"), (carrying, "choose_carrying"))
SECTIONS += ((adversarial, "adversarial"), (judges, "judge_peers"), (looks, "looks"))
SECTIONS += ((risk_bands, "risk_bands"), (judging_speed, "verdict_speed"))
SECTIONS += ((sampling, "sampling"), (door, "door_size"))
SECTIONS += (
    (cartpole, "cartpole_discrete_bcq"),
    (recommenders, "recommender_"),
    (delays, "recommender_delays"),
    (simulators, "recommender_simulators"),
    (recommender_speed, "recommender_speed"),
    (recommender_peers, "recommender_peers"),
    (recommender_size, "recommender_size"),
    (successors, "recommender_successors"),
    (retrieval, "retrieval"),
    (serving, "serving"),
)


def own_algorithms() -> str:
    """The examples' algorithms against behaviour cloning."""
    found = kept("own_algorithms")
    rows = "\n".join(
        f"| {name} | {one['environment']} | {one['steps']:,} | {interval(one['intervals'][name], 0)} | "
        f"{interval(one['intervals']['bc'], 0)} | **{interval(one['interval'], 0)}** |"
        for name, one in found.items()
        if name in ("td3-bc", "cql")
    )
    return f"""## Algorithms of one's own: TD3+BC and CQL against BC

`examples/td3_bc.py` and `examples/cql.py` at their defaults, {len(found["cql"]["difference"])} seeds, each with a log
of its own; mean return of {found["episodes"]} episodes, 95% t intervals; the difference is paired.

| algorithm | environment | updates | return | BC | difference |
|---|---|---|---|---|---|
{rows}

{source(found)}
"""


SECTIONS += ((own_algorithms, "own_algorithms"),)

if __name__ == "__main__":
    rendered = [(name, section()) for section, name in SECTIONS if list(RESULTS.glob(f"{name}*.json"))]
    rendered = [(name, text) for name, text in rendered if text]
    head = "# Evidence\n\nMade by `python -m benchmarks redraw` from the files in `benchmarks/results`.\n"
    (DOCS / "evidence.md").write_text("\n".join([head, index(rendered), *(text for _, text in rendered)]))
