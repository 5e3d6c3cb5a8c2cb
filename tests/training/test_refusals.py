"""Single refusals and rare branches of training, each without a run that learns."""

import errno
import io
import os
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import tidelog as tl
from tests.algorithms.worlds import world
from tests.data.clicks import interactions
from tidelog import testing
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.data.statistics import Scaler, actions_are_equal, rewards_are_equal
from tidelog.errors import CheckpointError, ConfigError, EnvironmentFailure, LogError
from tidelog.recommend import held_out
from tidelog.training import checkpoints, collect, loop, record, resume, stores
from tidelog.training import metrics as progress
from tidelog.training.learn import check_begins
from tidelog.training.loop import store_of
from tidelog.training.options import Options, as_seeds
from tidelog.training.record import _number
from tidelog.training.run import Run
from tidelog.training.stores import Stream

STEPS = {"steps": 10, "seeds": (0,), "every": 5}


def failing(*args, **options):
    raise OSError(errno.EACCES, "Permission denied")


def rewarded(reward, **columns):
    return tl.Log.from_arrays(observation=np.zeros((4, 1)), action=[0, 1, 0, 1], actions=2, reward=reward, **columns)


def equal_rewards():
    stores.check_differences(tl.IQL(), rewarded(np.full(4, 3.0), terminated=np.ones(4, bool)))


def one_action():
    log = tl.Log.from_arrays(
        observation=np.zeros((4, 1)), action=["wait"] * 4, reward=np.arange(4.0), terminated=np.ones(4, bool)
    )
    stores.check_differences(tl.BC(), log)
    stores.check_differences(tl.IQL(), log)


def no_amount():
    log = tl.Log.from_arrays(
        observation=np.zeros((4, 1)), action=np.tile([0.5, 1.0], (4, 1)), reward=np.arange(4.0), bounds=[0.0, 1.0],
        terminated=np.ones(4, bool),
    )  # fmt: skip
    stores.check_differences(tl.BCQ(), log)


def run_without_a_folder():
    run = Run.__new__(Run)
    run.folder = None
    return run


