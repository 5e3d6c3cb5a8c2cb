"""Options are listed once: verbs take them by name with the same defaults, and flags are made of them."""

import dataclasses
import inspect

import msgspec
import pytest

import tidelog as tl
from tidelog.cli.flags import flag_names, verb_flags
from tidelog.errors import ConfigError
from tidelog.training.options import Options, options_of

VERBS = {"fit": tl.fit, "learn": tl.learn, "finetune": tl.finetune}
OWN = {
    "algorithm",
    "log",
    "env",
    "run",
    "out",
    "overwrite",
    "sinks",
    "start",
    "progress",
    "train",
    "on",
    "insecure",
}  # of verbs, not of runs
MADE = {
    "evaluate": None,
    "scale": None,
    "selection_share": None,
    "seeds": 1,
    "every": None,
}  # resolved before they become options
MIX = {"offline": 0.5, "updates": 1.0, "collect_every": 10, "restart_schedules": False}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_its_options_by_name(verb):
    taken = inspect.signature(VERBS[verb]).parameters
    listed = {one.name: one for one in options_of(verb)}
    assert set(taken) - OWN == set(listed)
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in taken.values())
    for name, one in listed.items():
        default = {**MADE, **MIX}.get(name, one.default)
        if default is not dataclasses.MISSING:
            assert taken[name].default == default, name


@pytest.mark.parametrize("verb", VERBS)
def test_flags_are_made_of_options(verb):
    @dataclasses.dataclass(kw_only=True)
    class Base:
        """Flags."""

    made = set(flag_names(verb_flags(verb, Base)))
    assert made == {one.name for one in options_of(verb) if one.metadata["flag"] is not None}
    assert all(one.metadata["help"] for one in options_of(verb))


def test_options_survive_json():
    options = Options(steps=10, seeds=(0, 3), every=5, evaluate={"treatment": 2}, held_out=0.2, scale="standard")
    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps = 0: expected 1 to"),
        ({"held_out": 1.0}, r"held_out = 1.0: expected a share of the episodes in \[0, 1\)"),
        ({"patience": 2}, "patience needs best="),
        ({"scale": "minmax"}, "scale = 'minmax': expected 'standard' or 'none'"),
        ({"split_seed": -1}, r"split_seed = -1: expected at least 0\. fix: use split_seed=0"),
        ({"keep": 0}, "keep = 0: expected at least 1 checkpoint"),
    ],
)
def test_impossible_options_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Options(**{"steps": 10, "seeds": (0,), "every": 5, **changes})
