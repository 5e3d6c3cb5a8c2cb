"""The sections of docs/evidence.md that are about pictures, from kept results alone."""

from benchmarks.keep import interval, kept, ranged, source

NAMES = {"ppo": "PPO", "ppg": "PPG"}
WAYS = {
    "tidelog": "tidelog",
    "tidelog-cores": "tidelog, each core a device",
    "xla": "XLA's own gradients, one call a step",
    "xla-loop": "XLA's own gradients in the same loop",
    "channels-last": "PyTorch, channels last",
    "channels-first": "PyTorch, channels first",
    "compile": "PyTorch, channels last, `torch.compile`",
}


def vault() -> str:
    """PPG against PPO on pictures."""
    found = kept("pictures_vault")
    rows = "\n".join(
        f"| {NAMES[name]} | {interval(found[name]['mean_interval'], 3)} | {interval(found[name]['final_interval'], 3)} "
        f"| {', '.join(f'{value:.2f}' for value in found[name]['final'])} |"
        for name in NAMES
    )
    halves = "\n".join(f"| {NAMES[name]} | {_along(found[name]['curves'])} |" for name in NAMES)
    ends = [at for at, _ in next(iter(found["ppo"]["curves"].values()))]
    mean, final = (interval(found[f"{part}_gained_interval"], 3, "+") for part in ("mean", "final"))
    return f"""## PPG against PPO on pictures

The vault, 16 by 16 pictures, {found["steps"]:,} decisions a seed. Exact share of episodes in which the sampled policy
reaches the goal: best 1, by chance {found["chance"]:.3f}, and 0.5 for whoever finds the goal without heeding the door's
colour. Over {len(found["seeds"])} seeds with 95% t intervals, PPG - PPO: {mean} on
average over the run, {final} at its end.

| algorithm | mean over {len(ends)} reports | at the end | each seed |
|---|---|---|---|
{rows}

| after decisions | {" | ".join(f"{at:,}" for at in ends[1::2])} |
|---|{"---|" * len(ends[1::2])}
{halves}

{source(found)} Settings are those that served PPO best on a seed that is not reported.
"""


def _along(curves: dict) -> str:
    """The mean over seeds at every second report."""
    values = [[value for _, value in curve] for curve in curves.values()]
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]
    return " | ".join(f"{mean:.2f}" for mean in means[1::2])


def speed() -> str:
    """IMPALA's training step."""
    found = kept("picture_speed_cpu")
    gaps = found["gaps_of_gradients"]
    rows = "\n".join(
        f"| {batch} | {WAYS[way]} | {one['updates_a_second']['median']:,.0f} | "
        f"{ranged(one['tidelog_over_it_a_second'], '.2f')} |"
        for batch, ways in found["batches"].items()
        for way, one in ways.items()
        if way != "failed"
    )
    return f"""## Pictures a second through IMPALA's training step

64 by 64 by 3, 256 features, Adam; {found["cores"]} cores of {found["machine"]["processor"]}, {found["rounds"]} rounds
of {found["seconds"]:.0f} seconds in which all ways take turns. Medians; a ratio is that of one round, with its range.
The largest gap between an array of tidelog's gradients and of XLA's own is {gaps["median"]:.0e} of its largest entry in
the median of all arrays, and {gaps["most"]:.0e} at most: where two values under a pool are equal up to rounding, they
choose different ones, which moves a gradient by a place.

| pictures a step | training step | pictures a second | tidelog over it |
|---|---|---|---|
{rows}

The goal was at least 1 times PyTorch with channels last. With each core a device (`devices={{"batch": 2}}` for two
cores) it is {_on_cores(found, "64")} times in minibatches of 64 and {_on_cores(found, "512")} times in those of 512:
each core then computes its half of a minibatch by itself. With one device XLA divides each operation among the cores,
and leaves {_idle(found, "64"):.0%} and {_idle(found, "512"):.0%} of both idle.

What one core does for a picture in a minibatch of 64, by a profile; PyTorch with channels last takes
{_of_processor(found):,.0f} microseconds of processor time in all:

| operations | microseconds a picture |
|---|---|
{_profile(found)}

{source(found)}
"""


def _on_cores(found: dict, batch: str) -> str:
    """How many times the pictures of PyTorch with channels last, with its range."""
    return ranged(found["batches"][batch]["channels-last"]["over_it"]["tidelog-cores"], ".2f")


def _of_processor(found: dict) -> float:
    """The microseconds of processor time that PyTorch takes for a picture, in minibatches of 64."""
    return 1e6 / found["batches"]["64"]["channels-last"]["updates_a_processor_second"]["median"]


def _profile(found: dict) -> str:
    parts = found["microseconds_a_picture_of_one_core"]
    return "\n".join(f"| {part} | {spent:,.0f} |" for part, spent in (parts | {"all": sum(parts.values())}).items())


def _idle(found: dict, batch: str) -> float:
    """The share of the cores' time that tidelog did not use."""
    ours = found["batches"][batch]["tidelog"]
    return 1 - ours["updates_a_second"]["median"] / ours["updates_a_processor_second"]["median"] / found["cores"]