REFUSED = {
    "no algorithm": (
        ConfigError,
        lambda: testing.check_algorithm(tl.PPG()),
        "check_algorithm: PPG is no offline algorithm. fix: decorate it with @tl.algorithm('name')",
    ),
    "several stores": (
        TypeError,
        lambda: store_of(SimpleNamespace(over=None, samplers={}, name="policy")),
        "phase 'policy' reads several stores, so the store of prepare and conclude is unknown. fix: name it in Phase",
    ),
    "equal rewards": (
        LogError,
        equal_rewards,
        "every reward of this log is 3 and all returns are equal: expected rewards that differ. fix: check the mapping",
    ),
    "one action": (
        LogError,
        one_action,
        "every action of this log is 'wait', so a policy that is learnt from it cannot differ from the logger",
    ),
    "one amount": (LogError, no_amount, "every action of this log is [0.5 1. ], so a policy"),
    "a start": (
        ConfigError,
        lambda: check_begins(tl.IQL()),
        "start: IQL does not support a start policy. fix: use PPG or OffPolicyPPG, or drop start=",
    ),
    "an environment without a name": (
        CheckpointError,
        lambda: resume._environments_of(
            Path(), SimpleNamespace(data=SimpleNamespace(named=False), environment="Mine"), None, [0], tl.IQL()
        ),
        "the run's environment Mine has no registered name. fix: pass it again, as in resume(folder, env=env)",
    ),
    "an evaluator": (
        ConfigError,
        lambda: _number("worth", "much"),
        "evaluate['worth'] returned 'much': expected a number. fix: return a float",
    ),
    "many steps": (ConfigError, lambda: Options(**STEPS | {"steps": 10**12}), "steps = 1000000000000: expected at"),
    "a seed": (ConfigError, lambda: as_seeds([1, -1]), "seeds: -1 is outside the range: expected 0 to "),
    "one event": (
        LogError,
        lambda: held_out._stored(interactions().select(np.arange(1)), None, Scaler()),
        "the log has 1 event(s): expected at least 2. fix: use a longer log",
    ),
    "no folder of the best": (
        CheckpointError,
        lambda: run_without_a_folder()._best_folder(0),
        "this run has no folder. fix: set one, as in fit(..., out='runs/name')",
    ),
    "no folder of checkpoints": (CheckpointError, lambda: run_without_a_folder()._checkpoints(), "this run has no"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name):
    error, call, words = REFUSED[name]
    with pytest.raises(error, match=re.escape(words)):
        call()


# The devices and stores.


class Device:
    def __init__(self, facts):
        self.facts = facts

    def memory_stats(self):
        return self.facts


@pytest.mark.parametrize(("facts", "free"), [({"bytes_limit": 100, "bytes_in_use": 30}, 70), ({}, None), (None, None)])
def test_the_free_memory_of_an_accelerator_is_its_own(facts, free, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [Device(facts)])
    assert stores._free() == free


def test_a_stored_log_is_fetched_where_it_is(monkeypatch):
    monkeypatch.setattr(loop, "Stored", tuple)
    drawn = jnp.asarray([2, 0])
    for rows, expected in ((None, [2, 0]), (jnp.asarray([5, 6, 7]), [7, 5])):
        unit = SimpleNamespace(rows=lambda store, rows=rows: (3, rows))
        found = loop._fetched(SimpleNamespace(unit=unit), ("store",), (drawn, None, None))
        assert found[0] == ("store",)
        assert found[1].tolist() == expected
        assert found[2] is drawn


def test_a_log_without_any_next_observation_has_no_targets():
    log = tl.Log.from_arrays(
        observation=np.zeros((3, 1)), action=[0, 1, 0], actions=2, reward=np.arange(3.0), terminated=np.zeros(3, bool)
    )
    with pytest.raises(LogError, match=r"no step of this log can be a target .*fix: set terminated=True for one-step"):
        Stream(log, StoreSpec(("reward", "terminated")), None)


# Runs and their folders.


def test_the_last_decision_before_a_restart_is_truncated():
    columns = {"truncated": jnp.zeros((4, 3), bool), "reward": jnp.ones((4, 3))}

    def marked(filled):
        class Own(SimpleNamespace):
            def _replace(self, **changes):
                return Own(**vars(self) | changes)

        own = Own(filled=jnp.int32(filled), columns=columns)
        one = Own(segments={"own": own})
        return np.argwhere(resume._with_truncated_end(one).segments["own"].columns["truncated"]).tolist()

    assert marked(2) == [[1, 2]]
    assert marked(0) == [[0, 2]]


def test_a_log_that_was_written_before_is_not_written_again(tmp_path):
    log = collect.CollectedLog(tmp_path / "log", world("discrete").spec, 1)
    log._pieces.mkdir()
    (log._pieces / "0-0.npz").write_bytes(b"")
    world("discrete").save(tmp_path / "log")
    before = (tmp_path / "log" / "manifest.json").read_bytes()
    log.write(1)
    assert not log._pieces.exists()
    assert (tmp_path / "log" / "manifest.json").read_bytes() == before


def test_a_checkpoint_that_cannot_be_deleted(tmp_path, monkeypatch):
    saved = checkpoints.Checkpoints(tmp_path, 1)
    monkeypatch.setattr(checkpoints._files, "delete", failing)
    with pytest.raises(CheckpointError, match=r"0000000007 cannot be written: Permission denied; what was there is"):
        saved.forget([7])


def test_a_run_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.os, "open", failing)
    with (
        pytest.raises(CheckpointError, match=r"cannot be written: Permission denied\. fix: correct the permissions of"),
        checkpoints.locked(tmp_path),
    ):
        pass


