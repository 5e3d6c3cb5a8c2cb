"""The sections of docs/evidence.md that are about the speed of training, from kept results alone."""

from statistics import median

from benchmarks.keep import RESULTS, interval, kept, ranged, source


def speed() -> str:
    """`python -m benchmarks speed`, one section a machine."""
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
    return f"## Speed on {head}\n\n" + "\n".join(sections) + f"\n{_bound(found)}\nCommand: `{found['command']}`.\n"


def _bound(found: dict) -> str:
    """What the goals of `python -m benchmarks speed` were, and what an update of nothing but products would reach."""
    results = {name: found[name] for name in ("iql", "bcq", "discrete-bcq", "bc")}
    shares = {name: one["share_of_ceiling"]["median"] for name, one in results.items()}
    alone = {name: shares[name] / one["share_of_products_alone"]["median"] for name, one in results.items()}
    seeds = {name: one["seeds_over_one"]["median"] for name, one in results.items()}

    def each(values: dict[str, float], form: str) -> str:
        return ", ".join(f"{value:{form}} ({name})" for name, value in values.items())

    products = [profile["shares"]["matrix products"] for profile in kept("update_profile")["profiles"].values()]
    return f"""The goals were 85% of the ceiling for IQL and BCQ; for discrete BCQ and BC 60%, or 91% of the products
alone. They are missed: {each(shares, ".0%")} of the ceiling. The same
products alone, as one compiled chain, reach {each(alone, ".0%")} of it:
an update cannot do better. Of one core's time {min(products):.0%} to {max(products):.0%} are products
([profile](#what-an-updates-time-is-spent-on)). Several cores all wait at the end of each product that they divide: four
seeds, each on a core of its own, make {each(seeds, ".2f")} times the
updates of one.
"""


def update_profile() -> str:
    """What an update's time is spent on, and what the compiler's options change."""
    found = kept("update_profile")
    parts = list(found["profiles"]["iql"]["shares"])
    rows = "\n".join(
        f"| {name} | {sum(one['microseconds'].values()):,.0f} | {one['operations']} | "
        + " | ".join(f"{one['shares'][part]:.1%}" for part in parts)
        + " |"
        for name, one in found["profiles"].items()
    )
    options = "\n".join(
        f"| {option} | "
        + " | ".join(ranged(one[option], ".3f") for one in
                     found["options over default"].values())
        + " |"
        for option in found["options over default"]["iql"] if option != "default"
    )  # fmt: skip
    busy = ", which others used, too" if found.get("others_used_the_machine") else ""
    return f"""## What an update's time is spent on

Durations of the compiled operations of one update, on one core of {_processor(found)}{busy}: of each operation, the
fifth of its runs that was fastest. An implementation that did nothing but the same matrix products at the same speed
would take the first share of the time.

| algorithm | microseconds | operations | {" | ".join(parts)} |
|---|---|---|{"---|" * len(parts)}
{rows}

Updates a processor second with an option of XLA over those of the default, {found["turns"]} turns (median and range):

| option | {" | ".join(found["options over default"])} |
|---|{"---|" * len(found["options over default"])}
{options}

None helps beyond noise, and products without YNNPACK are slower for small batches, so tidelog sets no option.
{source(found)}
"""


