"""`python -m benchmarks.redraw`: docs/evidence.md and its pictures, from the kept results alone."""

from pathlib import Path

from benchmarks.keep import RESULTS, kept
from tidelog.report.curves import draw_curves

DOCS = Path(__file__).resolve().parents[1] / "docs"


def interval(found: list[float], digits: int = 4) -> str:
    """`mean (low to high)`."""
    mean, low, high = (f"{value:.{digits}f}" for value in found)
    return f"{mean} ({low} to {high})"


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
solve at discount 1. Clinicians {found["expert"]:.4f}, optimal {found["optimal"]:.4f}. Mean with a 95 % t interval.

| policy | exact value | each seed |
|---|---|---|
{rows}

![exact value over updates](figures/icu_sepsis.png)

Command: `{found["command"]}`. Settings were chosen on a log played with another seed.
"""


def pendulum() -> str:
    """IQL against BC on Pendulum."""
    found = kept("pendulum_iql_bc")
    columns = zip(found["logger"], found["bc"], found["iql"], found["difference"], strict=True)
    rows = "\n".join(f"| {i} | {log:.0f} | {b:.0f} | {q:.0f} | {d:+.0f} |" for i, (log, b, q, d) in enumerate(columns))
    return f"""## IQL against BC on mixed-quality Pendulum logs

{found["episodes"]} episodes a log, each seed with a log of its own; {found["steps"]:,} updates; mean return over 50
episodes. IQL - BC: **{interval(found["interval"], 0)}**, 95 % t interval over {len(found["iql"])} seeds.

| seed | logger | BC | IQL | IQL - BC |
|---|---|---|---|---|
{rows}

Command: `{found["command"]}`. Nothing was tuned on these logs: IQL's locomotion preset, BC's defaults.
"""


def kills() -> str:
    """SIGKILL and resume."""
    found = kept("kills")
    rows = "\n".join(f"| {run['kind']} | {run['kills']} | {'yes' if run['equal'] else 'NO'} |" for run in found["runs"])
    return f"""## Killed and resumed

{found["kills"]} SIGKILLs at random moments of a process's life; each run resumed until done and compared with one never
interrupted: learners, metrics and best policies, to the last bit.

| run | kills | equal |
|---|---|---|
{rows}

Command: `{found["command"]}`.
"""


def speed() -> str:
    """`tidelog bench`, one section a machine."""
    return "\n".join(_speed(path.stem) for path in sorted(RESULTS.glob("speed*.json")))


def _speed(name: str) -> str:
    found = kept(name)
    machine = found["machine"]
    head = f"{machine['device']}, {machine['threads']} threads, jax {machine['jax']}"
    sections = []
    for algorithm in (
        key for key, value in found.items() if isinstance(value, dict) and "operations_per_update" in value
    ):
        result = found[algorithm]
        rows = "\n".join(
            f"| {figure.replace('_', ' ')} | {value['median']:.4g} | {value['min']:.4g} to {value['max']:.4g} |"
            for figure, value in result.items()
            if isinstance(value, dict) and "median" in value
        )
        millions = result["operations_per_update"] / 1e6
        sections.append(
            f"**{algorithm}**: one update is {millions:.1f} million operations, the sum of 2 m k n over its matrix "
            f"products.\n\n| figure | median | range |\n|---|---|---|\n{rows}\n"
        )
    return f"## Speed on {head}\n\n" + "\n".join(sections) + f"\nCommand: `{found['command']}`.\n"


def sampling() -> str:
    """Prioritised sampling, and logs on disk."""
    found = kept("sampling")
    large = found["large"]
    held, peak, ceiling = (f"{large[name] / 1e6:,.0f} MB" for name in ("log_bytes", "peak_bytes", "ceiling_bytes"))

    def share(name: str) -> str:
        figure = found[name]
        return f"{figure['median']:.1%} ({figure['min']:.1%} to {figure['max']:.1%})"

    return f"""## Other ways of sampling, IQL at paper size

A log of {found["rows"]:,} steps, rates taken in turn; median (range).

| what | figure |
|---|---|
| share of an update that prioritised sampling takes | {share("prioritised_share")} |
| rate from a warm log on disk, of the rate in memory | {share("on_disk_over_memory")} |
| the same bits after 600 updates | {"yes" if found["on_disk_equals_memory"] else "NO"} |
| anonymous memory at most, training on {large["rows"]:,} steps ({held}) from disk | {peak}, ceiling {ceiling} |
| updates a second there, cold / warm cache | {large["cold_rate"]:.0f} / {large["warm_rate"]:.0f} |

Command: `{found["command"]}`.
"""


def door() -> str:
    """The door for logs: size and fuzz."""
    size, fuzz = kept("door_size"), kept("door_fuzz")
    return f"""## The door

| what | figure |
|---|---|
| {size["rows"]:,} rows of {size["columns"]} columns from Parquet, read and checked | {size["seconds"]:.1f} s |
| peak of anonymous memory, of the log's size | {size["ratio"]:.2f} |
| random valid logs through round trips, and random damage, caught or harmless | {fuzz["examples"]:,} examples |

Commands: `{size["command"]}`, `{fuzz["command"]}`.
"""


def cartpole() -> str:
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

Command: `{found["command"]}`. The preset was chosen on other seeds.
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
play of the final policy. PPG - PPO: **{interval(found["interval"], 0)}**, 95 % t interval over
{len(found["difference"])} seeds.

| algorithm | mean return | each seed |
|---|---|---|
{rows}

Command: `{found["command"]}`.
"""
        )
    return "\n".join(parts)


def playing() -> str:
    """Decisions a second."""
    found = kept("ppg_speed_cpu")
    figures = ("collecting", "ppo", "ppo_two_networks", "ppg")
    rows = "\n".join(
        f"| {name} | " + " | ".join(f"{found[name][figure]['median']:,.0f}" for figure in figures) + " | "
        f"{found[name]['solved']['seconds']:.1f} s, {found[name]['solved']['decisions']:,} |"
        for name in ("jax:CartPole-v1", "CartPole-v1")
    )
    return f"""## Decisions a second on CartPole

{found["environments"]} environments x {found["rollout_steps"]} steps, 64 x 64 tanh, 4 minibatches, one seed; medians.
`ppo` has one trunk and 3 epochs, `ppo_two_networks` two and 4, `ppg` is that with an auxiliary phase every 16 rounds.

| environment | playing alone | ppo | ppo, two networks | ppg | until 475 (with compiling), decisions |
|---|---|---|---|---|---|
{rows}

Command: `{found["command"]}`.
"""


SECTIONS = ((speed, "speed"), (icu, "icu_sepsis_iql"), (pendulum, "pendulum_iql_bc"), (kills, "kills"))
SECTIONS += ((cartpole, "ppg_cartpole"), (continuous, "ppg_"), (playing, "ppg_speed"))
SECTIONS += ((sampling, "sampling"), (door, "door_size"))

if __name__ == "__main__":
    parts = ["# Evidence\n\nMade by `python -m benchmarks.redraw` from the files in `benchmarks/results`.\n"]
    for section, name in SECTIONS:
        if list(RESULTS.glob(f"{name}*.json")):
            parts.append(section())
    parts = [part for part in parts if part]
    (DOCS / "evidence.md").write_text("\n".join(parts))
