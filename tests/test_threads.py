"""Limits of native libraries: the last Python thread to leave gives back what the first one found."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import tidelog as tl
from tests.ope.test_fit_jobs import OTHER_DATA, bits, networks
from tidelog.threads import one_thread


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


def test_a_verdict_does_not_depend_on_numpys_threads():
    log, policies = networks(500)
    several = tl.judge(policies, log, sample=True, **OTHER_DATA)
    assert threads() == {2}
    with threadpool_limits(1, "blas"):
        assert bits(tl.judge(policies, log, sample=True, **OTHER_DATA)) == bits(several)