def gpu() -> str:
    """What a GPU makes of each system."""
    steps = {path.stem.removeprefix("gpu_"): kept(path.stem) for path in sorted(RESULTS.glob("gpu_*.json"))}
    machine = next(iter(steps.values()))["machine"]
    names = {"iql": "IQL", "bcq": "BCQ", "discrete_bcq": "discrete BCQ", "bc": "BC"}
    rows = []
    for step, name in names.items():
        found = steps[step]["found"]
        for seeds in ("seeds_1", "seeds_64"):
            rate = median(found[seeds]["updates_per_second"])
            rows.append(
                f"| {name} | {seeds.removeprefix('seeds_')} | {rate:,.0f} | "
                f"{rate * found['operations_per_update'] / 1e12:.1f} | {found[seeds]['peak_bytes'] / 1e6:,.0f} |"
            )
    pictures, decisions, best, judge = (steps[step]["found"] for step in ("pictures", "decisions", "top_k", "judge"))
    frames = ", ".join(
        f"{one['median']:,.0f} ({batch.removeprefix('batch_')} a batch)" for batch, one in pictures.items()
    )
    cold, warm = judge["seconds"]
    return f"""## On a GPU

{machine["device"]}, jax {machine["jax"]}, products of float32 at JAX's default precision. No peer ran on this card.

| algorithm | seeds in one program | updates a second, all seeds | 10^12 operations a second | MB held at most |
|---|---|---|---|---|
{chr(10).join(rows)}

- Pictures of 64 x 64 a second through a training step of IMPALA: {frames}.
- Decisions a second of {decisions["environments"]:,} CartPoles in one program with their learner: PPO
  {decisions["ppo"]["median"]:,.0f}, PPG {decisions["ppg"]["median"]:,.0f}.
- The exact ten best of {best["items"]:,} items: {best["queries_per_second"]:,.0f} queries a second.
- A verdict on {judge["steps"]:,} decisions with unknown propensities: {cold:.1f} s, and {warm:.1f} s once compiled.

Command: `{steps["judge"]["command"]}`.
"""


def rounded_products() -> str:
    """Training with products of bfloat16: how much faster, and what is learnt."""
    found = kept("rounded_products")["parts"]
    fast, seeds = found["speed"], kept("rounded_products")["seeds"]
    rates = "\n".join(
        f"| {name} | {one['float32']:,.0f} | {one['bfloat16']:,.0f} | "
        f"**{one['ratio']:.2f}** ({one['least']:.2f} to {one['most']:.2f}) |"
        for name, one in fast["algorithms"].items()
    )
    learnt = "\n".join(
        f"| {what} | {name} | {interval(one['means']['float32'], digits)} | "
        f"{interval(one['means']['bfloat16'], digits)} | "
        f"{interval(one['difference'], digits, '+')} |"
        for what, part, digits in (
            (f"ICU-Sepsis, exact value after {found['icu']['steps']:,} updates", found["icu"], 4),
            (f"Pendulum-v1, return after {found['pendulum']['steps']:,} updates", found["pendulum"], 0),
        )
        for name, one in part["algorithms"].items()
    )
    return f"""## Products of bfloat16

`products="bfloat16"` (`--products bfloat16`) rounds the factors of the layers' matrix products to 8 bits while
training; sums, weights and all else stay float32. Updates a second of both on one core of {fast["processor"]}
({", ".join(fast["marks"]) or "without products of bfloat16"}), {fast["rounds"]} rounds of {fast["seconds"]:.0f} seconds
in turn; a ratio is that of one round, with its range:

| algorithm | float32 | bfloat16 | bfloat16 over float32 |
|---|---|---|---|
{rates}

What is learnt, {seeds} seeds with the settings of the studies of these data; mean with a 95% t interval, and the
difference seed by seed:

| data | algorithm | float32 | bfloat16 | bfloat16 - float32 |
|---|---|---|---|---|
{learnt}

It is off by default: a speed is known for each processor, what is learnt only for these data.

{source(kept("rounded_products"))}
"""


GOALS = {"eager": 3.0, "compile": 2.5, "d3rlpy": 6.0}  # times the updates a second


