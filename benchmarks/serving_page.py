"""The part of docs/evidence.md on saved policies that act and answer, from the kept result."""

from typing import Any

from benchmarks.keep import kept, source


def serving() -> str:
    """Start, acting in the process, and answers over loopback."""
    found = kept("serving")
    rows = "\n".join(_row(name, case) for name, case in found["cases"].items())
    starts = ", ".join(
        f"{name} {case['start']['loaded and acted']['median_ms']:.0f} ms" for name, case in found["cases"].items()
    )
    bare = next(iter(found["cases"].values()))["start"]["numpy and safetensors"]["median_ms"]
    return f"""## Saved policies without JAX

A whole process that loads a policy with NumPy alone and acts once: {starts}
(importing NumPy and safetensors alone: {bare:.0f} ms). Client and server share the machine; median and 99th
percentile of milliseconds.

| policy | one row, in the process | one row, HTTP | a batch, HTTP | rows a second, HTTP |
|---|---|---|---|---|
{rows}

{source(found)}
"""


def _row(name: str, case: dict[str, Any]) -> str:
    batch, rates = next((key, row) for key, row in case["http"].items() if key.startswith("batch"))
    times = (case["in process"]["1 row"], case["http"]["single"], rates)
    inside, single, many = (f"{row['median_ms']:.2f} ({row['p99_ms']:.2f})" for row in times)
    return (
        f"| {name} | {inside} | {single} | {batch.removeprefix('batch of ')} rows: {many} | "
        f"{rates['rows_per_second']:,.0f} |"
    )
