"""`tidelog bench`: updates per second at paper size, as a share of this machine's matrix-product ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tidelog.bench.speed import (
    ENTRIES,
    entry_of,
    first_updates,
    measure,
    operations,
    products_of,
    summary,
    synthetic_log,
)
from tidelog.cli.flags import File, OutputFlags, parse
from tidelog.cli.output import present, print_details, print_line, table
from tidelog.cli.targets import check_targets
from tidelog.disk import write_json
from tidelog.errors import ConfigError
from tidelog.training.runs.record import this_machine


@dataclass
class Bench(OutputFlags):
    """Measure the speed of training: median (smallest to largest) of repeated runs."""

    algorithm: tuple[Annotated[str, "NAME"], ...] = tuple(ENTRIES)
    """the algorithms, at paper size; a number after a name is a batch size"""
    seeds: int = 4
    """number of seeds trained in parallel"""
    repeats: int = 5
    """number of repeated measurements, interleaved"""
    start: bool = True
    """also measure the time from process start to 100 updates, without and with the compilation cache"""
    out: File | None = None
    """a JSON file for the results"""
    overwrite: bool = False
    """replace this file if it exists"""


def run(words: list[str]) -> int:
    """Measure and print the speed."""
    options = parse(Bench, words, "bench")
    for name in options.algorithm:
        entry_of(name)
    if min(options.seeds, options.repeats) < 1:
        raise ConfigError(f"seeds = {options.seeds}, repeats = {options.repeats}: expected at least 1")
    check_targets(options.out, overwrite=options.overwrite)
    return present(options, lambda: _bench(options, words))


def _bench(options: Bench, words: list[str]) -> dict[str, Any]:
    """Measure every algorithm, and return the figures with the machine and the command."""
    machine = this_machine()
    results: dict[str, Any] = {"machine": machine, "command": " ".join(["tidelog bench", *words])}
    print_details("  ".join(f"{name} {value}" for name, value in machine.items()))
    for name in options.algorithm:
        results[name] = _one(name, options)
    if options.out is not None:
        write_json(Path(options.out), results, ConfigError)
        print_line(f"results: {options.out}")
    return results


def _one(name: str, options: Bench) -> dict[str, Any]:
    entry = entry_of(name)
    products = products_of(entry.algorithm, synthetic_log(entry.discrete))
    work = operations(products)  # type: ignore[arg-type]
    print_details(
        f"\n{name}: one update is the sum of 2 m k n over its matrix products = {work / 1e6:.1f} million operations"
    )
    for (m, k, n), count in sorted(products.items(), key=lambda item: -item[0][0] * item[0][1] * item[0][2] * item[1]):
        print_details(f"  {count:>3} x [{m}, {k}] @ [{k}, {n}]")
    results_of_one = summary(list(measure(entry, options.seeds, options.repeats)))
    if options.start:
        results_of_one |= first_updates(name, options.repeats)
    rows = [[key, f"{v['median']:.4g}", f"{v['min']:.4g} to {v['max']:.4g}"] for key, v in results_of_one.items()]
    table(name, ["figure", "median", "range"], rows)
    shapes = {f"{m}x{k}x{n}": count for (m, k, n), count in products.items()}
    return {"operations_per_update": work, "matrix_products": shapes, **results_of_one}
