"""Options are listed once: verbs take them by name with the same defaults, and flags are made of them."""

import dataclasses
import inspect
from typing import Unpack, get_type_hints

import msgspec
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tidelog.cli.flags import flag_names, verb_flags
from tidelog.errors import ConfigError
from tidelog.training import options
from tidelog.training.options import Options, options_of

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
    words = rf"^{verb} has no option 'evry': did you mean 'every'\? fix: help\(.*\.{keywords.__name__}\) describes all"
    algorithm = tl.PPG() if verb == "learn" else tl.BC()
    source = "treatment" if verb == "learn" else world("discrete")
    first = (tl.fit(tl.BC(), source, 1, train=False), "treatment") if verb == "finetune" else (algorithm, source)
    with pytest.raises(ConfigError, match=words):
        call(*first, 10, evry=5)


def test_an_option_of_another_verb_is_named_with_it():
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
    before = Options(steps=10, seeds=(0, 3), every=5, evaluate={"treatment": 2}, held_out=0.2, scale="standard")
    assert msgspec.json.decode(msgspec.json.encode(before), type=Options) == before
