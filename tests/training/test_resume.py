"""A run that was stopped and taken up again is, to the last bit, the run that was never stopped."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.algorithms.worlds import small, world
from tests.training.runs import LOSS, all_of, bc, begin, chunks_of, finish, iql, reopened, stop_at, write_record
from tidelog import ConfigError, LogError, load_run, resume
from tidelog.errors import CheckpointError
from tidelog.policies.policy import fingerprint

KINDS = {
    "iql": (iql(dropout=0.1), {"best_metric": "held_out/critic_loss"}),
    "iql, 2 seeds": (iql(dropout=0.1), {"best_metric": "held_out/critic_loss", "seeds": 2}),
    "bc": (bc(), {"best_metric": LOSS}),
    "population": ([bc(learning_rate=rate) for rate in (1e-2, 1.0)], {"best_metric": LOSS, "seeds": [5, 3]}),
    "stacked": ([bc(learning_rate=rate) for rate in (1e-2, 1.0)], {"best_metric": LOSS, "vmap": True}),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request, origin, tmp_path_factory):
    """An algorithm with its options, and all that comes of it if it is not stopped."""
    algorithm, options = KINDS[request.param]
    whole = finish(begin(algorithm, origin, tmp_path_factory.mktemp("whole") / "run", **options))
    return algorithm, options, all_of(whole)


@pytest.mark.bits
@pytest.mark.sample("iql-before a report")
@pytest.mark.parametrize("stop", [5, 20, 28], ids=["before a report", "between reports", "at a report"])
def test_a_stopped_run_goes_on_bit_equal(kind, stop, origin, tmp_path, monkeypatch):
    algorithm, options, whole = kind
    chunks_of(5, monkeypatch)
    run = stop_at(begin(algorithm, origin, tmp_path / "run", save_seconds=0.0, **options), stop)
    assert stop <= run.update < stop + 5
    loaded = load_run(tmp_path / "run")
    assert loaded.update == run.update
    assert [fingerprint(a) for a in loaded.learners()] == [fingerprint(a) for a in run.learners()]
    assert all_of(finish(loaded)) == whole


STATEFUL = {
    "bcq with a memory": ("bcq", "continuous", {"recurrent_size": 5, "window": 3, "burn_in": 1, "policy_delay": 2}),
    "discrete bcq with a memory": ("discrete-bcq", "discrete", {"recurrent_size": 5, "window": 3}),
    "iql with a memory, by priority": ("iql", "discrete", {"recurrent_size": 5, "window": 3, "priority_exponent": 0.6}),
}  # fmt: skip
BEST = {"bcq": "held_out/critic_loss", "iql": "held_out/critic_loss", "discrete-bcq": "held_out/q_loss"}


@pytest.mark.bits
@pytest.mark.full
@pytest.mark.parametrize("kind", STATEFUL)
def test_memories_and_running_scales_go_on_bit_equal(kind, tmp_path, monkeypatch):
    chunks_of(5, monkeypatch)
    name, actions, options = STATEFUL[kind]
    algorithm, log, best = small(name, **options), world(actions), BEST[name]
    whole = all_of(finish(begin(algorithm, log, tmp_path / "whole", best_metric=best)))
    run = stop_at(begin(algorithm, log, tmp_path / "run", best_metric=best, save_seconds=0.0), 20)
    assert run.update == 24  # after a report at 14, in steps of 5
    assert all_of(reopened(tmp_path / "run", log=log)) == whole


@pytest.fixture(scope="module")
def whole(origin, tmp_path_factory):
    """What the halted run comes to if it is not."""
    return all_of(finish(begin(bc(), origin, tmp_path_factory.mktemp("whole") / "run", best_metric=LOSS)))


def test_reports_after_the_last_checkpoint_are_made_again(origin, tmp_path, whole):
    stop_at(begin(bc(), origin, tmp_path / "run", best_metric=LOSS, save_seconds=1e9), 28)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    run = load_run(tmp_path / "run")
    assert run.update == 0
    assert run.metrics == []
    assert all_of(finish(run)) == whole


def test_a_line_that_a_kill_cut_off_is_forgotten(halted, whole):
    with (halted / "metrics.jsonl").open("a") as file:
        file.write('{"update": 14, "memb')
    assert all_of(resume(halted, progress=False)) == whole


def test_another_log_of_the_same_length_is_refused(halted, origin):
    other = replace(origin, reward=origin.reward + 1.0)
    assert other.steps == origin.steps
    with pytest.raises(LogError, match="fix: pass the log that the run was trained on"):
        load_run(halted, log=other)


def test_loading_leaves_the_folder_as_it_is(halted):
    before = {path: path.read_bytes() for path in halted.rglob("*") if path.is_file()}
    with (halted / "metrics.jsonl").open("a") as file:
        file.write('{"update": 28, "member": 0, "seed": 0}\n')  # of a process that is still training
    assert [row["update"] for row in load_run(halted).metrics] == [14]
    assert (halted / "metrics.jsonl").read_text().count("\n") == 2
    (halted / "metrics.jsonl").write_bytes(before[halted / "metrics.jsonl"])
    assert {path: path.read_bytes() for path in halted.rglob("*") if path.is_file()} == before


def test_an_older_checkpoint_can_be_gone_back_to(halted, whole):
    run = load_run(halted, checkpoint=7)
    assert run.update == 7
    assert run.metrics == []
    next(run.stream())
    assert load_run(halted).update == 7, "later checkpoints of another past would be picked up next time"
    assert all_of(reopened(halted)) == whole
    with pytest.raises(
        CheckpointError, match=r"checkpoint = 8: there is no checkpoint at this update\. fix: use one of .*28, 35, 42"
    ):
        load_run(halted, checkpoint=8)


def test_a_finished_run_resumes_to_itself(halted, whole):
    finish(load_run(halted))
    before = sorted(path for path in halted.rglob("*"))
    run = resume(halted, progress=False)
    assert run.finished
    assert all_of(run) == whole
    assert sorted(path for path in halted.rglob("*")) == before


@pytest.mark.parametrize("stop", [1, 28])
def test_patience_is_remembered(stop, origin, tmp_path):
    own = {"worse": lambda policy: -float(policy.origin["update"])}
    options = {"steps": 98, "best_metric": "worse", "patience": 2, "save_seconds": 0.0, "evaluate": own}
    stop_at(begin(bc(), origin, tmp_path / "run", **options), stop)
    run = reopened(tmp_path / "run", evaluate=own)
    assert run.finished
    assert run.update == 42  # the best report was the one at 14
    assert reopened(tmp_path / "run", evaluate=own).update == 42


def test_a_log_in_memory_has_to_be_passed_again(log, tmp_path):
    stop_at(begin(bc(), log, tmp_path / "run"), 7)
    with pytest.raises(
        CheckpointError, match=r"created in memory and is not saved\. fix: pass it, as in resume\(folder, log=log\)"
    ):
        load_run(tmp_path / "run")
    assert reopened(tmp_path / "run", log=log).update == 42


def test_own_evaluators_have_to_be_passed_again(origin, tmp_path):
    own = {"half": lambda policy: 0.5, "treatment": 2}
    stop_at(begin(bc(), origin, tmp_path / "run", evaluate=own), 7)
    with pytest.raises(ConfigError, match=r"custom evaluators are missing: half\. fix: pass them in evaluate="):
        load_run(tmp_path / "run")
    last = reopened(tmp_path / "run", evaluate={"half": lambda policy: 0.25}).metrics[-1]
    assert last["half"] == 0.25
    assert {"play/treatment", "play/treatment/iqm"} < set(last)


def test_own_networks_have_to_be_passed_again(origin, tmp_path):
    made = bc().init(origin.spec, jax.random.key(7), 1).actor
    algorithm = bc(actor_network=lambda spec, key: made)
    stop_at(begin(algorithm, origin, tmp_path / "run"), 7)
    with pytest.raises(ConfigError, match=r"BC.actor_network is '<lambda>', your own function.* pass the algorithm"):
        load_run(tmp_path / "run")
    assert reopened(tmp_path / "run", algorithm=algorithm).update == 42
    with pytest.raises(CheckpointError, match=r"arrays: expected .* for this algorithm"):
        load_run(tmp_path / "run", algorithm=iql())


def test_members_keep_their_samples_when_one_is_alone(origin):
    both = finish(begin(bc(), origin, seeds=[4, 7]))
    alone = finish(begin(bc(), origin, seeds=[7]))
    assert fingerprint(both.learners()[1]) == fingerprint(alone.learners()[0])
    assert not np.array_equal(both.learners()[0].key, both.learners()[1].key)


def test_what_differs_between_machines_is_said(halted):
    record = json.loads((halted / "run.json").read_text())
    record["machine"] |= {"jax": "0.0.1", "threads": 64}
    write_record(halted, record)
    version, threads = load_run(halted).record.differences()
    assert version.startswith("jax: 0.0.1 then, ")
    assert threads.startswith("threads: 64 then, ")


@pytest.mark.parametrize("option", [{"on": "ray"}, {"workers": 2}, {"insecure": True}])
def test_options_of_sweeps_are_refused_for_a_run(option, halted):
    with pytest.raises(ConfigError, match=r"are for a sweep, and .* is a run. fix: drop them"):
        resume(halted, **option)
