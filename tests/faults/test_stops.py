"""Stops of the machine and failures of the disk at every operation that tidelog performs."""

import itertools
import random

import pytest

from tests.algorithms.players import tiny
from tests.faults import scenarios
from tests.faults.simulated_disk import ERRORS, Recorder, read_tree, visible
from tests.training.runs import all_of, bc, begin, chunks_of, finish, learnt_of
from tidelog import Log, TidelogError, learn, load_run
from tidelog.algorithms.names import names

SCHEDULES = 12  # random states of the disk for each operation


@pytest.fixture(scope="module")
def steps():
    return scenarios.file_steps()


NAMES = ("log", "npz", "table", "policy", "zip", "declared way of acting", "verdicts", "values", "report")


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_stop_leaves_what_was_there_or_what_was_to_come(name, exchanges, steps, tmp_path):
    recorder, seen = scenarios.record_steps(tmp_path / "disk", steps[name], exchanges)
    checked = scenarios.check_steps(recorder, seen, SCHEDULES, 0)
    assert checked.different >= 3
    assert [*steps] == [*NAMES]


COMMANDS = ("collect", "act", "recommend", "inspect", "validate", "convert", "judge", "train")


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return scenarios.command_steps(tmp_path_factory.mktemp("commands"))


@pytest.mark.sample("collect-True", "train-True", "validate-False")
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_overwrite_leaves_what_was_there_or_what_was_to_come(name, exchanges, commands, tmp_path):
    recorder, seen = scenarios.record_steps(tmp_path / "disk", commands[name], exchanges)
    grows = name == "train"  # before the run that is replaced is complete
    checked = scenarios.check_steps(recorder, seen, 3, 0, first=int(grows))
    assert checked.different >= (2 if grows else 3)
    assert [*commands] == [*COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_of_the_disk_leaves_what_was_there_and_says_why(name, steps, tmp_path):
    """Each operation fails once; the same step then succeeds on a sound disk."""
    recorder, seen = scenarios.record_steps(tmp_path / "sound", steps[name])
    errors = itertools.cycle(ERRORS)
    for fails_at, error in zip(range(sum(one.kind != "mark" for one in recorder.operations)), errors, strict=False):
        root = tmp_path / str(fails_at)
        root.mkdir()
        failing, said = Recorder(root, fails_at, error), list[str]()
        for number, step in enumerate(steps[name]):
            try:
                with scenarios.on(failing):
                    step(root)
            except TidelogError as error_said:
                said.append(str(error_said))
                now = visible(read_tree(root))
                for path in scenarios.paths(now) | scenarios.paths(seen[number]):
                    either = [scenarios.at(one, path) for one in seen[number : number + 2]]
                    assert scenarios.at(now, path) in either, (fails_at, path)
                if now == seen[number]:
                    step(root)
        assert failing.fails_at is None
        assert all(". fix: " in one for one in said)


def test_the_ledger_keeps_every_look_that_was_shown(tmp_path):
    checked = scenarios.check_ledger(tmp_path / "disk", tmp_path, SCHEDULES, 0)
    assert checked.different > 5


def test_a_run_goes_on_bit_equal_after_a_stop_anywhere(origin, tmp_path, monkeypatch):
    chunks_of(7, monkeypatch)
    recorder, every = scenarios.record_run(tmp_path / "disk", scenarios.start_run(origin), monkeypatch)
    checked, resumable = scenarios.sweep_run(recorder, every, SCHEDULES, 0, tmp_path)
    assert checked.different > 100
    root = tmp_path / "disk"
    whole = finished(root)
    for stop in random.Random(0).sample(resumable, 4):
        assert scenarios.resumed_in(root, stop, finished) == whole, stop.after


def finished(root):
    return all_of(finish(load_run(root / "run")))


@pytest.mark.full
def test_a_run_that_goes_back_to_an_older_checkpoint_never_loses_all(origin, tmp_path, monkeypatch):
    chunks_of(7, monkeypatch)
    root = tmp_path / "disk"
    root.mkdir()
    whole = all_of(
        finish(begin(bc(), origin, root / "run", best_metric="imitation_loss", save_seconds=0.0, keep_checkpoints=9))
    )
    recorder, every = scenarios.record_run(root, lambda out: load_run(out, checkpoint=14), monkeypatch)
    checked, resumable = scenarios.sweep_run(recorder, every, SCHEDULES, 0, tmp_path, least=14)
    assert checked.different > 50
    for stop in random.Random(0).sample(resumable, 3):
        assert scenarios.resumed_in(root, stop, finished) == whole, stop.after


@pytest.mark.full
def test_a_run_in_an_environment_goes_on_and_writes_its_log(tmp_path, monkeypatch):
    """Its log and its checkpoints fit together after a stop anywhere."""
    chunks_of(7, monkeypatch)
    root = tmp_path / "disk"

    def start(out):
        log = root / "log"
        return learn(
            tiny(),
            "point-mass",
            320,
            eval_every=128,
            out=out,
            log_out=log,
            save_seconds=0.0,
            train=False,
        )

    def everything(root):
        run = finish(load_run(root / "run"))
        return learnt_of(run), Log.load(root / "log").fingerprint(), (root / "log.pieces").exists()

    recorder, every = scenarios.record_run(root, start, monkeypatch)
    checked, resumable = scenarios.sweep_run(recorder, every, 4, 0, tmp_path)
    assert checked.different > 50
    whole = everything(root)
    assert whole[2] is False
    for stop in random.Random(0).sample(resumable, 12):
        assert scenarios.resumed_in(root, stop, everything) == whole, stop.after


@pytest.mark.sample("discrete-bcq")
@pytest.mark.parametrize("name", names())
def test_every_algorithm_goes_on_bit_equal_after_a_stop_at_any_point_of_its_saves(name, tmp_path, monkeypatch):
    """The names come from the registry: an algorithm that is added is tested, too."""
    chunks_of(7, monkeypatch)
    root = tmp_path / "disk"
    recorder, every = scenarios.record_run(root, scenarios.start_algorithm(name, tmp_path), monkeypatch)
    checked, resumable = scenarios.sweep_run(recorder, every, 3, 0, tmp_path)
    assert checked.different > 30
    assert len(every) > 2
    whole = learnt_of(load_run(root / "run"))
    for stop in random.Random(0).sample(resumable, 3):
        found = scenarios.resumed_in(root, stop, lambda at: learnt_of(finish(load_run(at / "run"))))
        assert found == whole, stop.after
