"""The default limits on support are those that the kept studies chose."""

from benchmarks.keep import kept
from tidelog import Limits


def test_the_defaults_are_the_chosen_ones():
    chosen = kept("calibration_limits")["chosen"]
    assert {name: getattr(Limits(), name) for name in chosen} == chosen


def test_the_number_of_carrying_episodes_is_the_chosen_one():
    found = kept("choose_carrying")
    assert Limits().carrying_episodes == found["chosen"]
    keeping = {one["least"]: one["keeps"] for one in found["tried"]}
    assert not any(keeps for least, keeps in keeping.items() if least < found["chosen"]), "no smaller number keeps it"