def test_a_folder_without_locks_counts_as_free(tmp_path, monkeypatch):
    (tmp_path / checkpoints.LOCK).write_text("{}")
    monkeypatch.setattr(checkpoints.fcntl, "flock", failing)
    before = len(os.listdir("/proc/self/fd"))
    checkpoints.check_unlocked(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    warned = pytest.warns(UserWarning, match=r"cannot be locked \(Permission denied\): make sure that no other process")
    with warned, checkpoints.locked(tmp_path):
        pass


def test_the_folder_of_a_run_is_no_file(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"run is a file: expected a folder; nothing was written\. fix: choose another"
    ):
        record.check_free(tmp_path / "run")


def test_numbers_of_numpy_are_numbers_in_a_record():
    assert record._plain(np.float32(0.5)) == 0.5
    with pytest.raises(TypeError, match="has no JSON form"):
        record._plain(object())


def test_an_environment_that_fails_in_a_run_without_a_folder_stays_its_error():
    def advance(most, until):
        raise EnvironmentFailure("copy 0: pump stuck")

    run = run_without_a_folder()
    run._engine = SimpleNamespace(advance=advance)
    with pytest.raises(EnvironmentFailure, match=r"^copy 0: pump stuck$"):
        run._advance(1, 1)


def test_notes_stay_whole_in_every_display(capsys, monkeypatch):
    long = "a note with [brackets] " * 20
    live = progress._Live("training")
    live._console = Console(file=io.StringIO(), width=40)
    live.note(long)
    assert live._console.file.getvalue() == f"{long}\n"
    progress._Bar(None).note(long)
    assert capsys.readouterr().out == f"{long}\n"


# The chain from a policy to its log.


def test_a_chain_says_what_it_cannot_check(tmp_path, monkeypatch):
    def link(fingerprint="1", environment=None):
        return SimpleNamespace(fingerprint=fingerprint, environment=environment)

    def log_of(origin):
        monkeypatch.setattr(record.Record, "read", lambda path: SimpleNamespace(data=SimpleNamespace(origin=origin)))
        return record._log(tmp_path, link())

    learnt = record._log(tmp_path, link(None, "CartPole-v1"))
    assert learnt == ("log", "the run learnt in the environment CartPole-v1", True)
    assert log_of(None) == ("log", "was created in memory", True)
    name, sentence, holds = log_of({"source": str(tmp_path / "none.tidelog"), "columns": None})
    assert (name, holds) == ("log", True)
    assert sentence.startswith("cannot be read again: ")
    world("discrete").save(tmp_path / "log")
    differs = log_of({"source": str(tmp_path / "log"), "columns": None})
    assert differs == ("log", "differs from the one that the run learnt from", False)


def test_a_verdict_without_its_file_is_no_link(tmp_path):
    numbers = {"difference": 0.1, "low": 0.0, "high": 0.2, "decision": "better"}
    assert record._verdict_file(tmp_path, SimpleNamespace(verdict=None)) is None
    assert record._verdict_file(tmp_path, SimpleNamespace(verdict=numbers)) is None


# The conformance of an algorithm of one's own.


def test_what_does_not_conform_is_said(monkeypatch):
    last = {"actor_loss": float("nan"), "held_out/actor_loss": 0.5, "update": 3}
    assert testing._losses(SimpleNamespace(metrics=[last])) == "not finite: actor_loss"
    assert testing._losses(SimpleNamespace(metrics=[{"actor_loss": 0.5}])) == "no validation of actor_loss"
    log = world("continuous")
    wild = np.full(log.action.shape, np.nan)
    monkeypatch.setattr(testing, "_act", lambda policy, seen, mask: wild)
    acting = SimpleNamespace(act=lambda params, seen, mask: SimpleNamespace(action=jnp.asarray(wild)))
    policy = SimpleNamespace(algorithm=acting, params=jnp.zeros(1))
    monkeypatch.setattr(jax, "eval_shape", lambda function, params: function(params))
    assert testing._actions(SimpleNamespace(policy=lambda: policy), log) == "some are not finite"


def test_seeds_that_differ_side_by_side_are_named(monkeypatch):
    def fit(algorithm, log, updates, seeds, together=False, progress=False):
        states = [{"weight": np.asarray([seed + (0.5 if together and seed else 0.0)])} for seed in seeds]
        return SimpleNamespace(learners=lambda: [SimpleNamespace(state=state) for state in states])

    monkeypatch.setattr(testing, "fit", fit)
    assert testing._side_by_side(None, None) == "seed 1 differs in ['weight']"


def test_settings_that_have_no_other_value_need_no_effect_and_functions_no_file():
    @hyperparameters
    class Narrow:
        rate: float = tl.field(0.5, least=0.5, most=0.5)

    assert testing._effect(None, Narrow(), None, "rate") is None
    assert testing._saved_settings(tl.BC(actor_network=lambda spec, key: None)) is None


def test_probabilities_that_do_not_sum_to_1_are_named():
    log = world("discrete")
    rows = len(log)
    policy = SimpleNamespace(
        is_recurrent=False,
        log_probability=lambda *args: None,
        probabilities=lambda *args: np.full((rows, 4), 0.3),
    )
    run = SimpleNamespace(policy=lambda: policy)
    assert testing._estimates(run, log) is None  # it has no density
    policy.log_probability = lambda *args: np.zeros(rows)
    assert testing._estimates(run, log) == "probabilities do not sum to 1"


def test_a_bar_is_drawn_again_after_a_pause_only(monkeypatch):
    drawn = []

    def display(content, **options):
        drawn.append(("new", content["text/plain"]))
        return SimpleNamespace(update=lambda content, raw: drawn.append(("again", content["text/plain"])))

    progress._Bar(display).end()
    assert drawn == []  # nothing was shown
    bar = progress._Bar(display)
    clock = iter([0.0, 0.01, 1e6])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    bar._last = 0.0
    for line in ("one", "two", "three"):
        bar.show(line, 0.5)
    bar.end()
    assert drawn == [("new", "one"), ("again", "three"), ("again", "three")]


def test_lines_are_written_only_where_there_is_one(monkeypatch, capsys):
    lines = progress._Lines()
    waits = iter([False, False, True])

    def wait(seconds):
        lines._line = "" if not seen else "update 3"
        seen.append(seconds)
        return next(waits)

    seen = []
    monkeypatch.setattr(lines, "_ended", SimpleNamespace(wait=wait))
    lines._write()
    assert capsys.readouterr().err.count("\n") == 1


def test_the_newest_file_of_the_same_verdict_is_the_link(tmp_path, monkeypatch):
    folder = tmp_path / record.VERDICTS
    folder.mkdir()
    for time, name in enumerate(("first", "same", "older", "other")):
        (folder / f"{name}.json").write_bytes(name.encode())
        os.utime(folder / f"{name}.json", (time, time))

    def content(path, kind, fix):
        data = path.read_bytes()
        low = 0.5 if data == b"other" else 0.0
        numbers = {"difference": 0.1, "low": low, "high": 0.2}
        return SimpleNamespace(decision="worse" if data == b"older" else "better", difference=numbers)

    monkeypatch.setattr(record, "decode_file", content)
    verdict = {"difference": 0.1, "low": 0.0, "high": 0.2, "decision": "better"}
    assert record._verdict_file(tmp_path, SimpleNamespace(verdict=verdict)) == folder / "same.json"


@pytest.mark.parametrize(
    ("reward", "equal"),
    [([0.0, 0.0, 0.0], True), ([2.0, 2.0, 2.0], False), ([0.0, 0.0, 1.0], False)],
)
def test_equal_rewards_of_episodes_of_different_lengths_tell_nothing_only_if_they_are_0(reward, equal):
    log = tl.Log.from_arrays(
        observation=np.zeros((3, 1)), action=[0, 1, 0], reward=np.asarray(reward), episode=[1, 1, 2],
        terminated=[False, True, True],
    )  # fmt: skip
    assert rewards_are_equal(log) == equal
    assert not actions_are_equal(log)
