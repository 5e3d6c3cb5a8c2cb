"""Several processes that train one run: agreement, equal bits, lost processes, signals, and what is refused."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import pytest

import tidelog as tl
from tests.training.logs import log, saved
from tests.training.runs import untimed
from tests.training.shared_batches import NAMES, SAMPLE, simulated
from tidelog.cli import main
from tidelog.errors import CheckpointError, ConfigError, ProcessError
from tidelog.policies.policy import read_arrays
from tidelog.sinks import read_rows
from tidelog.training import processes as module
from tidelog.training.processes import Processes, connect_processes, devices_of_all
from tidelog.training.run import _decision

__all__ = ["log", "saved"]
SECONDS = 300  # for a process that a test starts, on a busy machine


class Store:
    """The key-value store of `jax.distributed`, among threads."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def key_value_set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, milliseconds):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, milliseconds / 1000):
                raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: no value")
            return self.values[key]

    def key_value_delete(self, prefix):
        with self.changed:
            self.values = {key: value for key, value in self.values.items() if not key.startswith(prefix)}


def in_ranks(function, count=2):
    """What a function of its processes returns or raises in each of some ranks, and the store at the end."""
    store, found = Store(), [None] * count

    def one(rank):
        try:
            found[rank] = function(Processes(count, rank, store))
        except Exception as error:  # compared by the test
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found, store.values


def test_process_0_decides_for_all(monkeypatch):
    monkeypatch.setattr(module, "POLL_MILLISECONDS", 5)

    def several(group):
        chunks = [group.decide([10 * (group.rank + 1), bool(group.rank), None], _decision) for _ in range(3)]
        signals = group.decide([7, False, 15 if group.rank else None], _decision)
        time.sleep(0.05 * (1 - group.rank))  # the other waits longer than one poll
        return [*chunks, signals, group.on_first(lambda: {"rank": group.rank, "loss": 0.1 + 0.2})]

    found, left = in_ranks(several)
    told = [[10, False, None]] * 3 + [[7, False, 15], {"rank": 0, "loss": 0.1 + 0.2}]
    assert found == [told, told]
    assert {key.split("/")[1] for key in left} == {"5"}, "older decisions are deleted"


def test_an_error_of_process_0_is_raised_in_all():
    def fails(group):
        group.on_first(lambda: (_ for _ in ()).throw(CheckpointError("the disk is full", "1 GB", "free it")))

    found, _ = in_ranks(fails, 3)
    assert [(type(error), error.found, error.expected, error.fix) for error in found] == [
        (CheckpointError, "the disk is full", "1 GB", "free it")
    ] * 3


def test_ranks_that_differ_are_refused():
    found, _ = in_ranks(lambda group: group.check_same({"jax": "1", "the log": f"log {group.rank}"}))
    assert len({str(error) for error in found}) == 1
    assert isinstance(found[1], ConfigError)
    assert "the log of rank 1 is log 1, and log 0 of rank 0. fix: start all" in str(found[1])


def test_a_lost_process_is_named_with_the_way_on():
    class Lost(Store):
        def blocking_key_value_get(self, key, milliseconds):
            raise jax.errors.JaxRuntimeError("UNAVAILABLE: Socket closed\nmore")

    with pytest.raises(ProcessError, match=r"rank 1: .* of the 2 processes failed \(UNAVAILABLE: Socket closed\)"):
        Processes(2, 1, Lost()).decide(1, max)


def test_every_process_needs_a_part_of_each_batch(monkeypatch):
    monkeypatch.setattr(module, "connected", lambda: Processes(2, 0, None))
    assert devices_of_all({"batch": 4}) == {"batch": 4}
    assert devices_of_all(None) == {"members": 1, "batch": jax.device_count()}
    for wrong in (4, {"batch": 3}, {"members": 2}):
        with pytest.raises(ConfigError, match=r"2 processes share each batch: expected a multiple of 2 as batch\. fix"):
            devices_of_all(wrong)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (("localhost:1", 2, None), "expected all three or none"),
        (("localhost", 2, 0), "expected HOST:PORT"),
        (("localhost:1", 2, 2), "rank = 2: expected 0 to 1"),
        ((None, None, None), "no connection through the coordinator"),
    ],
)
def test_a_place_that_cannot_be_is_refused(named, message):
    with pytest.raises(ConfigError, match=message):
        connect_processes(*named, seconds=1)


