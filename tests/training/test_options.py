"""Options are listed once, verbs and flags take them by name; and single refusals, without a run that learns."""

import dataclasses
import errno
import inspect
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Unpack, get_type_hints

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.data.clicks import interactions
from tests.training.runs import write_record
from tidelog import testing
from tidelog.algorithms.contract import StoreSpec
from tidelog.cli import main
from tidelog.cli.flags import flag_names, verb_flags
from tidelog.data.statistics import actions_are_equal, rewards_are_equal
from tidelog.errors import CheckpointError, ConfigError, LogError
from tidelog.schema import RENAMED
from tidelog.training import collect, learn, options, record, stores
from tidelog.training.loop import store_of
from tidelog.training.options import Options, as_seeds, options_of
from tidelog.training.record import Record, _number
from tidelog.training.stores import Stream

VERBS = {
    "fit": (tl.fit, options.FitOptions),
    "learn": (tl.learn, options.LearnOptions),
    "finetune": (tl.finetune, options.FinetuneOptions),
    "sweep": (tl.sweep, options.SweepOptions),
}
NOT_IN_SWEEPS = {"devices"}
MOST_ARGUMENTS = 11  # that a signature names


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_its_options_by_name(verb):
    call, keywords = VERBS[verb]
    taken = inspect.signature(call).parameters
    assert len(taken) <= MOST_ARGUMENTS
    assert get_type_hints(call)["options"] == Unpack[keywords]
    listed = {one.name for one in options_of("fit" if verb == "sweep" else verb)} - {"steps", "seeds"}
    if verb == "sweep":
        listed = listed - NOT_IN_SWEEPS | set(options.OF_SWEEPS)
    assert set(keywords.__annotations__) == listed
    assert not listed & set(taken)
    assert not keywords.__required_keys__
    for name in listed:
        assert f"- ``{name}``" in keywords.__doc__


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelt_option_is_refused_with_the_nearest_one(verb):
    call, keywords = VERBS[verb]
    words = rf"^{verb} has no option 'eval_evry': did you mean 'eval_every'\? fix: help\(.*\.{keywords.__name__}\)"
    algorithm = tl.PPG() if verb == "learn" else tl.BC()
    source = "treatment" if verb == "learn" else world("discrete")
    first = (tl.fit(tl.BC(), source, 1, train=False), "treatment") if verb == "finetune" else (algorithm, source)
    with pytest.raises(ConfigError, match=words):
        call(*first, 10, eval_evry=5)


OLD = [old for old, new in RENAMED.items() if new in {one.name for one in dataclasses.fields(Options)}]


@pytest.mark.parametrize("old", OLD)
def test_an_option_of_earlier_versions_is_refused_with_its_new_name_and_read_in_files(old, tmp_path, capsys):
    log, new = world("discrete"), RENAMED[old]
    with pytest.raises(ConfigError, match=rf"^fit has no option '{old}'\. fix: write {new}$"):
        tl.fit(tl.BC(), log, 10, **{old: 5})
    if new in flag_names(verb_flags("fit", dataclasses.make_dataclass("Flags", []))):
        flag, write = (f"--{name.replace('_', '-')}" for name in (old, new))
        assert main(["train", "bc", "--data", "log", flag, "5"]) == 2
        assert f"{flag} has another name. fix: write {write}" in " ".join(capsys.readouterr().err.split())
    run = tl.fit(tl.BC(hidden=(4,), batch_size=4), log, 2, out=tmp_path / "run", train=False)
    content = json.loads((run.folder / "run.json").read_text())
    content["options"][old] = content["options"].pop(new)
    write_record(run.folder, content)
    assert Record.read(run.folder).options == run.record.options


def test_an_option_of_another_verb_is_named_with_it():
    with pytest.raises(ConfigError, match=r"^fit has no option 'seed': did you mean 'seeds'\?"):
        tl.fit(tl.BC(), world("discrete"), 10, seed=0)
    with pytest.raises(ConfigError, match=r"^fit has no option 'log_out', learn and finetune have one\. fix: help"):
        tl.fit(tl.BC(), world("discrete"), 10, log_out="log")


@pytest.mark.parametrize("verb", ["fit", "learn", "finetune"])
def test_flags_are_made_of_options(verb):
    @dataclasses.dataclass(kw_only=True)
    class Base:
        """Flags."""

    made = set(flag_names(verb_flags(verb, Base)))
    assert made == {one.name for one in options_of(verb) if one.metadata["flag"] is not None}
    assert all(one.metadata["help"] for one in options_of(verb))


def test_options_survive_json():
    before = Options(steps=10, seeds=(0, 3), eval_every=5, evaluate={"treatment": 2}, held_out=0.2, scale="standard")
    assert msgspec.json.decode(msgspec.json.encode(before), type=Options) == before


# Single refusals and rare branches of training, each without a run that learns.


STEPS = {"steps": 10, "seeds": (0,), "eval_every": 5}


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
        "every action of this log is 'wait', so a policy that is learnt from it cannot differ from the behaviour "
        "policy",
    ),
    "one amount": (LogError, no_amount, "every action of this log is [0.5 1. ], so a policy"),
    "an environment without a name": (
        CheckpointError,
        lambda: learn._environments_of(
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
        lambda: tl.fit(tl.RecommenderBCQ(), interactions().select(np.arange(1)), 1, progress=False),
        "the log has 1 event(s): expected at least 2. fix: use a longer log",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name):
    error, call, words = REFUSED[name]
    with pytest.raises(error, match=re.escape(words)):
        call()


def test_a_log_without_any_next_observation_has_no_targets():
    log = tl.Log.from_arrays(
        observation=np.zeros((3, 1)), action=[0, 1, 0], actions=2, reward=np.arange(3.0), terminated=np.zeros(3, bool)
    )
    with pytest.raises(
        LogError, match=r"no step of this log can be learned from: .*fix: set terminated=True for one-step"
    ):
        Stream(log, StoreSpec(("reward", "terminated")), None)


def test_the_last_decision_before_a_restart_is_truncated():
    columns = {"truncated": jnp.zeros((4, 3), bool), "reward": jnp.ones((4, 3))}

    def marked(filled):
        class Own(SimpleNamespace):
            def _replace(self, **changes):
                return Own(**vars(self) | changes)

        own = Own(filled=jnp.int32(filled), columns=columns)
        one = Own(segments={"own": own})
        return np.argwhere(learn._with_truncated_end(one).segments["own"].columns["truncated"]).tolist()

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


def test_a_run_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(record.os, "open", failing)
    with (
        pytest.raises(CheckpointError, match=r"cannot be written: Permission denied\. fix: correct the permissions of"),
        record.locked(tmp_path),
    ):
        pass


def test_a_folder_without_locks_counts_as_free(tmp_path, monkeypatch):
    (tmp_path / record.LOCK).write_text("{}")
    monkeypatch.setattr(record.fcntl, "flock", failing)
    before = len(os.listdir("/proc/self/fd"))
    record.check_unlocked(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    warned = pytest.warns(UserWarning, match=r"cannot be locked \(Permission denied\): make sure that no other process")
    with warned, record.locked(tmp_path):
        pass


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