def peers() -> str:
    """Updates a second beside PyTorch."""
    found = kept("peers")
    ways = {"eager": "eager PyTorch", "compile": "`torch.compile`", "d3rlpy": "d3rlpy"}
    rows = "\n".join(
        f"| {name} | {_rate(one['tidelog'])} | "
        + " | ".join(
            f"{_rate(one[way])} | {ranged(one[way]['tidelog_over_it_a_second'], '.2f')}" if way in one else "- | -"
            for way in ways
        )
        + " |"
        for name, one in found["algorithms"].items()
    )
    extra = ", ".join(
        f"{one['d3rlpy']['operations_per_update'] / one['tidelog']['operations_per_update']:.2f} times ({name})"
        for name, one in found["algorithms"].items()
        if one.get("d3rlpy", one["tidelog"])["operations_per_update"] != one["tidelog"]["operations_per_update"]
    )
    profile = kept("update_profile")
    faster = {name: 1 / profile["profiles"][name]["shares"]["matrix products"] for name in found["algorithms"]}
    bounds = ", ".join(f"{gain:.2f} times ({name})" for name, gain in faster.items())
    within = [  # goals that are missed, and that products of the same speed allow
        f"{name} beside {ways[way]}"
        for name, one in found["algorithms"].items()
        for way, goal in GOALS.items()
        if way in one and (ratio := one[way]["tidelog_over_it_a_second"]["median"]) < goal <= ratio * faster[name]
    ]
    shared = ", which others used, too" if found["others_used_the_machine"] else ""
    return f"""## Updates a second beside PyTorch

{_processor(found)}, {_cores(found["cores"])}{shared}; {found["rounds"]} rounds of {found["seconds"]:.0f} seconds,
in each of which all ways take turns, each in a process of its own. Medians; a ratio is that of one round, with its
range. Sizes, batches and losses are the same: an update of the scripts is of as many operations of matrix products
as tidelog's. Of d3rlpy's updates some are of more: {extra}.

| algorithm | tidelog | {" | ".join(f"{title} | tidelog over it" for title in ways.values())} |
|---|---|{"---|---|" * len(ways)}
{rows}

The goals were 3 times eager PyTorch, 2.5 times `torch.compile` and 6 times d3rlpy. If everything but the matrix
products took no time on {_processor(profile)}, an update of tidelog would be faster by {bounds} (see
[the profile](#what-an-updates-time-is-spent-on)). Of the goals that are missed, products of the same speed could then
meet {", ".join(within) or "none"}.
Both sides multiply in float32 here; [factors of bfloat16](#products-of-bfloat16) are an option of tidelog.

{source(found)}
"""


def _processor(found: dict) -> str:
    return found["machine"].get("processor", found.get("processor", "a processor whose name was not kept"))


