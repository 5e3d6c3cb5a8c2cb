"""Sweeps in a real Ray cluster: killed workers and nodes change nothing, and this machine alone can reach Ray."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

import tidelog as tl
from tests.sweeps.test_processes import OPTIONS, RATES, owner, states
from tests.training.runs import bc, begin, finish, wait_until
from tidelog.policies.policy import fingerprint
from tidelog.sweeps.job import trial_folder
from tidelog.training.record import Record

pytestmark = pytest.mark.full

LONG = 150_000
REPORTS = {"steps": LONG, "eval_every": LONG // 3}
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback interface alone
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 2,
}
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0})
raylets = []
def add():
    raylets.append(cluster.add_node(**node).all_processes["raylet"][0].process.pid)
add()
add()
print(cluster.address, *raylets, flush=True)
for line in sys.stdin:
    add()
    print(raylets[-1], flush=True)
cluster.shutdown()
"""
LISTENS = """
import os
from tidelog.parallel import RayTasks
pool = RayTasks()
assert pool.submit(os.getpid).result() != os.getpid()
import psutil  # Ray has it
this = psutil.Process()
for process in (this, *this.children(recursive=True)):
    for one in process.net_connections():
        if one.status == psutil.CONN_LISTEN:
            print(process.name(), one.laddr.ip, one.laddr.port)
    print("runs", process.name())
pool.close()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'tidelog[ray]'")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # short, as it holds sockets
        yield {**os.environ, **ENVIRONMENT, "RAY_TMPDIR": folder}


@pytest.fixture
def cluster(environment):
    """A head without processors and two nodes of one: the address, the raylets, and a function that adds a node."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def add():
        process.stdin.write("\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    address, *raylets = process.stdout.readline().split()
    yield address, list(map(int, raylets)), add
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def trained(folders):
    """The living process that trains a trial which has a checkpoint and is not at its end, if any."""
    for folder in folders:
        checkpoints = folder / "run" / "checkpoints"
        names = [path.name for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
        process = owner(folder)
        if process and 0 < int(max(names, default="0")) < LONG and os.path.exists(f"/proc/{process}"):
            return process
    return None


def parents(process):
    """The processes above a process."""
    found = []
    while process > 1:
        with open(f"/proc/{process}/stat") as file:
            process = int(file.read().rsplit(")", 1)[1].split()[1])
        found.append(process)
    return found


@pytest.mark.slow
def test_killed_workers_nodes_and_drivers_change_nothing(cluster, environment, origin, tmp_path):
    address, raylets, add = cluster
    options = {**OPTIONS, **REPORTS, "save_seconds": 0.1, "selection_share": None, "progress": False}
    trials = tl.grid(bc(), learning_rate=RATES[:2])
    sweep = tl.sweep(trials, origin, out=tmp_path / "sweep", train=False, **options)
    folders = [trial_folder(sweep.folder, trial) for trial in (0, 1)]

    def started():
        command = [sys.executable, "-m", "tidelog", "resume", str(sweep.folder), "--on", "ray", "--quiet"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env={**environment, "RAY_ADDRESS": address}, text=True, **pipes)

    first = started()
    os.kill(wait_until(lambda: trained(folders)), signal.SIGKILL)
    worker = wait_until(lambda: trained(folders))
    (raylet,) = set(parents(worker)) & set(raylets)
    os.kill(raylet, signal.SIGKILL)
    add()
    wait_until(lambda: trained(folders))
    first.kill()
    first.communicate()
    driver = started()
    _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 0, errors
    assert not [path for path in sweep.folder.rglob("*") if path.suffix == ".pkl"]
    assert sweep.complete() == [0, 1]
    direct = [finish(begin(bc(learning_rate=rate), origin, **OPTIONS | REPORTS)) for rate in RATES[:2]]
    assert states(sweep) == [[fingerprint(one) for one in run.learners()] for run in direct]
    assert [Record.read(sweep.run_folder(trial)).machine["threads"] for trial in (0, 1)] == [1, 1]
    for folder in folders:
        rows = [row["update"] for row in tl.load_run(folder / "run").metrics]
        assert sorted(set(rows)) == rows
        assert owner(folder) is None


def test_ray_of_this_machine_listens_to_this_machine_alone(environment):
    own = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
    del own["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
    done = subprocess.run([sys.executable, "-c", LISTENS], env=own, capture_output=True, text=True, check=True)
    listening = [line.split() for line in done.stdout.splitlines() if not line.startswith("runs")]
    assert len(listening) > 3
    assert {ip.removeprefix("::ffff:") for _, ip, _ in listening} == {"127.0.0.1"}
    assert "8265" not in [port for _, _, port in listening]
    assert "runs raylet" in done.stdout.splitlines()


def test_ctrl_c_saves_on_ray(environment, saved, tmp_path):
    folder = trial_folder(tmp_path / "sweep", 0)
    script = f"""
import tidelog as tl
tl.sweep(tl.BC(hidden=(8, 8), embedding=2, batch_size=32), tl.Log.load({str(saved)!r}), 2_000_000_000, on="ray",
         out={str(tmp_path / "sweep")!r}, eval_every=1_000, save_seconds=10_000.0, progress=False)
"""
    own = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
    process = subprocess.Popen([sys.executable, "-c", script], env=own, stderr=subprocess.PIPE, text=True)
    reports = folder / "run" / "metrics.jsonl"
    wait_until(lambda: reports.exists() and reports.read_text())
    worker = owner(folder)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    wait_until(lambda: not os.path.exists(f"/proc/{worker}"), 30)
    assert max(int(path.name) for path in (folder / "run" / "checkpoints").iterdir()) >= 1_000
    assert not (folder / "status.json").exists()
