"""A log on disk trains to the same bits as in memory, and never comes into memory whole."""

import equinox as eqx
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.training.runs import untimed
from tidelog import ConfigError
from tidelog.algorithms.contract import StoreSpec
from tidelog.algorithms.sampling import LoggedAction, NStep, Sampler, Window
from tidelog.data.statistics import Scaler
from tidelog.policies.policy import fingerprint
from tidelog.training import stores
from tidelog.training.stores import Stream, is_mapped, stored

KEEP = StoreSpec(("reward", "terminated", "propensity"))
TINY = {"hidden": (8, 8), "batch_size": 8}


@eqx.filter_jit
def gathered(unit, store, rows, *offset):
    """Return the samples of these rows, as one program."""
    return unit.gather(store, rows, *offset)


@pytest.fixture(scope="module", params=["discrete", "continuous"])
def both(request, tmp_path_factory):
    """A log with every column that may be absent, in memory and on disk."""
    rng, rows = np.random.default_rng(0), len(world(request.param))
    log = world(
        request.param, weight=rng.gamma(2.0, size=rows), propensity=rng.uniform(0.1, 1.0, rows),
        elapsed=rng.gamma(2.0, size=rows), elapsed_unit="hour",
    )  # fmt: skip
    path = tmp_path_factory.mktemp("log") / "a.tidelog"
    log.save(path)
    return log, tl.Log.load(path, memory_map=True)


@pytest.mark.sample("discrete-unit1", "continuous-unit3", "continuous-unit6")
@pytest.mark.parametrize(
    "unit",
    [
        LoggedAction(), NStep(1, 0.9), NStep(3, 0.5), Window(NStep(2, 0.9), 4, 2), Window(LoggedAction(), 3, 1),
        NStep(1, 0.9, next_action=True), NStep(3, 0.5, next_action=True), Window(NStep(2, 0.9, next_action=True), 4, 2),
    ],
)  # fmt: skip
def test_what_is_fetched_gathers_as_from_the_whole_log(both, unit):
    log, mapped = both
    assert is_mapped(mapped)
    assert not is_mapped(log)
    store, stream = stored(log, KEEP, Scaler()), Stream(mapped, KEEP, Scaler())
    count, table = unit.rows(store)
    assert stream.count(unit) == count
    indices = np.random.default_rng(0).integers(0, count, 40)
    rows = indices if table is None else np.asarray(table)[indices]
    assert np.array_equal(stream.rows(unit, indices), rows)
    offset = (np.random.default_rng(1).integers(0, unit.length, 40),) if isinstance(unit, Window) else ()
    small, slots = stream.fetch(rows, unit, *offset)
    whole, part = gathered(unit, store, rows, *offset), gathered(unit, small, slots, *offset)
    counts = whole.data.real if whole.valid is not None else np.ones(len(rows), bool)
    if whole.valid_steps is not None:
        assert np.array_equal(whole.valid_steps, part.valid_steps)
    for wanted, found in zip(leaves(whole[:3]), leaves(part[:3]), strict=True):
        assert np.array_equal(np.asarray(wanted)[np.asarray(counts)], np.asarray(found)[np.asarray(counts)])
    for column in ("weight", "log_propensity"):
        assert np.array_equal(np.asarray(getattr(small, column))[slots], np.asarray(getattr(store, column))[rows])


@pytest.mark.parametrize("keep", [KEEP, StoreSpec(())], ids=["values", "decisions"])
def test_weights_of_some_episodes_from_disk_are_those_in_memory(both, keep):
    log, mapped = both
    unit, episodes = NStep(1, 0.9) if keep is KEEP else LoggedAction(), np.asarray([0, 3, 4, 9])
    store, stream = stored(log.take_episodes(episodes), keep, Scaler()), Stream(mapped, keep, Scaler(), episodes)
    count, table = unit.rows(store)
    assert stream.count(unit) == count
    small, slots = stream.fetch(stream.rows(unit, np.arange(count)), unit)
    rows = np.arange(count) if table is None else np.asarray(table)
    assert np.array_equal(np.asarray(small.weight)[slots], np.asarray(store.weight)[rows])


def leaves(gathered):
    import jax

    return jax.tree.leaves(gathered)


@pytest.mark.bits(across_programs=True)
@pytest.mark.sample(
    "discrete-n-step, held out, scaled", "discrete-memory, n-step, held out", "continuous-iql", "continuous-bc",
    others="slow",
)  # fmt: skip
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (tl.IQL(**TINY), {}),
        (tl.IQL(n_step=3, **TINY), {"held_out": 0.3, "scale": "standard"}),
        (tl.IQL(recurrent_size=4, window=3, burn_in=1, **TINY), {}),
        (tl.IQL(recurrent_size=4, window=6, burn_in=2, n_step=2, **TINY), {"held_out": 0.3}),
        (tl.BC(**TINY), {"held_out": 0.3}),
    ],
    ids=["iql", "n-step, held out, scaled", "memory", "memory, n-step, held out", "bc"],
)
def test_training_from_disk_is_bit_equal(both, algorithm, options, monkeypatch):
    monkeypatch.setattr(stores, "LONGEST_BLOCK", 5)
    runs = [tl.fit(algorithm, log, 12, eval_every=6, **options) for log in both]
    assert fingerprint(runs[0].learners()) == fingerprint(runs[1].learners())
    held_out = [[v for k, v in row.items() if "held_out" not in k] for run in runs for row in untimed(run.metrics)]
    assert held_out[:2] == held_out[2:]
    assert runs[0].record.held_out == runs[1].record.held_out


@pytest.mark.bits
@pytest.mark.full
def test_priorities_are_learnt_between_blocks_and_resume_is_bit_equal(both, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "LONGEST_BLOCK", 4)
    algorithm = tl.IQL(priority_exponent=0.8, **TINY)
    whole = tl.fit(algorithm, both[1], 20, eval_every=10, out=tmp_path / "whole")
    cut = tl.fit(algorithm, both[1], 20, eval_every=10, out=tmp_path / "cut", save_seconds=0.0, train=False)
    for now in cut.stream():
        if now.update >= 8:
            break
    resumed = tl.resume(tmp_path / "cut")
    assert fingerprint(resumed.learners()) == fingerprint(whole.learners())
    priorities = whole.learners()[0].orders["iql"]
    assert len(np.unique(np.asarray(priorities.tree.levels[0]))) > 8
    assert float(priorities.largest) > 1.0


def test_a_block_keeps_to_its_bytes(both):
    stream = Stream(both[1], KEEP, Scaler())
    assert stream.block(Sampler("log", 8, NStep(1, 0.9))) == stores.LONGEST_BLOCK
    width = sum(leaf[:1].nbytes for leaf in both[1].observation.values())
    assert stream.block(Sampler("log", 200_000, NStep(1, 0.9))) == stores.MOST_BYTES // (200_000 * 2 * width)


@pytest.mark.full
def test_only_saved_logs_can_stay_on_disk(tmp_path):
    from tidelog.data.read import read_log

    with pytest.raises(ConfigError, match="convert"):
        read_log(tmp_path / "a.csv", memory_map=True)
