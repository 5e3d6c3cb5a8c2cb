"""Segments that wait off the device: the same bits wherever they lie, small checkpoints, and refusals beforehand."""

import shutil
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms.players import ENV, tiny
from tests.training.runs import chunks_of, finish, stop_at
from tidelog.algorithms.core.sampling import Sampler
from tidelog.algorithms.core.segments import Epochs, Whole
from tidelog.cli import main
from tidelog.envs.functional import CopyStep
from tidelog.envs.registry import functional
from tidelog.policies.named_arrays import fingerprint
from tidelog.training.engine import offload_storage as storage
from tidelog.training.engine import offloaded_phases as depot_visits
from tidelog.training.engine import segment_offload
from tidelog.training.engine.engine import Engine
from tidelog.training.engine.plan import planned_stores
from tidelog.training.engine.segment_offload import OffloadedStore
from tidelog.training.learn import learn
from tidelog.types import Discrete, Image, Spec

SPEC = functional(ENV).spec
STEPS, EVERY = 320, 128  # five rounds of 64: two auxiliary phases, and a round more


def begin(where, out, **options):
    return learn(
        tiny(), ENV, **{"steps": STEPS, "every": EVERY, "phase_buffer": where, "out": out, **options}, train=False
    )


def all_of(run):
    """States and reports; where segments lie is not among it."""
    rows = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in run.metrics]
    return [fingerprint(learner._replace(segments=learner.segments["fresh"])) for learner in run.learners()], rows


@dataclass(frozen=True)
class Pictures:
    """Pictures of the size that Procgen shows."""

    name: ClassVar[str] = "pictures"
    spec: ClassVar[Spec] = Spec({"picture": Image(64, 64, 3)}, Discrete(15))

    def start(self, key):
        return jnp.int32(0)

    def observe(self, world):
        return {"picture": jnp.zeros((64, 64, 3), jnp.uint8)}

    def mask(self, world):
        return None

    def step(self, world, action, key):
        return CopyStep(world + 1, jnp.zeros(()), world > 8, jnp.zeros((), bool))


def paper(**changes):
    """The paper's settings with small networks, which nothing is learnt by here."""
    return tl.PPG(hidden=(4,), convolutions="small", **changes)


@pytest.fixture(scope="module")
def on_the_device():
    """All that comes of a run of two seeds that keeps everything on the device."""
    return all_of(finish(begin("device", None, seeds=2)))


@pytest.fixture(scope="module", params=["host", "disk"])
def away(request, tmp_path_factory):
    """Where segments lie, and all that comes of the same run there."""
    run = finish(begin(request.param, tmp_path_factory.mktemp("away") / "run", seeds=2))
    return request.param, all_of(run), run


@pytest.mark.bits(across_programs=True)
def test_results_are_equal_to_the_last_bit_wherever_segments_lie(away, on_the_device):
    _, (states, rows), run = away
    assert "phase_buffer" not in run.learners()[0].segments
    assert states == on_the_device[0]
    for row, expected in zip(rows, on_the_device[1], strict=True):
        told = "after auxiliary/clone_kl_after"  # one mean, added up in another program
        assert row.get(told, 0.0) == pytest.approx(expected.get(told, 0.0), rel=1e-5)
        assert row | {told: None} == expected | {told: None}


@pytest.mark.bits(across_programs=True)
def test_what_the_host_plays_can_wait_on_disk_too(tmp_path):
    options = {"steps": 192, "every": 192}
    runs = [
        finish(learn(tiny(), "point-mass", phase_buffer=w, out=tmp_path / w, **options, train=False))
        for w in ("device", "disk")
    ]
    assert all_of(runs[0])[0] == all_of(runs[1])[0]


