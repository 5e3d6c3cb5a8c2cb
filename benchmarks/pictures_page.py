"""The sections of docs/evidence.md that are about pictures, from kept results alone."""

from benchmarks.keep import kept

NAMES = {"ppo": "PPO", "ppg": "PPG"}
STEPS = {
    "ours_64": "ours, 64 pictures a step",
    "ours_512": "ours, 512 pictures a step",
    "xla": "XLA's own gradients in the same loop, 64",
    "xla_outside": "XLA's own gradients, one call a step, 64",
}


def interval(found: list[float]) -> str:
    """`mean (low to high)`."""
    return f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def signed(found: list[float]) -> str:
    """The same of a difference."""
    return f"{found[0]:+.3f} ({found[1]:+.3f} to {found[2]:+.3f})"


def vault() -> str:
    """PPG against PPO on pictures."""
    found = kept("pictures_vault")
    rows = "\n".join(
        f"| {NAMES[name]} | {interval(found[name]['mean_interval'])} | {interval(found[name]['final_interval'])} "
        f"| {', '.join(f'{value:.2f}' for value in found[name]['final'])} |"
        for name in NAMES
    )
    halves = "\n".join(f"| {NAMES[name]} | {_along(found[name]['curves'])} |" for name in NAMES)
    ends = [at for at, _ in next(iter(found["ppo"]["curves"].values()))]
    return f"""## PPG against PPO on pictures

The vault, 16 by 16 pictures, {found["steps"]:,} decisions a seed. Exact share of episodes in which the sampled policy
reaches the goal: best 1, by chance {found["chance"]:.3f}, and 0.5 for whoever finds the goal without heeding the door's
colour. Over {len(found["seeds"])} seeds with 95% t intervals, PPG - PPO: {signed(found["mean_gained_interval"])} on
average over the run, {signed(found["final_gained_interval"])} at its end.

| algorithm | mean over {len(ends)} reports | at the end | each seed |
|---|---|---|---|
{rows}

| after decisions | {" | ".join(f"{at:,}" for at in ends[1::2])} |
|---|{"---|" * len(ends[1::2])}
{halves}

Command: `{found["command"]}`. Settings are those that served PPO best on a seed that is not reported.
"""


def _along(curves: dict) -> str:
    """The mean over seeds at every second report."""
    values = [[value for _, value in curve] for curve in curves.values()]
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]
    return " | ".join(f"{mean:.2f}" for mean in means[1::2])


def speed() -> str:
    """IMPALA's training step."""
    found = kept("picture_speed_cpu")
    rows = "\n".join(
        f"| {words} | {found[name]['a_processor_second']:,.0f} "
        f"| {found[name]['median']:,.0f} ({found[name]['min']:,.0f} to {found[name]['max']:,.0f}) |"
        for name, words in STEPS.items()
    )
    return f"""## Pictures a second through IMPALA's training step

64 by 64 by 3, 256 features, Adam; inside `fori_loop`, {found["machine"]["threads"]} threads. The largest gap between
both ways' gradients is {found["gap_of_gradients"]:.0e} of the largest entry of its array.

| training step | pictures a second of processor time | pictures a second |
|---|---|---|
{rows}

Others used the machine meanwhile; processor time depends on that least. Command: `{found["command"]}`.
"""
