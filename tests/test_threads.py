"""Limits of native libraries: the last Python thread to leave gives back what the first one found."""

import dataclasses

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import tidelog as tl
from tidelog._machine import one_thread
from tidelog.ope import networks as ope_networks
from tidelog.ope import propensities
from tidelog.ope.decide import Limits
from tidelog.ope.estimators import Estimates
from tidelog.ope.verdict import Verdicts

OTHER_DATA = {"learnt_from": "other data", "ledger": False, "limits": Limits(replicates=1000), "progress": False}


def numbers(episodes, seed):
    """A log with numbers as observations."""
    generator, rows = np.random.default_rng(seed), episodes * 2
    return tl.Log.from_arrays(
        observation=generator.standard_normal((rows, 3)).astype(np.float32), action=generator.integers(0, 3, rows),
        reward=generator.standard_normal(rows), terminated=np.arange(rows) % 2 == 1, episode=np.arange(rows) // 2,
        propensity=np.full(rows, 1 / 3), actions=3,
    )  # fmt: skip


def networks(episodes):
    """A log, and two policies near its behaviour policy that learnt from another log."""
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
    return list(map(bits, found)) if isinstance(found, list | tuple | Verdicts | Estimates) else repr(found)


def threads():
    """The threads of NumPy's linear algebra."""
    np.linalg.qr(np.eye(2))
    return {one["num_threads"] for one in ThreadpoolController().info() if one["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several():
    with threadpool_limits(2, "blas"):
        if threads() != {2}:
            pytest.skip("this NumPy has one thread")
        yield


def test_a_limit_ends_with_its_block_also_after_an_error():
    @one_thread("blas")
    def wrong():
        raise ValueError(*threads())

    with pytest.raises(ValueError, match="1"):
        wrong()
    assert threads() == {2}


def test_the_limit_of_overlapping_blocks_ends_with_the_last():
    first, second = one_thread("blas"), one_thread("blas")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == {2}


def test_a_verdict_does_not_depend_on_numpys_threads(monkeypatch):
    monkeypatch.setattr(ope_networks, "FEWEST", 200)
    monkeypatch.setattr(propensities, "FEWEST", 200)
    log, policies = networks(500)
    several = tl.judge(policies, log, sample=True, **OTHER_DATA)
    assert threads() == {2}
    with threadpool_limits(1, "blas"):
        assert bits(tl.judge(policies, log, sample=True, **OTHER_DATA)) == bits(several)
