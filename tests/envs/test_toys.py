import numpy as np
import pytest

from tidelog.envs.protocol import play
from tidelog.envs.tabular import PointMass
from tidelog.errors import SpecError


@pytest.mark.parametrize("size", [1, 2])
def test_the_best_controller_earns_the_best_return(size):
    def act(observed, generator):
        return PointMass.best(observed.observation["observation"]), None

    played = play(PointMass(6, size), act, episodes=12, seed=2)
    starts = played.observation["observation"][::20]
    assert played.lengths.tolist() == [20] * 12
    np.testing.assert_allclose(played.returns, PointMass.best_return(starts), atol=1e-4)
    assert played.truncated.sum() == 12
    assert not played.terminated.any()


def test_the_best_return_by_hand():
    # From 0.5: 0.3, 0.1, 0 are left.
    assert PointMass.best_return(np.array([[0.5]])) == pytest.approx(-0.10)
    assert PointMass.best(np.array([[0.5], [-0.1]])).tolist() == [[-1.0], [0.5]]


def test_bounds_cut_and_shapes_are_checked():
    environment = PointMass(1)
    start = environment.reset(0).observation["observation"]
    moved = environment.step(np.array([[7.0]])).next_observation.observation["observation"]
    assert moved - start == pytest.approx(0.2, abs=1e-6)
    for action in (np.zeros(1), np.array([[np.nan]])):
        with pytest.raises(SpecError):
            environment.step(action)
