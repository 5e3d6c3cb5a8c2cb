"""Policies that rank items: NumPy and onnxruntime return JAX's lists; invalid files are refused."""

import json
from functools import cache

import numpy as np
import pytest

from tests.algorithms.recommenders import described
from tests.runtime.cases import LISTS, ONNX, WITHOUT, listing
from tidelog import SpecError, runtime
from tidelog.errors import CheckpointError
from tidelog.policies import export as onnx
from tidelog.policies.export import LoggedObservations, export, random_masks, random_observations, recheck
from tidelog.runtime.artefact import WEIGHTS, SavedPolicy, write
from tidelog.runtime.ranking import FoundItems, order_found
from tidelog.runtime.recommender import Histories

TRACED = ("lists, gru", "lists, users", "lists, attention", "lists, imagined", "lists, plain")
HISTORIES = [[], ["i3"], ["i1", "i2", "i1"], [f"i{n % 10}" for n in range(14)]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """By its name, a case's folder, with the ONNX file where the nodes differ, and the measured parity."""
    place = tmp_path_factory.mktemp("lists")

    @cache
    def made(name):
        whole = listing(name)
        known = "user_id" in whole.spec.observation  # of 16 users
        kept = LoggedObservations.of(described(16 if known else 48), whole)  # padded to 256 rows as the random ones
        return place / name, export(whole, place / name, onnx=ONNX and name in TRACED, logged=kept)

    return made


@pytest.mark.sample("lists, mean")
@pytest.mark.parametrize("name", LISTS)
def test_numpy_and_onnx_list_as_jax_does(name, exported):
    path, record = exported(name)
    assert record["rows"]["random"] == 256
    assert record["rows"]["logged"] > 50
    readers = ("numpy", "onnx") if ONNX and name in TRACED else ("numpy",)
    assert set(record) == {"bound", "rows", *readers}
    for reader in readers:
        for seen in ("random", "logged"):
            assert record[reader][seen]["difference"] < 2e-4, (
                reader,
                seen,
            )  # two equal ratings apart by rounding, standardised
            assert record[reader][seen]["apart"] <= 0.005, (reader, seen)
    assert recheck(path)["numpy"]["holds"]


@pytest.mark.sample("lists, mean")
@pytest.mark.parametrize("name", LISTS)
def test_the_same_call_gives_the_same_lists(name, exported):
    whole, plain = listing(name), runtime.load(exported(name)[0])
    for choices in ({}, {"candidates": [f"i{n}" for n in range(6)], "exclude": ["i5"], "exclude_seen": False}):
        k = 3 if choices else 1
        shown = HISTORIES if choices else HISTORIES[:3]
        one, two = whole.recommend(shown, k, **choices), plain.recommend(shown, k, **choices)
        np.testing.assert_array_equal(one.items, two.items)
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-4)
    told = Histories([["i1", "i2"]], events=[["click", "buy"]])
    assert plain.recommend(told, 3).items.tolist() == whole.recommend(told, 3).items.tolist()
    with pytest.raises(SpecError, match="history 0 has the unknown item 'i77'"):
        plain.recommend([["i77"]])
    with pytest.raises(SpecError, match=r"ranks items of a catalogue. fix: call policy\.recommend"):
        plain({"history": [1]})
    assert not plain.is_recurrent


