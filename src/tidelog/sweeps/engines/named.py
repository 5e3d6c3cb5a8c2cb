"""Engines by their names."""

from __future__ import annotations

from tidelog.errors import ConfigError
from tidelog.ray_cluster import check_engine_name
from tidelog.sweeps.engines import Engine
from tidelog.sweeps.engines.here import Here
from tidelog.training.runs.options import whole


def engine_of(
    on: str | Engine, cpus: int, workers: int | None, trials: int | None = None, insecure: bool = False
) -> Engine:
    """Return the engine of a name for a number of trials, or the engine itself; ConfigError for another name."""
    for name, count in {"cpus": cpus, "workers": workers}.items():
        if count is not None and whole(name, count) < 1:
            raise ConfigError(f"{name} = {count}: expected at least 1")
    if not isinstance(on, str):
        return on
    check_engine_name(on, insecure)
    if on == "ray":
        from tidelog.sweeps.engines.ray import Ray

        return Ray(cpus, workers, trials, insecure)
    return Here(cpus, workers)
