"""Items that the log did not have are ranked by their features, as an item of the log with the same ones would be."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.algorithms.recommenders import described, policy, small
from tests.data.clicks import ROLES, clicks
from tests.runtime.cases import listing
from tidelog import runtime
from tidelog.cli import main
from tidelog.errors import SpecError
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.tables import new_items
from tidelog.types import Spec

TWIN = {"x": float(np.cos(3.0)), "y": "b"}  # the features of i3


@pytest.fixture(scope="module")
def reader():
    """A policy with a tower over item features, whose rows are zeros, as at the start."""
    return policy(small(content=True), described())


def scores(recommender, history, k):
    lists = recommender.recommend([history], k, exclude_seen=False)
    return dict(zip(lists.items[0].tolist(), lists.scores[0].tolist(), strict=True))


def test_a_new_item_has_the_score_of_one_with_its_features(reader):
    more = reader.with_items(["twin", "plain"], [TWIN, {}])
    found = scores(more, ["i1", "i2"], 12)
    assert abs(found["twin"] - found["i3"]) < 1e-5
    assert abs(found["plain"] - found["i3"]) > 1e-3
    assert more.recommend([["twin", "i2"]], 3).items.shape == (1, 3)  # it is in histories too
    assert more.notes()[0] == "known by their features alone, because training never saw them: 2 items"
    assert reader.spec.action.n == 10


def test_items_of_the_log_keep_their_vectors():
    trained = listing("lists, features")
    more = trained.with_items(["twin"], [TWIN]).with_items(["other"], [TWIN])
    before, now = (np.asarray(one.algorithm.all_items(one.params)) for one in (trained, more))
    np.testing.assert_array_equal(now[:11], before)
    np.testing.assert_array_equal(now[11], now[12])
    assert more.notes()[0].endswith("training never saw them: 2 items")


@pytest.mark.parametrize("again", [tl.load_policy, runtime.load])
def test_a_saved_policy_ranks_them_too(reader, again, tmp_path):
    more = reader.with_items(["twin"], [TWIN])
    more.save(tmp_path / "policy")
    saved = again(tmp_path / "policy")
    found, expected = scores(saved, ["i1"], 11), scores(more, ["i1"], 11)
    assert found.keys() == expected.keys()
    assert max(abs(found[name] - expected[name]) for name in found) < 1e-4
    assert saved.notes()[0].endswith("training never saw them: 1 item")


@pytest.mark.parametrize(
    ("ids", "features", "said"),
    [
        (["i3"], [TWIN], "'i3': expected new ids"),
        (["new", "new"], [TWIN, TWIN], "'new': expected new ids"),
        ([7], [TWIN], "7: expected new ids of type str"),
        ([], [], "no item: expected new ids"),
        (["new"], [], "1 new items with 0 features"),
        (["new"], [{"z": 1.0}], r"features\[0\]\['z'\] is an unknown column"),
        (["new"], [{"y": "c"}], "has 'c', unknown in the log"),
        (["new"], [{"x": "one"}], r"expected a number\. fix: convert it, or leave it out"),
    ],
)
def test_what_cannot_be_added_is_named(reader, ids, features, said):
    with pytest.raises(SpecError, match=said):
        reader.with_items(ids, features)


def test_the_columns_of_item_features_are_saved_and_older_folders_lack_them(tmp_path):
    log = described()
    log.save(tmp_path / "log")
    again = Interactions.load(tmp_path / "log")
    assert again.item_profile == log.item_profile
    assert again.spec.action.profile.names == again.feature_names
    assert Spec.from_json(log.spec.to_json()) == log.spec
    assert log.fingerprint() == replace(log, item_profile=None).fingerprint()
    older = log.spec.to_json()
    older["action"].pop("profile")
    assert Spec.from_json(older).action.profile is None
    for wrong in ({"columns": ["x"]}, 3, {**log.spec.to_json()["action"]["profile"], "columns": ["x"]}):
        older["action"]["profile"] = wrong
        with pytest.raises(SpecError, match="invalid"):
            Spec.from_json(older)


def test_the_command_reads_a_table_of_new_items(reader, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    reader.save("policy")
    clicks(users=4).write_csv("clicks.csv")
    pl.DataFrame({"i": ["i3", "new"], "x": [0.5, TWIN["x"]], "y": ["a", "b"]}).write_csv("items.csv")
    words = ["act", "policy", "--data", "clicks.csv", "--user", ROLES["user"], "--item", ROLES["item"]]
    words += ["--time", ROLES["time"], "--exclude-seen", "no", "--k", "11", "--out", "lists.csv"]
    assert main([*words, "--new-items", "items.csv"]) == 0
    assert "because training never saw them: 1 item" in capsys.readouterr().out
    assert pl.read_csv("lists.csv")["i"].value_counts().filter(pl.col("i") == "new")["count"].to_list() == [4]
    pl.DataFrame({"i": ["i3"], "x": [0.5], "y": ["a"]}).write_csv("known.csv")
    assert main([*words, "--overwrite", "--new-items", "known.csv"]) == 2
    assert "has no new item" in capsys.readouterr().err
    with pytest.raises(SpecError, match="does not know how item features are read"):
        new_items(policy(small(), replace(described(), item_profile=None)), "items.csv", "i")
