"""Options are listed once: verbs take them by name with the same defaults, and flags are made of them."""

import dataclasses
import inspect
import json
from typing import Unpack, get_type_hints

import msgspec
import pytest

import tidelog as tl
from tests.algorithms.worlds import world
from tests.training.runs import write_record
from tidelog.cli import main
from tidelog.cli.flags import flag_names, verb_flags
from tidelog.errors import ConfigError
from tidelog.schema import RENAMED
from tidelog.training import options
from tidelog.training.options import Options, options_of
from tidelog.training.record import Record

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
    words = rf"^{verb} has no option 'eval_evry': did you mean 'eval_every'\? fix: help\(.*\.{keywords.__name__}\)"
    algorithm = tl.PPG() if verb == "learn" else tl.BC()
    source = "treatment" if verb == "learn" else world("discrete")
    first = (tl.fit(tl.BC(), source, 1, train=False), "treatment") if verb == "finetune" else (algorithm, source)
    with pytest.raises(ConfigError, match=words):
        call(*first, 10, eval_evry=5)


OLD = [old for old, new in RENAMED.items() if new in {one.name for one in dataclasses.fields(Options)}]


@pytest.mark.parametrize("old", OLD)
def test_an_option_of_earlier_versions_is_refused_with_its_new_name_and_read_in_files(old, tmp_path, capsys):
    log, new = world("discrete"), RENAMED[old]
    with pytest.raises(ConfigError, match=rf"^fit has no option '{old}'\. fix: write {new}$"):
        tl.fit(tl.BC(), log, 10, **{old: 5})
    if new in flag_names(verb_flags("fit", dataclasses.make_dataclass("Flags", []))):
        flag, write = (f"--{name.replace('_', '-')}" for name in (old, new))
        assert main(["train", "bc", "--data", "log", flag, "5"]) == 2
        assert f"{flag} has another name. fix: write {write}" in " ".join(capsys.readouterr().err.split())
    run = tl.fit(tl.BC(hidden=(4,), batch_size=4), log, 2, out=tmp_path / "run", train=False)
    content = json.loads((run.folder / "run.json").read_text())
    content["options"][old] = content["options"].pop(new)
    write_record(run.folder, content)
    assert Record.read(run.folder).options == run.record.options


def test_an_option_of_another_verb_is_named_with_it():
    with pytest.raises(ConfigError, match=r"^fit has no option 'seed': did you mean 'seeds'\?"):
        tl.fit(tl.BC(), world("discrete"), 10, seed=0)
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
    before = Options(steps=10, seeds=(0, 3), eval_every=5, evaluate={"treatment": 2}, held_out=0.2, scale="standard")
    assert msgspec.json.decode(msgspec.json.encode(before), type=Options) == before