@pytest.mark.full
@pytest.mark.bits
@pytest.mark.sample("disk-auxiliary phase")
@pytest.mark.parametrize("stop", [4, 10, 13], ids=["after a round", "auxiliary phase", "later"])
def test_a_run_stopped_in_the_middle_of_a_phase_goes_on_bit_equal(away, stop, tmp_path, monkeypatch):
    where, (states, rows), _ = away
    chunks_of(2, monkeypatch)
    run = stop_at(begin(where, tmp_path / "run", seeds=2, save_seconds=0.0), stop)
    assert stop <= run.update < stop + 2
    loaded = tl.load(tmp_path / "run")
    assert loaded._engine.position == run._engine.position
    again = all_of(finish(loaded))
    assert again[0] == states
    assert [row["update"] for row in again[1]] == [row["update"] for row in rows]


@pytest.mark.full
def test_pieces_outlive_their_phase_while_a_checkpoint_names_them(away, tmp_path, monkeypatch):
    where, (states, _), _ = away
    chunks_of(2, monkeypatch)
    run = begin(where, tmp_path / "run", seeds=2, save_seconds=1e9)
    for _ in run.stream():
        if run.update == 10:  # in the auxiliary phase, the only checkpoint that is made
            run._save()
        if run.update >= 22:  # well into the rounds after it
            break
    assert all_of(finish(tl.load(tmp_path / "run")))[0] == states


@pytest.mark.sample("disk")
def test_checkpoints_name_segments_instead_of_holding_them(away, tmp_path, monkeypatch):
    where, _, _ = away
    chunks_of(2, monkeypatch)
    sizes = {}
    for place in ("device", where):
        run = stop_at(begin(place, tmp_path / place, save_seconds=0.0), 10)  # in the middle of an auxiliary phase
        (last,) = sorted((run.folder / "checkpoints").iterdir())[-1:]
        sizes[place] = sum(path.stat().st_size for path in last.iterdir())
    held = sum(path.stat().st_size for path in (tmp_path / where / "phase_buffer").rglob("*.npy"))
    (depot,) = run._engine._offloaded._stores[0].values()
    assert held > 0.9 * depot.capacity * depot.segment_bytes
    assert sizes["device"] - sizes[where] > 0.9 * depot.capacity * depot.segment_bytes


def test_pieces_go_when_no_checkpoint_names_them(tmp_path, monkeypatch):
    chunks_of(2, monkeypatch)
    run = begin("disk", tmp_path / "run", save_seconds=0.0, keep=1)
    place = tmp_path / "run/phase_buffer/member-0/phase_buffer"
    counts = [len(list(place.glob("*"))) for _ in run.stream()]
    assert max(counts) == 4  # two rounds of a phase, and what it prepares beside them
    assert counts[-1] == 1  # the last round began a phase


@pytest.mark.full
def test_members_under_one_vmap_keep_no_segments_elsewhere(away):
    _, _, run = away
    with pytest.raises(tl.ConfigError, match="members under one vmap need the phase buffer on the device"):
        tl.load(run.folder, together=True)
    trainer = run._engine
    places, host = trainer._assignment, storage.Storage("host")
    assert not Engine(
        trainer.members, trainer.learners, STEPS, assignment=places, together=True, storage=host
    )._together


def test_a_damaged_piece_is_refused(tmp_path, monkeypatch):
    chunks_of(2, monkeypatch)
    stop_at(begin("disk", tmp_path / "run", save_seconds=0.0), 10)
    path = sorted((tmp_path / "run/phase_buffer").rglob("*.npy"))[0]
    *kept, last = path.read_bytes()
    path.write_bytes(bytes([*kept, last ^ 1]))
    with pytest.raises(tl.CheckpointError, match=r"collected.*npy was changed after it was written"):
        tl.load(tmp_path / "run")
    shutil.rmtree(path.parent)
    with pytest.raises(tl.CheckpointError, match="is not a tidelog piece of a phase buffer"):
        tl.load(tmp_path / "run")


# Blocks.


