"""Models that jobs of an engine fit: the verdict is the same to the last bit, and nothing is fitted twice."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.cli.test_many_files import Jobs as InProcess
from tests.ope.noise import Table
from tests.ope.test_policy_evidence import even
from tests.sweeps.test_processes import wait_until
from tidelog import ConfigError, judge
from tidelog.errors import DivergenceError, ProcessError
from tidelog.ope.estimators.support import Estimates
from tidelog.ope.evidence import fit_jobs, propensities
from tidelog.ope.evidence.fit_jobs import evidence_by_jobs, jobs_of
from tidelog.ope.evidence.policy_evidence import evidence_of, prepare_evidence
from tidelog.ope.evidence.target import as_policy
from tidelog.ope.models import function_approximation, tabular
from tidelog.ope.verdict.limits import Limits
from tidelog.sweeps.engines import named
from tidelog.threads import one_thread

QUICK = Limits(replicates=1000)
POLICIES = {"a": Table(np.tile([0.5, 0.25, 0.25], (3, 1))), "b": Table(np.tile([0.25, 0.25, 0.5], (3, 1)))}
OTHER_DATA = {"learnt_from": "other data", "ledger": False, "limits": QUICK, "progress": False}
SCRIPT = """
import numpy as np, tidelog as tl
from tests.ope.test_fit_jobs import OTHER_DATA, networks
log, policies = networks(4_000)
tl.judge(policies, log, sample=True, model="neural", workers=1, job_folder={folder!r}, **OTHER_DATA)
"""


def steps(episodes=150, length=3, seed=0):
    """Three states and actions; the first action earns more, and the next state is random."""
    generator, rows = np.random.default_rng(seed), episodes * length
    action = generator.integers(0, 3, rows)
    return tl.Log.from_arrays(
        observation=generator.integers(0, 3, rows), action=action, actions=3, propensity=np.full(rows, 1 / 3),
        reward=generator.standard_normal(rows) + 0.5 * (action == 0), episode=np.arange(rows) // length,
        terminated=np.arange(rows) % length == length - 1,
    )  # fmt: skip


def numbers(episodes, seed):
    """A log with numbers as observations."""
    generator, rows = np.random.default_rng(seed), episodes * 2
    return tl.Log.from_arrays(
        observation=generator.standard_normal((rows, 3)).astype(np.float32), action=generator.integers(0, 3, rows),
        reward=generator.standard_normal(rows), terminated=np.arange(rows) % 2 == 1, episode=np.arange(rows) // 2,
        propensity=np.full(rows, 1 / 3), actions=3,
    )  # fmt: skip


def networks(episodes):
    """A log, and two policies near its logger that learnt from another log."""
    run = tl.fit(tl.BC(hidden=(8,)), numbers(100, 1), 5, 2, progress=False)
    return numbers(episodes, 0), [run.policy(member=0), run.policy(member=1)]


def bits(found):
    """All that a value holds, with arrays as their bytes."""
    if dataclasses.is_dataclass(found):
        return [bits(getattr(found, one.name)) for one in dataclasses.fields(found)]
    if isinstance(found, np.ndarray):
        return found.dtype.str, found.shape, found.tobytes()
    if isinstance(found, dict):
        return {name: bits(one) for name, one in found.items()}
    return list(map(bits, found)) if isinstance(found, list | tuple | tl.Verdicts | Estimates) else repr(found)


def fitted(folder):
    return {path.name for path in Path(folder).glob("fitted-*.safetensors")}


@pytest.fixture
def engine(monkeypatch):
    """Jobs run in this process; `jobs` are those of all calls."""
    one = InProcess()
    monkeypatch.setattr(named, "engine_of", lambda *_: one)
    return one


@pytest.fixture
def fast(monkeypatch):
    for where, names in ((function_approximation, ("FEWEST", "MOST")), (propensities, ("FEWEST", "MOST"))):
        for name in names:
            monkeypatch.setattr(where, name, 20)


def test_a_verdict_of_processes_is_that_of_one_process(tmp_path):
    log = steps()
    assert bits(judge(POLICIES, log, workers=1, **OTHER_DATA)) == bits(judge(POLICIES, log, **OTHER_DATA))


def test_a_verdict_does_not_depend_on_the_number_of_jobs_nor_on_losses(engine, monkeypatch):
    log = steps()
    alone = bits(judge(POLICIES, log, workers=1, **OTHER_DATA))
    assert [job.files for job in engine.jobs] == [list(range(10))]
    assert engine.jobs[0].modules == []
    monkeypatch.setattr(named, "engine_of", lambda *_: other)
    other = InProcess(lost=lambda job: job.attempt == 1)
    assert bits(judge(POLICIES, log, workers=2, **OTHER_DATA)) == alone
    assert [(job.number, job.attempt) for job in other.jobs] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert alone != bits(judge(POLICIES, log, workers=2, seed=1, **OTHER_DATA)), "the comparison sees the numbers"


@pytest.mark.parametrize("kind", ["continuous, a kernel", "discrete", "tables"])
@pytest.mark.sample("continuous, a kernel", "tables")
def test_models_of_all_candidates_are_those_of_one_process(kind, fast, engine):
    if kind == "tables":
        log, how = steps(), {"propensities": "estimated"}
        policy = as_policy(POLICIES["a"], log.spec)
    elif kind == "discrete":
        log, (policy, _) = networks(100)
        how = {"sample": True, "propensities": "estimated"}
    else:
        log, how = even(world("continuous"), 16, 4), {"bandwidth": 0.3}
        policy = tl.fit(tl.BC(hidden=(8,), embedding=2), log, 5, progress=False).policy()
    with one_thread("blas"):  # as within judge
        found = evidence_by_jobs([prepare_evidence(policy, log, **how)] * 2, jobs_of(1, "here", False, None))
        assert bits(found[0]) == bits(found[1]) == bits(evidence_of(policy, log, **how))
    assert (found[0].smoothing is None) == (kind != "continuous, a kernel")
    assert found[0].policy.occupancy is not None
    assert found[0].cloning.model is not None


def test_what_is_fitted_is_not_fitted_again(engine, tmp_path):
    log, folder = steps(), tmp_path / "jobs"
    first = judge(POLICIES, log, workers=2, job_folder=folder, **OTHER_DATA)
    count, done = len(engine.jobs), fitted(folder)
    assert len(done) == 10
    assert bits(judge(POLICIES, log, workers=1, job_folder=folder, **OTHER_DATA)) == bits(first)
    assert len(engine.jobs) == count
    (folder / sorted(done)[0]).unlink()
    assert bits(judge(POLICIES, log, workers=1, job_folder=folder, **OTHER_DATA)) == bits(first)
    assert [len(job.files) for job in engine.jobs[count:]] == [1]
    judge(POLICIES, log, workers=1, job_folder=folder, discount=0.5, **OTHER_DATA)
    assert len(fitted(folder) - done) == 10, "another question has results of its own"
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_what_a_model_raises_is_raised_and_the_next_call_tries_again(engine, tmp_path, monkeypatch):
    real, folder = tabular.fold_values, tmp_path / "jobs"

    def fails(log, states, folds, fold, *rest):
        if fold == 1:
            raise DivergenceError("fitted Q evaluation became NaN")
        return real(log, states, folds, fold, *rest)

    monkeypatch.setattr(tabular, "fold_values", fails)
    with pytest.raises(DivergenceError, match="fitted Q evaluation became NaN"):
        judge(POLICIES, steps(), workers=1, job_folder=folder, **OTHER_DATA)
    assert len(fitted(folder)) == 8
    monkeypatch.setattr(tabular, "fold_values", real)
    judge(POLICIES, steps(), workers=1, job_folder=folder, **OTHER_DATA)
    assert len(fitted(folder)) == 10


def test_a_process_that_is_always_lost_ends_the_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr(named, "engine_of", lambda *_: InProcess(lost=lambda job: job.number == 1))
    with pytest.raises(ProcessError, match=r"5 of 10 models were not fitted.* lost 3 times \(killed by signal 9\)"):
        judge(POLICIES, steps(), workers=2, **OTHER_DATA)
    with pytest.raises(ProcessError, match=r"fix: read .*jobs/0001.txt"):
        judge(POLICIES, steps(), workers=2, job_folder=tmp_path / "jobs", **OTHER_DATA)


def test_a_damaged_result_is_named(engine, tmp_path):
    judge(POLICIES, steps(), workers=1, job_folder=tmp_path / "jobs", **OTHER_DATA)
    name = sorted(fitted(tmp_path / "jobs"))[0]
    (tmp_path / "jobs" / name).write_bytes(b"broken")
    with pytest.raises(tl.CheckpointError, match=rf"{name} cannot be read: .*fix: delete the folder"):
        judge(POLICIES, steps(), workers=1, job_folder=tmp_path / "jobs", **OTHER_DATA)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"workers": 0}, "workers = 0: expected at least 1. fix: drop workers"),
        ({"workers": 10_000}, "workers = 10000: .* core.s. are enough"),
        ({"job_folder": "jobs"}, "job_folder = 'jobs' without jobs. fix: add workers=2"),
        ({"workers": 1, "insecure": True}, "insecure is for clusters"),
        ({"on": "ray://head:10001"}, "on begins with 'ray:': expected 'ray'"),
        ({"on": "slurm"}, "on = 'slurm': expected 'here'"),
        ({"on": "ray"}, "job_folder is not set, and on = 'ray' is a cluster.* fix: job_folder="),
        ({"workers": 1, "job_folder": "other"}, "other' has other files. fix: choose another folder"),
        ({"workers": 1, "job_folder": "other/file"}, "file' is a file. fix: choose another folder"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    Path("other").mkdir()
    Path("other/file").write_text("mine")
    with pytest.raises(ConfigError, match=expected):
        judge(POLICIES, steps(), **settings, **OTHER_DATA)
    assert os.listdir("other") == ["file"]


def test_jobs_of_tables_start_without_jax():
    script = "import sys, tidelog.ope.models.fold_jobs; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def children(process):
    """The processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        found += [int(path.parent.name)] if int(fields[1]) == process and fields[0] != "Z" else []
    return found


@pytest.mark.full
def test_killed_workers_and_a_killed_judge_change_nothing(tmp_path):
    """With networks and real processes: a worker is killed, then all; the next call fits only what is left."""
    folder, (log, policies) = tmp_path / "jobs", networks(4_000)
    whole = judge(policies, log, sample=True, model="neural", workers=2, **OTHER_DATA)
    assert [one.context["model"] for one in whole] == ["neural", "neural"]
    script = SCRIPT.format(folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    (worker,) = wait_until(lambda: (folder / "files.json").exists() and children(process.pid))
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: children(process.pid) not in ([], [worker]))
    wait_until(lambda: fitted(folder))
    process.kill()
    process.wait()
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("fitted-*.safetensors")}
    assert 0 < len(before) < 4
    found = judge(policies, log, sample=True, model="neural", workers=1, job_folder=folder, **OTHER_DATA)
    assert bits(found) == bits(whole)
    assert all((folder / name).stat().st_mtime_ns == when for name, when in before.items())
    assert len(fitted(folder)) == 4
    assert fit_jobs.LOCK in os.listdir(folder)
