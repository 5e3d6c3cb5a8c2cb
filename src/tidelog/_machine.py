"""This machine: its description, compiled programs on disk, memory, the collector of garbage, signals, threads."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal

# What the last bits depend on, and where compiled programs are kept. This module is loaded before JAX.

PACKAGES = ("tidelog", "jax", "jaxlib", "equinox", "optax", "numpy")


def this_machine() -> dict[str, Any]:
    """Return versions, processor, device and thread count; the last bits depend on all of them."""
    import platform

    import jax

    return {
        **versions(),
        "python": platform.python_version(),
        "processor": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "device": f"{jax.default_backend()} ({jax.devices()[0].device_kind})",
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of the packages on which the last bits depend."""
    from importlib import metadata

    return {name: metadata.version(name) for name in PACKAGES}


def processor_flags() -> frozenset[str]:
    """Return the flags of what the processor can do; empty where the system does not tell."""
    return frozenset(_cpuinfo("flags").split())


@cache
def _cpuinfo(field: str) -> str:
    """Return a field of the first processor; empty where the system does not tell."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")


def use_cache() -> None:
    """Set JAX's directory of compiled programs, unless the user has: a second run starts in a third of the time.

    It is `~/.cache/tidelog`, or the value of `TIDELOG_CACHE`; `TIDELOG_CACHE=off` keeps nothing.
    """
    import jax

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


# What the imports of JAX and Polars allocate is left out of Python's search for reference cycles.

LARGE = frozenset({"jax", "polars"})


def import_without_gc(module: str) -> Any:
    """Return a module; if its import is the first one of JAX or Polars, the objects of all modules are frozen.

    They stay until the process ends. The search for reference cycles went through them again and again, while they were
    imported, while programs were traced, and at the end: 0.4 s of the 2.6 s of an IQL run of one update with a filled
    compilation cache.
    """
    before, enabled = LARGE & sys.modules.keys(), gc.isenabled()
    gc.disable()
    try:
        found = importlib.import_module(module)
        if LARGE & sys.modules.keys() != before:
            gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return found


# The memory that this process can still take, and how to hold less of it.
#
# It is limited by the machine, its control group and the process.

# Polars, which reads this when it is imported, would keep the addresses of freed memory, and RLIMIT_AS counts them.
os.environ.setdefault("_RJEM_MALLOC_CONF", "retain:false")

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # a control group without a limit reports 2^63 or so


def available_memory() -> int | None:
    """The bytes that this process can allocate without swapping, or None if the system does not report them.

    The least of the machine's free memory, what the control groups (v1 or v2) leave, and what RLIMIT_AS and RLIMIT_DATA
    leave.
    """
    return min([*_of_machine(), *_of_groups(), *_of_process()], default=None)


def shortage(needed: int) -> str | None:
    """The sentence that says why so many bytes cannot be allocated; None if they can be, or if nobody knows."""
    free = available_memory()
    if free is None or needed <= free:
        return None
    return f"about {in_units(needed)} of memory are needed, {in_units(free)} are available"


def limit_arenas() -> None:
    """Have the C library use two arenas for all threads, unless MALLOC_ARENA_MAX says otherwise.

    By default glibc has eight a core, and each keeps the memory that was freed in it, for example by folds of a verdict
    that train on threads. To be called before threads start; without glibc it does nothing.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 2)


def release_memory() -> None:
    """Return freed memory to the system; without glibc it does nothing."""
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


_M_ARENA_MAX = -8  # a constant of malloc.h


def _of_glibc(name: str) -> Any:
    """A function of the C library; None where this is not glibc."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return getattr(library, name) if hasattr(library, "gnu_get_libc_version") else None


def in_units(size: int) -> str:
    """A number of bytes in MB, or in GB from one billion on."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _of_machine() -> Iterator[int]:
    free = _kilobytes(_MEMINFO, "MemAvailable")
    if free is not None:
        yield free
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        yield int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _of_groups() -> Iterator[int]:
    """What each control group above this process leaves; a container may show its own group as the root."""
    for line in _text(_GROUPS).splitlines():
        _, kinds, name = (*line.split(":", 2), "", "")[:3]
        if kinds not in ("", "memory"):
            continue
        root, files = (_MOUNT, ("memory.max", "memory.current")) if not kinds else (
            _MOUNT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # fmt: skip
        parts = Path(name.lstrip("/")).parts
        for depth in range(len(parts), -1, -1):
            folder = root.joinpath(*parts[:depth])
            limit, used = (_text(folder / file).strip() for file in files)
            if limit.isdecimal() and used.isdecimal() and int(limit) < _UNLIMITED:
                yield max(0, int(limit) - int(used) + _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """The bytes of cached files in a control group, which the system frees before it refuses memory."""
    match = re.search(r"^(?:total_)?inactive_file (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return int(match[1]) if match else 0


def _of_process() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # only POSIX has limits of processes
        return
    for limit, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, used = resource.getrlimit(limit)[0], _kilobytes(_STATUS, field)
        if most != resource.RLIM_INFINITY and used is not None:
            yield max(0, most - used)


def _kilobytes(path: Path, field: str) -> int | None:
    match = re.search(rf"^{field}:\s+(\d+) kB", _text(path), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _text(path: Path) -> str:
    """The content of a small file of the system; empty if there is none or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


# Deferred SIGINT and SIGTERM: the loop finishes its chunk, saves, and then exits.

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """In this context the first signal is stored in `received`; a second SIGINT interrupts at once.

    Outside the main thread no signal is caught. One of `several` processes that has received a signal, which may be
    that of another one, ignores those that come after this context: its own may be late, and all end together.
    """

    def __init__(self, several: bool = False) -> None:
        self.received: int | None = None
        self._several = several
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = self._several and self.received is not None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if ending else handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

    def leave(self) -> None:
        """Raise KeyboardInterrupt (SIGINT) or SystemExit(143) (SIGTERM) for a received signal."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)


# A function on several threads, and native libraries on one for a while, whatever number of threads ask for it.
#
# The limit of the libraries holds for the whole process. Where each Python thread sets it and restores what it found,
# the last to leave may restore the limit of another: NumPy then stays on one thread, and later sums round differently.

Library = Literal["blas", "openmp"]


class _Limit:
    """The limit of one kind of library: set by the first thread that enters, lifted by the last that leaves."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.inside = 0
        self.lock = threading.Lock()
        self.controller: Any = None
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                if self.controller is None:
                    from threadpoolctl import ThreadpoolController

                    self.controller = ThreadpoolController()  # finds the libraries that are loaded now
                self.limiter = self.controller.limit(limits=1, user_api=self.library)
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limiter.restore_original_limits()


_LIMITS: dict[Library, _Limit] = {"blas": _Limit("blas"), "openmp": _Limit("openmp")}


@contextmanager
def one_thread(library: Library) -> Iterator[None]:
    """Run NumPy's linear algebra ("blas") or OpenMP's loops on one thread; also a decorator."""
    limit = _LIMITS[library]
    limit.enter()
    try:
        yield
    finally:
        limit.leave()


def on_threads(function: Callable[[int], Any], count: int, at_once: bool = True) -> list[Any]:
    """Return the results of a function for 0 to `count - 1`; `at_once` runs them on a pool of threads."""
    if count == 1 or not at_once:
        return [function(i) for i in range(count)]
    with ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, range(count)))