def depot(tmp_path, on_disk):
    """Three pieces of two segments of four steps, each step with a number of its own."""
    shapes = {
        "seen": {"x": jax.ShapeDtypeStruct((2, 4, 3), np.uint8)},
        "valid": jax.ShapeDtypeStruct((2, 4), bool),
        "made": jax.ShapeDtypeStruct((2, 4), np.float32),
    }
    found = OffloadedStore(shapes, 6, 2, tmp_path, on_disk)
    for round in range(3):
        steps = np.arange(8 * round, 8 * round + 8, dtype=np.uint8).reshape(2, 4)
        seen = {"x": np.repeat(steps[..., None], 3, axis=2)}
        found.add(7 + round, {"seen": seen, "valid": np.ones((2, 4), bool), "other": steps})
    return found


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 6])
def test_a_depot_gives_what_it_was_given(tmp_path, on_disk, chunk, monkeypatch):
    monkeypatch.setattr(OffloadedStore, "chunk", lambda self: chunk)
    store, seen = depot(tmp_path, on_disk), []

    def double(columns):
        seen.append(columns["seen"]["x"].shape[0])
        assert columns["seen"]["x"].dtype == np.uint8
        return {"made": np.float32(2.0) * np.asarray(columns["seen"]["x"])[..., 0]}

    store.prepare(double)
    assert set(seen) == {chunk}
    rows = np.asarray([5, 0, 3, 3])
    fetched, slots = store.fetch(rows, Whole())
    first = 4.0 * rows[:, None] + np.arange(4)
    np.testing.assert_array_equal(np.asarray(fetched.columns["seen"]["x"])[slots, :, 0], first)
    np.testing.assert_array_equal(fetched.columns["made"], 2 * first)
    told, valid = store.conclude(lambda columns: {"made": columns["made"]})
    np.testing.assert_array_equal(np.asarray(told["made"]).ravel(), 2.0 * np.arange(24))
    assert valid.shape == (6, 4)
    assert (store.filled, store.count(Whole()), store.count(Whole(2))) == (6, 6, 12)


@pytest.mark.parametrize("on_disk", [True, False])
def test_leaves_and_columns_are_kept_apart_whatever_their_names(tmp_path, on_disk):
    names = ("left eye", "left_eye", "Left_eye", "left.eye", "é", "a" * 300, "..")
    one = jax.ShapeDtypeStruct((1, 2), np.float32)
    shapes = {"seen": dict.fromkeys(names, one), "seen_before": one, "made": one}
    store = OffloadedStore(shapes, 1, 1, tmp_path, on_disk)
    values = {name: np.full((1, 2), i, np.float32) for i, name in enumerate(names)}
    store.add(0, {"seen": values, "seen_before": values["é"]})
    shown = []
    store.prepare(lambda columns: shown.append(set(columns)) or {"made": columns["seen_before"]})
    assert shown == [{"seen", "seen_before"}]
    store.saved()
    again = OffloadedStore(shapes, 1, 1, tmp_path, on_disk)
    again.restore_pieces(store.saved())
    for found in (store, again):
        columns = found.fetch(np.asarray([0]), Whole()).store.columns
        jax.tree.map(np.testing.assert_array_equal, columns["seen"], values)
        np.testing.assert_array_equal(columns["made"], values["é"])


def test_a_damaged_piece_is_named(tmp_path):
    store = depot(tmp_path, True)
    next((tmp_path / "00000008-collected").glob("*.npy")).write_bytes(b"damaged")
    with pytest.raises(tl.CheckpointError, match="00000008-collected is damaged"):
        store.prepare(lambda columns: {"made": columns["valid"]})


def test_a_piece_that_goes_while_the_run_needs_it_is_named(tmp_path):
    store = depot(tmp_path, True)
    shutil.rmtree(tmp_path / "00000008-collected")
    with pytest.raises(tl.CheckpointError, match="00000008-collected is missing, but the run needs it"):
        store.prepare(lambda columns: {"made": columns["valid"]})