@pytest.mark.sample("lists, gru")
@pytest.mark.skipif(not ONNX, reason=WITHOUT)
@pytest.mark.parametrize("name", TRACED)
def test_the_file_alone_is_enough_for_onnxruntime(name, exported):
    """No mask: all items; a mask of fewer items than a list is long: it ends in 0."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(exported(name)[0] / "policy.onnx", options)
    assert ("user" in {one.name for one in session.get_overridable_initializers()}) == (name != "lists, plain")
    reach = 6 if name == "lists, plain" else 8  # events that it reads or that have places
    history = np.zeros((2, reach), np.int32)
    history[0, -2:] = 2, 3
    spec = json.loads(session.get_modelmeta().custom_metadata_map["tidelog"])["spec"]
    kinds = spec["observation"]["history"]["events"]  # the file's own names of its numbers
    event = np.where(history == 2, kinds.index("click") + 1, np.where(history == 3, kinds.index("buy") + 1, 0))
    feeds = {"history": history, "event": event.astype(np.int32)}
    item, score = session.run(["item", "score"], feeds)
    wanted = listing(name).recommend(
        Histories([["i1", "i2"], []], events=[["click", "buy"], []]),
        item.shape[1],
        exclude_seen=False,
    )
    ids = np.asarray(spec["action"]["ids"])
    np.testing.assert_array_equal(ids[item - 1], wanted.items)
    np.testing.assert_allclose(score, wanted.scores, atol=1e-4)
    mask = np.zeros((2, 10), bool)
    mask[:, [4, 7]] = True
    item, score = session.run(["item", "score"], {**feeds, "mask": mask})
    assert [set(row[:2]) for row in item.tolist()] == [{5, 8}, {5, 8}]
    assert (item[:, 2:] == 0).all()
    assert np.isneginf(score[:, 2:]).all()


@pytest.mark.sample("lists, gru")
@pytest.mark.parametrize("name", [name for name in LISTS if name != "lists, plain"])  # it reads no features of users
def test_who_a_user_is_changes_lists_alike_in_every_reader(name, exported):
    whole, plain = listing(name), runtime.load(exported(name)[0])
    users = [{"age": 245, "plan": "paid", "likes": ["a", "b"]}, {"age": 20.0, "plan": "free"}, None]
    told = {reader: reader.recommend(Histories([["i1"]] * 3, users=users), 4) for reader in (whole, plain)}
    for made in told.values():
        np.testing.assert_array_equal(made.items, told[whole].items)
        np.testing.assert_allclose(made.scores, told[whole].scores, atol=1e-4)
    assert np.abs(told[plain].scores[0] - told[plain].scores[1]).max() > 1e-3
    unknown = plain.recommend(Histories([["i1"]] * 3), 4)
    np.testing.assert_array_equal(unknown.scores[2], told[plain].scores[2])


def test_a_reader_of_other_users_is_refused(exported, tmp_path):
    saved = SavedPolicy(exported("lists, gru")[0])
    kept = {key: value for key, value in saved.manifest.items() if key not in ("kind", "schema", "files")}
    about = kept["spec"]["observation"]["user"]
    for name, wrong, said in (
        ("fewer", {field: values[:-1] for field, values in about.items() if field != "kind"}, "user features"),
        ("none", {"mean": []}, "is invalid"),
        ("flat", {"spread": [0.0] * len(about["spread"])}, "is invalid"),
    ):
        changed = json.loads(json.dumps(kept))
        changed["spec"]["observation"]["user"] |= wrong
        write(tmp_path / name, {WEIGHTS: saved.read(WEIGHTS)}, changed | {"onnx": None})
        with pytest.raises(CheckpointError, match=said):
            runtime.load(tmp_path / name)


@pytest.mark.full
def test_unsupported_items_come_last_in_the_file_as_they_do_here():
    """Their scores are lowered to the least supported one's, and they still rank after it."""
    generator = np.random.default_rng(3)
    found = np.stack([generator.permutation(12) + 1 for _ in range(2000)]).astype(np.int32)
    likelihood, rating = generator.standard_normal((2, 2000, 12)).astype(np.float32)
    first = generator.random((2000, 12)) < 0.4
    first[:, -1] = True
    wanted, scores = order_found(FoundItems(found, likelihood, rating, first), 12, 2.0)
    assert (np.diff(scores, axis=1) <= 0).all()
    score = likelihood + np.where(first, np.float32(2.0) * rating, 0.0).astype(np.float32)
    items, made = onnx._order_lists(found, score, first, np.ones_like(first), 12)
    np.testing.assert_array_equal(items, wanted)
    np.testing.assert_allclose(made, scores, atol=1e-5)
    assert (np.diff(made, axis=1) <= 0).all()


def test_random_histories_are_of_every_length_and_masks_leave_a_list():
    whole = listing("lists, gru")
    seen, mask = random_observations(whole), random_masks(whole)
    lengths = (seen["items"] > 0).sum(axis=1)
    assert (lengths == 0).any()
    assert (lengths == seen["items"].shape[1]).any()
    np.testing.assert_array_equal(seen["items"] > 0, seen["events"] > 0)
    assert mask[:, 1:].sum(axis=1).min() >= 4
    assert not mask[:, 0].any()


def test_other_interactions_are_no_log_of_the_policy(exported):
    from dataclasses import replace

    renamed = replace(described(), items=np.asarray([f"j{n}" for n in range(10)]))
    with pytest.raises(SpecError, match="have other items, events or users than the policy's"):
        LoggedObservations.of(renamed, listing("lists, gru"))
