"""The connection to a Ray cluster, and whether others could reach it. Nothing else imports Ray."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from tidelog.errors import ConfigError, install

ADDRESS, LOOPBACK_ONLY = "RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
CONNECT_SECONDS, PROBE_SECONDS = 10.0, 60.0
JOBS = "`ray job submit --address http://HEAD:8265 -- tidelog ...`, which runs the command in the cluster"
STORE_BYTES = 100_000_000  # of Ray's object store, through which nothing large passes
PROBE = """
import sys
import ray
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).get_all_node_info()
    print("open")
except ray.exceptions.AuthenticationError:
    print("closed")
"""


def check_engine_name(on: str, insecure: bool = False) -> None:
    """Raise ConfigError unless `on` is the name of a place where work runs, and `insecure` fits it."""
    if on == "ray":
        return
    if on.startswith("ray:"):
        raise ConfigError(
            f"on begins with {on.split('//')[0]!r}: expected 'ray'; the environment variable RAY_ADDRESS names the "
            "cluster, and a client outside of it (ray://) loses its work with its connection. fix: run the command in "
            "the cluster, with `ray job submit --address http://HEAD:8265 -- tidelog ... --on ray`"
        )
    if on != "here":
        raise ConfigError(f"on = {on!r}: expected 'here', this machine, or 'ray', a Ray cluster. fix: drop on")
    if insecure:
        raise ConfigError("insecure is for clusters, and on = 'here' is this machine. fix: drop insecure")


def installed(packages: list[str]) -> dict[str, str]:
    """Return the versions of packages; "none" for those that are not there."""
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions


def refuse_other_versions(host: str, versions: Mapping[str, str], packages: list[str], then: str = "") -> None:
    """Raise ConfigError if the packages of a node have other versions than those of this process.

    `then` ends the fix: what to do after it.
    """
    own = installed(packages)
    different = [f"{name} {versions.get(name)}" for name in own if versions.get(name) != own[name]]
    if different:
        raise ConfigError(
            f"node {host} has {', '.join(different)}, expected the versions of this process: "
            f"{', '.join(f'{name} {version}' for name, version in own.items())}. fix: install these on all nodes{then}"
        )


def this_node() -> str:
    """Return the id of the node of this process, which is an actor's."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def connect(processors: int | None, insecure: bool) -> tuple[Any, bool]:
    """Return Ray, connected, and whether this call has connected it; ConfigError if it cannot, or must not.

    `processors` is None for the cluster of RAY_ADDRESS, and otherwise the most that this machine's own one may have.
    """
    address = os.environ.get(ADDRESS, "")
    if address.startswith(("ray://", "http://", "https://")):
        scheme = address.split("://")[0]
        raise ConfigError(
            f"{ADDRESS} begins with {scheme}://: expected HOST:PORT of the head, in a process of the cluster; a client "
            f"elsewhere loses its work with its connection. fix: {JOBS}"
        )
    alone = processors is not None
    if alone and "ray" not in sys.modules:  # Ray reads it when it is imported
        os.environ[LOOPBACK_ONLY] = "0"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(f"on = 'ray' requires Ray, which is not installed. fix: {install('ray')}") from None
    if own := not ray.is_initialized():
        if alone and os.environ.get(LOOPBACK_ONLY) != "0":
            raise ConfigError(
                "Ray was imported before, and would listen to the network. fix: import it later, or set "
                f"{LOOPBACK_ONLY}=0 before Python starts"
            )
        if not alone and address != "auto":
            _check_reachable(address)
        _init(ray, address or "local", processors)
    head = ray.get_runtime_context().gcs_address
    if not insecure and not is_loopback(head) and not _requires_token(head):
        if own:
            ray.shutdown()
        raise ConfigError(
            f"the Ray cluster at {head} is not shown to require a token, and whoever reaches its ports can run "
            "programs there. fix: start all its nodes with RAY_AUTH_MODE=token and one token (`ray get-auth-token "
            "--generate`), or pass insecure=True (--insecure) if nobody else reaches its network"
        )
    return ray, own


def _init(ray: Any, address: str, processors: int | None) -> None:
    """Connect to a cluster, or start one on the loopback interface with at most some of this machine's processors."""
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if processors is not None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options |= {
            "num_cpus": min(processors, cores),
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }
    try:
        with warnings.catch_warnings():
            # Ray starts programs of its own, in which nothing of JAX goes on
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            ray.init(**options)
    except Exception as error:
        token = os.environ.get("RAY_AUTH_TOKEN") or "\0"
        raise ConfigError(
            f"Ray cannot be used at {address}: {last_line(error).replace(token, '...')}. fix: run this on a node of "
            f"the cluster, with its token and its versions of Ray and Python: {JOBS}"
        ) from None


def _check_reachable(address: str) -> None:
    """Raise ConfigError unless something answers at HOST:PORT; Ray itself waits for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        shown = address if "@" not in address else "its address"
        why = f": {error}" if isinstance(error, OSError) else ""
        raise ConfigError(
            f"{ADDRESS}: no head of a Ray cluster answers at {shown}{why}, expected HOST:PORT. fix: start the "
            f"cluster, or drop {ADDRESS} to use this machine alone"
        ) from None


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is of this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _requires_token(address: str) -> bool:
    """Whether the head of a cluster refuses a client without a token; False if it cannot be found out."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", PROBE, address],
            env={**without, "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip().endswith("closed")


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")


def cause_of_loss(error: BaseException) -> str:
    """Say in a few words how Ray lost an actor."""
    text = str(error)
    if "low on memory" in text or "OutOfMemory" in type(error).__name__:
        return "ended as its node ran out of memory (memory_map reads the log from disk, more cpus mean fewer at once)"
    if "node" in text and "died" in text and "worker process" not in text:
        return "lost with its node"
    return "its process was killed"