def test_only_pieces_are_tidied_away(tmp_path):
    store = depot(tmp_path, True)
    (tmp_path / ".DS_Store").write_text("of a file browser")
    (tmp_path / "mine").mkdir()
    (tmp_path / ".writing-00000009-collected-x").mkdir()
    store.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".DS_Store", "mine"]


def test_blocks_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_offload, "MOST_BYTES", 100)
    store = depot(tmp_path, False)
    assert store.segment_bytes == 4 * (3 + 1 + 4)
    assert (store.block(Sampler("memory", 2, Whole(), Epochs())), store.chunk()) == (1, 3)


def test_what_a_phase_prepares_is_the_same_by_parts_but_for_rounding(tmp_path, monkeypatch):
    """Products of fewer rows are rounded otherwise on some processors."""

    def prepared(where):
        made, prepare = [], depot_visits._prepare_chunk
        with monkeypatch.context() as patch:
            patch.setattr(depot_visits, "_prepare_chunk", lambda *given: made.append(prepare(*given)) or made[-1])
            finish(begin("host", tmp_path / where, steps=128))  # to the end of the first auxiliary phase
        return [jax.tree.map(np.asarray, part) for part in made]

    (whole,) = prepared("whole")
    monkeypatch.setattr(OffloadedStore, "chunk", lambda self: 3)
    parts = prepared("parts")
    assert len(parts) == 3
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:8], *parts)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(joined), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.bits
@pytest.mark.full
def test_small_blocks_give_the_same_bits(away, tmp_path, monkeypatch):
    where, (states, _), _ = away
    asked = []
    monkeypatch.setattr(OffloadedStore, "block", lambda self, draw: 3)
    fetch = depot_visits._fetch
    monkeypatch.setattr(depot_visits, "_fetch", lambda *given: asked.append(given[2].shape) or fetch(*given))
    assert all_of(finish(begin(where, tmp_path / "run", seeds=2)))[0] == states
    assert set(asked) == {(3, 2)}


# What is refused.


@pytest.mark.full
def test_a_memory_that_has_no_room_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    with pytest.raises(tl.SpaceError, match=r"takes 6\.\d+ GB, more than phase_buffer_limit = 2 GB\. fix: reduce"):
        learn(
            paper(), Pictures(), 10**6, out=tmp_path / "run", phase_buffer="disk", phase_buffer_limit=2.0, train=False
        )
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, int(12e9)))
    with pytest.raises(tl.SpaceError, match=r"2 times because each of 1 check.*but the disk of .* has 12\.00 GB free"):
        learn(paper(), Pictures(), 10**6, out=tmp_path / "run", phase_buffer="disk", keep=1, train=False)
    for where in ("host", "device"):
        monkeypatch.setattr(storage, "available_memory", lambda: int(5e9))
        with pytest.raises(
            tl.SpaceError, match=r"this machine's memory has 5\.00 GB free\. fix: .* or set phase_buffer to"
        ):
            learn(paper(), Pictures(), 10**6, phase_buffer=where, train=False)
    monkeypatch.setattr(storage, "available_memory", lambda: int(1e12))
    with pytest.raises(tl.SpaceError, match=r"4 times because each of 3 checkpoints .* but the disk of"):
        learn(paper(), Pictures(), 10**6, out=tmp_path / "run", phase_buffer="host", train=False)
    assert not list(tmp_path.iterdir())
    command = [
        "train",
        "ppg",
        "--env",
        ENV,
        "--preset",
        "none",
        "--out",
        str(tmp_path / "run"),
        "--phase-buffer-limit",
        "0.001",
    ]
    assert main(command) == 2
    assert "the phase buffer takes" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", [tl.OffPolicyPPG(), tl.PPO()], ids=["rings", "rollouts"])
