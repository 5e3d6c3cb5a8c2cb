"""Engines by their names."""

from __future__ import annotations

from tidelog.errors import ConfigError
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
    if on == "ray":
        from tidelog.sweeps.engines.ray import Ray

        return Ray(cpus, workers, trials, insecure)
    if on.startswith("ray:"):
        raise ConfigError(
            f"on begins with {on.split('//')[0]!r}: expected 'ray'; the environment variable RAY_ADDRESS names the "
            "cluster, and a client outside of it (ray://) loses the sweep with its connection. fix: run the command in "
            "the cluster, with `ray job submit --address http://HEAD:8265 -- tidelog sweep ... --on ray`"
        )
    if on != "here":
        raise ConfigError(f"on = {on!r}: expected 'here', this machine, or 'ray', a Ray cluster. fix: drop on")
    if insecure:
        raise ConfigError("insecure is for clusters, and on = 'here' is this machine. fix: drop insecure")
    return Here(cpus, workers)