def test_an_unreachable_coordinator_is_refused_in_bounded_time():
    address = f"127.0.0.1:{port()}"
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"rank 1: {address} was not reached within 0.1 seconds .* fix: start"):
        connect_processes(address, 2, 1, seconds=0.1)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "2", "--out", "r"], "expected all three, or --coordinator auto. fix: start each process"),
        (
            ["--processes", "2", "--rank", "0", "--out", "r"],
            "--processes 2, --rank 0: expected all",
        ),
        (["--coordinator", "localhost:1", "--rank", "0", "--out", "r"], "expected all three"),
        (["--coordinator", "auto"], "fix: name it with --out FOLDER"),
    ],
)
def test_flags_by_which_no_process_joins_others_are_refused(words, message, saved, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "bc", "--data", str(saved), *words]) == 2
    said = capsys.readouterr()
    assert message in " ".join((said.err + said.out).replace("│", " ").split())
    assert not any(tmp_path.iterdir())


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def started(words, devices=1):
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**simulated(devices), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(processes, code=0):
    """What each process wrote to standard error; all must end with the code."""
    errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), "\n".join(errors)
    return errors


def pair(*words):
    address = f"127.0.0.1:{port()}"
    return [started(["tests.training.pair", address, str(rank), *words]) for rank in (0, 1)]


@pytest.mark.parametrize(
    "names", [pytest.param(SAMPLE, marks=pytest.mark.full), pytest.param(NAMES, marks=pytest.mark.slow)]
)
def test_two_processes_are_equal_to_two_devices_of_one_to_the_last_bit(names):
    found = [json.loads(error.splitlines()[-1]) for error in ended(pair(*names))]
    (alone,) = ended([started(["tests.training.pair", "none", "alone", *names], devices=2)])
    assert found[0] == found[1], "ranks differ"
    assert found[0] == json.loads(alone.splitlines()[-1])
    assert len({states[0] for states in found[0].values()}) == len(names)


TRAIN = [
    "tidelog", "train", "bc", "--steps", "400", "--eval-every", "50", "--preset", "none", "--hidden", "8",
    "--batch-size", "32", "--save-seconds", "0", "--best-metric", "held_out/imitation_loss",
    "--patience", "6", "--quiet",
]  # fmt: skip


def ranks(words):
    address = f"127.0.0.1:{port()}"
    more = ["--coordinator", address, "--processes", "2", "--connect-seconds", "60"]
    return [started([*words, *more, "--rank", str(rank)]) for rank in (0, 1)]


def wait_for_checkpoint(folder, update, running):
    until = time.monotonic() + SECONDS
    while not any(int(path.parent.name) >= update for path in folder.glob("checkpoints/[0-9]*/manifest.json")):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < until, "there is no checkpoint"
        time.sleep(0.02)


def content(run):
    """Everything that equal runs share: reports, the last state, the best policy."""
    last = max(run.glob("checkpoints/[0-9]*/member-0.safetensors"))
    best = next((run / "best").glob("*/*.safetensors"))
    arrays = [{name: array.tobytes() for name, array in read_arrays(file).items()} for file in (last, best)]
    return last.parent.name, untimed(read_rows(run / "metrics.jsonl")), arrays


@pytest.fixture(scope="module")
def undisturbed(saved, tmp_path_factory):
    """A run of one process over two devices."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    ended([started([*TRAIN, "--data", str(saved), "--out", str(folder), "--devices", "batch=2"], devices=2)])
    return folder


@pytest.mark.slow
@pytest.mark.full
def test_lost_and_stopped_processes_continue_as_if_nothing_had_happened(undisturbed, saved, tmp_path):
    run = tmp_path / "run"
    stopped = ranks([*TRAIN, "--data", str(saved), "--out", str(run)])
    wait_for_checkpoint(run, 10, stopped[0])
    stopped[1].send_signal(signal.SIGTERM)  # one rank alone: all save, and end
    ended(stopped, 143)
    again = ranks(["tidelog", "resume", str(run), "--quiet"])
    wait_for_checkpoint(run, 1 + int(max((run / "checkpoints").glob("[0-9]*")).name), again[0])
    again[1].kill()
    began = time.monotonic()
    (error,) = ended(again[:1], 4)
    assert time.monotonic() - began < 60
    assert "fix: start all processes again with `tidelog resume" in error
    ended(again[1:], -signal.SIGKILL)
    ended(ranks(["tidelog", "resume", str(run), "--quiet"]))
    assert content(run) == content(undisturbed)


@pytest.mark.full
def test_a_rank_with_another_log_is_refused_by_all(saved, tmp_path):
    other = tmp_path / "other"
    tl.collect("treatment", episodes=60, seed=7).save(other)
    logs = (saved, other)
    address = ["--coordinator", f"127.0.0.1:{port()}", "--processes", "2", "--out", str(tmp_path / "run")]
    running = [started([*TRAIN, *address, "--rank", str(i), "--data", str(one)]) for i, one in enumerate(logs)]
    assert all("the log of rank 1 is" in error for error in ended(running, 2))
    assert not (tmp_path / "run").exists()
