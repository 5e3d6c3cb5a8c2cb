"""Training and judging state what they need, and are refused before anything is taken or written."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from tests.algorithms.players import ENV, tiny
from tests.ope.cases import QUICK
from tests.ope.noise import noise, random_policies
from tests.runtime.cases import listing
from tests.training.runs import bc, begin, finish
from tidelog import IQL, PPG, _machine, collect, finetune, fit, judge, learn, load_run
from tidelog.envs.functional import CopyStep
from tidelog.envs.registry import functional
from tidelog.errors import MemoryLimitError
from tidelog.ope import ledger as ledgers
from tidelog.training import stores
from tidelog.training.loop import planned_stores
from tidelog.types import Discrete, Image, Spec


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


def limited(monkeypatch, size):
    monkeypatch.setattr(stores, "PROGRAMS", 0)
    monkeypatch.setattr(stores, "available_memory", lambda: size)
    monkeypatch.setattr(_machine, "available_memory", lambda: size)


def test_a_log_that_does_not_fit_is_refused_before_the_run_folder(origin, tmp_path, monkeypatch):
    size = sum(column.nbytes for column in origin.columns().values())
    limited(monkeypatch, 2 * size)
    with pytest.raises(MemoryLimitError, match=r"training needs at least .* memory_map=True, use fewer rows"):
        begin(bc(), origin, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    limited(monkeypatch, 4 * size + 100_000)
    begin(bc(), origin, tmp_path / "run")


def test_networks_that_do_not_fit_are_refused_before_they_exist(origin, tmp_path, monkeypatch):
    limited(monkeypatch, 2_000_000_000)
    before = len(jax.live_arrays())
    for wide in ((20_000, 20_000), (2**31 - 1, 2**31 - 1)):
        with pytest.raises(MemoryLimitError, match=r"1 member.*smaller networks"):
            begin(bc(hidden=wide), origin, tmp_path / "run")
    with pytest.raises(MemoryLimitError, match="smaller networks"):
        learn(PPG(hidden=(20_000, 20_000)), "jax:CartPole-v1", 64, out=tmp_path / "run", train=False)
    assert len(jax.live_arrays()) <= before + 2
    assert not (tmp_path / "run").exists()


def test_compiled_programs_count(origin, tmp_path, monkeypatch):
    limited(monkeypatch, 10**9)
    monkeypatch.setattr(stores, "PROGRAMS", 10**9)
    with pytest.raises(MemoryLimitError, match=r"1\.0 GB for compiled programs"):
        begin(bc(), origin, tmp_path / "run")


def test_a_network_counts_its_weights_and_both_moments_of_the_optimiser(origin):
    weights = 3_000 * 3_000
    found = stores.state_bytes(bc(hidden=(3_000, 3_000)), origin.spec)
    assert 3 * 4 * weights < found < 3.2 * 4 * weights


def test_a_run_that_does_not_fit_any_more_is_not_resumed_and_stays(origin, tmp_path, monkeypatch):
    finish(begin(bc(), origin, tmp_path / "run"))
    names = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    limited(monkeypatch, 1_000)
    with pytest.raises(MemoryLimitError, match="nothing was written"):
        load_run(tmp_path / "run", origin)
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == names


def test_segments_that_do_not_fit_are_refused_with_the_numbers_before_the_run_folder(tmp_path, monkeypatch):
    limited(monkeypatch, 5 * 10**9)
    algorithm = PPG(hidden=(4,), convolutions="small")  # the shapes of the paper
    said = r"take 6\.\d GB, 6\.\d GB in total; the largest is 'phase_buffer' with 6\.\d GB; but this machine has 5\.0"
    with pytest.raises(MemoryLimitError, match=said):
        learn(algorithm, Pictures(), 10**6, out=tmp_path / "run", train=False)
    assert not list(tmp_path.iterdir())


def test_stacked_members_take_their_stores_twice(monkeypatch):
    spec = functional(ENV).spec
    planned = planned_stores(tiny(), tiny().init(spec, jax.random.key(0), 1), spec)
    each = sum(stores.store_bytes(*one) for one in planned.values())
    monkeypatch.setattr("tidelog.training.learn.check_memory", lambda *args: None)
    limited(monkeypatch, 3 * each)
    stores.check_segments(planned, 2, stacked=False)
    stores.check_segments(planned, 3, stacked=False)
    with pytest.raises(MemoryLimitError, match=r"for each of 4 members, .* in total"):
        stores.check_segments(planned, 4, stacked=False)
    with pytest.raises(MemoryLimitError, match=r"for each of 2 members, twice while the members are stacked"):
        learn(tiny(), ENV, 64, seeds=2, vmap=True, train=False)


def test_judging_that_does_not_fit_is_refused_before_a_look_is_recorded(tmp_path, monkeypatch):
    log = noise()
    limited(monkeypatch, 1_000)
    with pytest.raises(MemoryLimitError, match=r"judging 1 policies .* nothing was recorded\. fix: judge fewer"):
        judge(random_policies(1)[0], log, limits=QUICK, ledger=tmp_path / ledgers.FILE, progress=False)
    assert not (tmp_path / ledgers.FILE).exists()


def test_fine_tuning_that_does_not_fit_is_refused_before_the_run_folder(tmp_path, monkeypatch):
    run = fit(IQL(hidden=(8,), batch_size=16), collect("treatment", episodes=20, seed=0), 1, progress=False)
    limited(monkeypatch, 1_000)
    with pytest.raises(MemoryLimitError, match="nothing was written"):
        finetune(run, "treatment", 8, out=tmp_path / "run", train=False)
    assert not (tmp_path / "run").exists()


def test_lists_that_do_not_fit_are_refused(monkeypatch):
    policy = listing("lists, mean")
    few = policy.recommend([["i1"]], 2)
    monkeypatch.setattr(_machine, "available_memory", lambda: 10_000)
    with pytest.raises(MemoryLimitError, match=r"1,000 lists of 2 items: .*\. fix: recommend to fewer users"):
        policy.recommend([["i1"]] * 1_000, 2)
    assert policy.recommend([["i1"]], 2).items.tolist() == few.items.tolist()