def _cores(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"


def _rate(one: dict) -> str:
    return f"{one['updates_a_second']['median']:,.0f}"


def several_seeds() -> str:
    """Several seeds in one run beside one seed, and beside processes of their own."""
    found = kept("several_seeds")
    columns = ("four_over_one", "first_and_second_over_one", "four_over_two_processes")
    rows = "\n".join(
        f"| {name} | {one['one']['median']:,.0f} | " + " | ".join(ranged(one[c], ".2f") for c in columns) + " |"
        for name, one in found["algorithms"].items()
    )
    return f"""## Several seeds

{_processor(found)}, {found["cores"]} cores; {found["rounds"]} rounds of {found["seconds"]:.0f} seconds, in each of
which the ways take turns. Rates are sums over seeds; a ratio is that of one round, with its range. Two processes of
half the cores each, with a seed each, share nothing: what they reach is what the processor can give. A call is as long
as in a training, half a second.

| algorithm | one seed, a second | four seeds over one | two processes over one | four seeds over two processes |
|---|---|---|---|---|
{rows}

The goal was four seeds at 1.5 times one where two processes reach that, and otherwise as fast as they are.

{source(found)}
"""


def start() -> str:
    """From the start of a process to the end of 100 updates."""
    found = kept("start")
    bare, goals = median(found["bare"]), {"cold": 2.2, "warm": 1.1}
    rows = "\n".join(
        f"| {name} | "
        + " | ".join(
            f"{median(one[way]):.2f} | {median(ratio):.1f} ({min(ratio):.1f} to {max(ratio):.1f})"
            for way, ratio in ((way, one[f"{way}_over_bare"]) for way in goals)
        )
        + f" | {one['phases']['100 updates and their report'] / 1e3 / bare:.1f} |"
        for name, one in found["entries"].items()
    )
    names = [name for name in found["entries"]["iql"]["phases"] if name != "programs"]
    phases = "\n".join(
        f"| {phase} | " + " | ".join(f"{one['phases'][phase]:,.0f}" for one in found["entries"].values()) + " |"
        for phase in names
    )
    programs = ", ".join(f"{one['phases']['programs']:.0f} ({name})" for name, one in found["entries"].items())
    iql = found["entries"]["iql"]
    missed = " and ".join(
        f"{median(iql[way]) - goal * bare:.1f} s {way} (goal: {goal} bare starts)"
        for way, goal in goals.items()
        if median(iql[f"{way}_over_bare"]) > goal
    )
    imports, *own, updates, _ = (iql["phases"][name] / 1e3 for name in names[1:])
    commands = "\n".join(
        f"| {title} | {median(found[name]):.2f} | {median(found[name]) / bare:.2f} | {goal} |"
        for title, name, goal in (
            ("`tidelog --help`", "help", "0.17"),
            (f"`tidelog act` on {found['rows']:,} rows, NumPy runtime", "act", "0.56"),
            ("Python that imports `tl.fit` and `tl.IQL`", "import tidelog", "-"),
        )
    )
    return f"""## From the start of a process to 100 updates

{_processor(found)}, {_cores(found["cores"])}, {found["repeats"]} turns of all commands; seconds are medians. A bare
start (Python, JAX, one compiled product) takes {bare:.2f} s. Ratios are to the bare start of the same turn, with their
range. Cold is an empty cache of compiled programs, warm a filled one; the log is that of `python -m benchmarks speed`.

| algorithm | cold, s | bare starts | warm, s | bare starts | of them for the 100 updates |
|---|---|---|---|---|---|
{rows}

Milliseconds of a warm start, which reads {programs} compiled programs:

| phase | {" | ".join(found["entries"])} |
|---|{"---|" * len(found["entries"])}
{phases}

IQL misses its goals by {missed}.
Of its warm start, the 100 updates take {updates:.1f} s and the import of JAX {imports:.1f} s; all between them is
{sum(own):.1f} s.
The rest of a cold start is XLA, which compiles the update. Programs on disk (`jax.export`) save tracing and lowering,
but JAX lowers them once more where they are called, and imports SciPy for it: 0.2 s less warm, 0.3 s more cold. They
are not kept.

| command | seconds | bare starts | goal |
|---|---|---|---|
{commands}

The goals were set where a bare start takes 0.9 s: 2.0 s cold, 1.0 s warm, 0.15 s for the help and 0.5 s for the rows.

{source(found)}
"""


def overhead() -> str:
    """What a trial costs beside its training."""
    found = kept("sweep_overhead")
    bare = median(found["bare"])
    rows = "\n".join(
        f"| {one['engine']} | {median(one['cold']) - bare:.1f} | {median(one['warm']) - bare:.1f} | "
        f"{median(one['one_more']):.1f} ({min(one['one_more']):.1f} to {max(one['one_more']):.1f}) | "
        f"{one['plan_bytes']:,} |"
        for one in found["engines"]
    )
    return f"""## What a trial of a sweep costs

Trials of one update of a small network, one worker on one core of {_processor(found)}, {len(found["bare"])} repeats. A
bare start (Python, JAX, one compiled product) takes {bare:.2f} s and is taken off in the first two columns. One more
trial is the slope over {found["trials"]} trials that differ in numbers only; all of them read the log by its path.

| engine | a sweep of one, cold, s | the same, warm, s | one more trial, s | bytes of the plan |
|---|---|---|---|---|
{rows}

The goals were 3 s cold beyond a bare start and 0.5 s for a further trial. Workers train one trial after another, so a
further one is read, trained and written without a start, and without compiling what an earlier one has compiled.

{source(found)}
"""
