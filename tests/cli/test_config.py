"""A run folder holds `run.toml`; `tidelog train --config` with it gives the same weights."""

import json

import pytest

import tidelog as tl
from tests.cli.conftest import SMALL
from tidelog.algorithms.hyperparameters import groups_of
from tidelog.algorithms.names import configured, learns_online, names, ranks
from tidelog.cli.flags import flag_names, parse, read_config
from tidelog.cli.train import flags_of, write_settings
from tidelog.policies.policy import fingerprint

OWN = {"out", "overwrite", "config", "preset"}


def weights(folder):
    """The weights of every member, in the order of the members."""
    run = tl.load_run(folder)
    return [fingerprint(run.policy(member=one.index).params) for one in run.members]


def test_the_file_repeats_a_run_of_a_table(run, here, tidelog):
    trained = tidelog("train", "bc", "--config", run / "run.toml", "--out", "again", "--quiet")
    assert trained.code == 0, trained.said
    assert weights("again") == weights(run)
    first, second = (json.loads((folder / "run.json").read_text()) for folder in (run, here / "again"))
    assert (first["configs"], first["options"]) == (second["configs"], second["options"])
    assert (here / "again" / "run.toml").read_bytes() == (run / "run.toml").read_bytes()


def test_flags_that_were_set_are_in_it(clinic, here, tidelog):
    words = ["--held-out", 0.4, "--best-metric", "max:entropy", "--patience", 9, "--dropout", 0.1, "--scale", "none"]
    words += ["--learning-rate", 0.01, "--data-share", 0.9, "--split-seed", 3, "--evaluate", "treatment=2"]
    columns = ["--data", here / "visits.csv", "--columns", "columns.toml"]
    trained = tidelog("train", "bc", *columns, "--steps", 10, "--out", "one", "--quiet", *words, *SMALL)
    assert trained.code == 0, trained.said
    text = (here / "one" / "run.toml").read_text()
    for line in ("held_out = 0.4", 'best_metric = "max:entropy"', "patience = 9", "dropout = 0.1", 'scale = "none"',
                 "learning_rate = 0.01", "data_share = 0.9", "split_seed = 3", "hidden = [8, 8]", "judge = false",
                 'evaluate = ["treatment=2"]', f'data = ["{here / "visits.csv"}"]', 'preset = "none"'):  # fmt: skip
        assert f"{line}\n" in text, line
    again = ["train", "bc", "--config", "one/run.toml", "--out", "two", "--quiet"]
    assert tidelog(*again).code == 0
    assert weights("one") == weights("two")
    changed = tidelog(*again[:-2], "three", "--quiet", "--steps", 4)
    assert changed.code == 0
    assert tl.load_run("three").record.options.steps == 4


@pytest.mark.parametrize("name", [*names("a log"), *names("interactions"), *names("an environment")])
def test_settings_of_every_algorithm_are_the_same_flags_again(name, tmp_path):
    cls, settings = configured(name)
    source = ["--env", "treatment"] if learns_online(cls) else ["--data", "a.csv", "b.csv", "--data", "c.csv"]
    source += ["--user", "u", "--item", "i", "--time", "t", "--reward", "buy=2", "view=0.5"] if ranks(cls) else []
    flags = flags_of(cls)
    none = [one.name for group in groups_of(cls).values() for one in group if one.metadata["optional"] and one.default]
    words = [*source, "--steps", "7", "--seeds", "2", *(f"--{one.replace('_', '-')}=None" for one in none)]
    options = parse(flags, [*words, *(["--hidden"] if name == "bc" else [])], "train", settings)
    write_settings(cls, options, tmp_path)
    again = parse(flags, read_config(str(tmp_path / "run.toml"), flags), "train", settings)
    assert again.preset == "none"
    for one in set(flag_names(flags)) - {*OWN, "data"}:
        assert getattr(again, one) == getattr(options, one), one
    if not learns_online(cls):
        assert again.data == (("a.csv", "b.csv", "c.csv"),)
