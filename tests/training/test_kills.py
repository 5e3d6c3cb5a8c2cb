"""Killed at random moments and resumed, to the last bit: `pytest -m slow`."""

import pytest

from benchmarks import kills

pytestmark = pytest.mark.slow


def test_runs_killed_twenty_times_end_bit_equal() -> None:
    found = kills.study(300.0)
    assert found["kills"] >= 20
    assert found["equal"]