def test_stores_in_which_nothing_waits_need_room_too(algorithm, monkeypatch):
    with pytest.raises(tl.SpaceError, match=r"the stores of segments take .* than phase_buffer_limit = 1e-06 GB"):
        learn(algorithm, ENV, 64, phase_buffer_limit=1e-6, train=False)
    monkeypatch.setattr(storage, "available_memory", lambda: 1000)
    with pytest.raises(tl.SpaceError, match=r"but this machine's memory has 1\.0 kB free\. fix: .* or steps$"):
        learn(algorithm, ENV, 64, train=False)


def test_members_side_by_side_need_room_for_both_copies(monkeypatch):
    planned = planned_stores(tiny(), tiny().init(SPEC, jax.random.key(0), 1), SPEC)
    each = storage.store_bytes(*planned["phase_buffer"])
    monkeypatch.setattr(storage, "available_memory", lambda: 3 * each)
    learn(tiny(), ENV, 64, seeds=2, train=False)
    with pytest.raises(tl.SpaceError, match=r"for each of 2 members, twice while the members are stacked"):
        learn(tiny(), ENV, 64, seeds=2, together=True, train=False)


@pytest.mark.sample("disk")
def test_what_a_run_has_written_is_room_that_it_has(away, monkeypatch):
    _, _, run = away
    lies = sum(path.stat().st_size for path in (run.folder / "phase_buffer").rglob("*.npy"))
    each = run._engine._offloaded._stores[0]["phase_buffer"]
    needed = 4 * 2 * each.capacity * each.segment_bytes
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, needed - lies))
    assert 0 < lies < needed
    assert tl.load(run.folder).finished
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, needed - lies - 1))
    with pytest.raises(tl.SpaceError, match="4 times because"):
        tl.load(run.folder)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"phase_buffer": "dish"}, "phase_buffer = 'dish': did you mean 'disk'"),
        ({"phase_buffer": "disk"}, "phase_buffer = 'disk' needs a run folder"),
        ({"phase_buffer": "host", "phase_buffer_limit": -1.0}, "expected a number of GB above 0"),
        ({"phase_buffer_limit": "1"}, "phase_buffer_limit = '1': expected a number"),
        ({"phase_buffer": "host", "together": True}, "members under one vmap"),
        ({"phase_buffer": "host", "algorithm": tl.PPO()}, "stores no segments between phases"),
        (
            {"phase_buffer": "host", "algorithm": tl.OffPolicyPPG()},
            "OffPolicyPPG with these settings stores no segments",
        ),
    ],
)
def test_places_that_cannot_be_are_refused(settings, said):
    algorithm = settings.pop("algorithm", tiny())
    with pytest.raises(tl.ConfigError, match=said):
        learn(algorithm, ENV, 128, **settings, train=False)


def test_a_run_says_where_its_memory_lies_and_how_large_it_is(tmp_path):
    (note,) = [n for n in begin("disk", tmp_path / "run").notes() if "phase buffer" in n]
    assert "takes 6.0 kB on disk in" in note or "kB on disk in" in note
    assert "at most two blocks of" in note


def test_a_phase_may_neither_conclude_nor_empty_its_store(monkeypatch):
    monkeypatch.setattr(depot_visits, "_update", lambda index, updates, inputs, learner, store: [*learner, updates])
    phase = SimpleNamespace(prepare=None, conclude=None, empties=False)
    inputs = SimpleNamespace(algorithm=SimpleNamespace(phases=lambda: [phase]))
    step = SimpleNamespace(begin=[True], end=[True], updates=[3])
    assert depot_visits.run_phase(0, step, inputs, [1], SimpleNamespace()) == [1, 3]
    cleared = []
    phase.empties = True
    depot_visits.run_phase(0, step, inputs, [1], SimpleNamespace(clear=lambda: cleared.append(True)))
    assert cleared == [True]


def test_a_run_over_a_log_has_no_pieces(log):
    engine = tl.fit(tl.BC(hidden=(8,), embedding=2, batch_size=32), log, 2, train=False)._engine
    assert engine.piece_names() == []
    engine.restore_pieces([])
