"""Single refusals of the NumPy runtime: damaged artefacts, wrong arrays, and what an error proposes."""

import json
import re
import sys

import numpy as np
import pytest

from tests.runtime.cases import listing, policy
from tests.runtime.test_hostile import members_of, zipped
from tidelog import ConfigError, SpecError
from tidelog.errors import CheckpointError
from tidelog.runtime import artefact
from tidelog.runtime.artefact import MANIFEST, ONNX, SIGNATURE, WEIGHTS, SavedPolicy
from tidelog.runtime.observations import _as_numbers, _codes, _from_columns, _named
from tidelog.runtime.ranking import RankingFunctions, fit_histories
from tidelog.runtime.recommender import SKIP, Histories, Vocabulary
from tidelog.runtime.way_of_acting import LabelledActions
from tidelog.types import Catalogue, Discrete, HistoryArrays, Image, Spec, Vector

PAIR = np.asarray([[0, 1], [2, 1]])
ANY = Spec({"x": Vector(2)}, Discrete(2))


def histories(items=PAIR, events=PAIR, allowed=None, users=None, index=None):
    """What a policy of three items, two kinds of events, three features and three known users reads."""
    table, no = np.zeros((4, 2)), lambda *_: None
    functions = RankingFunctions(table, no, no, None, 5, 2, 3, 1, 0.0, 0.0, known_users=3)
    return fit_histories(HistoryArrays(items, events, users, index), functions, allowed)


def test_histories_are_padded_and_nothing_is_known_where_nothing_is_said():
    read = histories()
    assert read.items.tolist() == read.events.tolist() == [[0, 0, 0, 0, 1], [0, 0, 0, 2, 1]]
    assert read.users.tolist() == [[0.0] * 3] * 2
    assert read.user_index.tolist() == [0, 0]
    told = histories(index=np.array([0, 3]), users=np.ones((2, 3)))
    assert told.user_index.tolist() == [0, 3]
    assert told.users.tolist() == [[1.0] * 3] * 2


REFUSED = {
    "shapes": (lambda: histories(PAIR[0]),
               "histories and events have shapes (2,) and (2, 2): expected [B, H]. fix: resh"),
    "no history": (lambda: histories(PAIR[:0], PAIR[:0]), "no history: expected at least one. fix: pass a history"),
    "an item too many": (lambda: histories(PAIR * 2),
                         "histories have 4: expected item indices 0 (none) to 3. fix: use these"),
    "an event too many": (lambda: histories(events=PAIR * 2),
                          "events have 4: expected kinds 0 (none) to 2. fix: use these"),
    "padding": (lambda: histories(events=np.ones((2, 2), int)),
                "items and events have different padding. fix: one kind"),
    "a mask": (lambda: histories(allowed=np.ones((2, 3), bool)),
               "allowed has shape [2, 3]: expected [2, 4]. fix: reshape it"),
    "users": (lambda: histories(users=np.ones((2, 1))),
              "users have shape [2, 1]: expected finite [2, 3]. fix: reshape the"),
    "infinite users": (lambda: histories(users=np.full((2, 3), np.inf)), "expected finite [2, 3]. fix: reshape them"),
    "a user too many": (lambda: histories(index=np.array([4, 0])), "expected [2] of 0 (unknown) to 3"),
    "a user below": (lambda: histories(index=np.array([-1, 0])), "expected [2] of 0 (unknown) to 3"),
    "one user": (lambda: histories(index=np.array([1])), "expected [2] of 0 (unknown) to 3"),
    "no items": (lambda: Vocabulary(ANY),
                 "this policy has actions, not items to rank. fix: call it with an observation"),
    "no names": (lambda: _named({"a": np.ones(1)}, {"x": Vector(2), "y": Vector(1)}),
                 "the log has no feature names. fix: pass arrays for x, y"),
    "a picture": (lambda: _from_columns({}, Image(2, 2, 1)),
                  "a picture is not a column. fix: pass it as an array [B, height, width, channels]"),
    "text": (lambda: _as_numbers(np.asarray([1, "a"], object), "age"),
             "'age' has text: expected numbers. fix: convert it"),
    "objects": (lambda: _as_numbers(np.asarray([1, {}], object), "age"), "'age': expected numbers ("),
    "codes": (lambda: _codes(np.asarray([1, {}], object), "ward", 3, ()), "'ward': expected codes 0 to 2 ("),
    "a label as a flag": (lambda: bool(LabelledActions(np.asarray([1]), ("a", "b"))),
                          "an action is a label, neither true nor false. fix: compare it, as in action == 'label'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(SpecError, match=re.escape(words)):
        call()


def test_events_need_one_list_for_each_history():
    with pytest.raises(SpecError, match=r"2 histories with 1 lists of events\. fix: pass one list per history"):
        listing("lists, mean").recommend(Histories([[], []], events=[[]]))


def test_an_unknown_item_of_a_large_catalogue_is_guessed_or_passed_over():
    spec = listing("lists, mean").spec
    ids = tuple(f"item {n}" for n in range(60))
    many = Vocabulary(Spec(spec.observation, Catalogue(ids)))
    for vocabulary, item, found, fix in (
        (Vocabulary(spec), "i33", "history 0 has the unknown item 'i33'; ", ""),
        (many, "item 5x", "history 0 has the unknown item 'item 5x'; did you mean 'item 5'?", SKIP),
        (many, "zzzz", "history 0 has the unknown item 'zzzz'", SKIP),
    ):
        with pytest.raises(SpecError) as raised:
            vocabulary.items([item], "history 0")
        assert raised.value.found.startswith(found)
        assert raised.value.fix == fix
    assert many.items(["zzzz", "item 5"], "history 0", skip=True) == [0, 6]


# Artefacts.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return policy("iql, choice").save(tmp_path_factory.mktemp("whole") / "policy.zip")


def changed(whole, path, change, more=()):
    """A zip with a changed manifest and more members."""
    members = dict(members_of(whole))
    manifest = json.loads(members[MANIFEST])
    change(manifest)
    sums = manifest.pop("files")
    about = {name: value for name, value in manifest.items() if name not in ("kind", "schema", "sha256")}
    members[MANIFEST] = artefact.POLICY.text(about, sums)
    return zipped(path, [*members.items(), *more])


def test_manifests_that_name_other_files_are_refused(whole, tmp_path):
    for name, change, more, words in (
        ("1.zip", lambda m: None, [(ONNX, b"x")], "holds 'policy.onnx', not in its manifest. fix: export it again"),
        ("2.zip", lambda m: m["files"].update(evil={"bytes": 1, "sha256": "0"}), [], "lists the file 'evil'"),
        (
            "3.zip",
            lambda m: m["files"].update({WEIGHTS: {"bytes": "1"}}),
            [],
            "lists 'weights.safetensors': expected names of files in the folder, with bytes and sha256",
        ),
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=re.escape(words)):
            SavedPolicy(changed(whole, tmp_path / name, change, more))


def test_contents_that_differ_from_the_manifest_are_refused(whole, tmp_path):
    saved = SavedPolicy(whole)
    with pytest.raises(CheckpointError, match=r"has no policy\.onnx\. fix: export the policy again"):
        saved.read(ONNX)
    other = changed(whole, tmp_path / "sum.zip", lambda m: m["files"][WEIGHTS].update(sha256="0" * 64))
    with pytest.raises(CheckpointError, match=r"has another checksum than its manifest\. fix: export it again"):
        SavedPolicy(other).read(WEIGHTS)
    members = dict(members_of(whole))
    spaced = zipped(tmp_path / "space.zip", [*{**members, MANIFEST: members[MANIFEST] + b"\n"}.items()])
    with pytest.raises(CheckpointError, match=r"was changed after it was written\. fix: fetch it again"):
        SavedPolicy(spaced).check_bytes()


def test_files_that_are_too_large_are_not_read(whole, tmp_path, monkeypatch):
    folder = policy("iql, choice").save(tmp_path / "policy")
    (folder / SIGNATURE).write_bytes(b"x" * (artefact.LARGEST_KEY + 1))
    with pytest.raises(CheckpointError, match=r"bytes: it is not a signature\. fix: sign it again"):
        SavedPolicy(folder).signature()
    monkeypatch.setattr(artefact, "LARGEST", 100)
    with pytest.raises(CheckpointError, match=r"manifest\.json has [\d,]+ bytes, at most 100\. fix: export it again"):
        SavedPolicy(whole)


def test_a_manifest_that_is_too_deep_is_refused(whole, monkeypatch):
    def deep(saved):
        raise RecursionError

    monkeypatch.setattr(SavedPolicy, "_check_fields", deep)
    with pytest.raises(CheckpointError, match=r"manifest\.json is nested too deeply\. fix: export the policy again"):
        SavedPolicy(whole)


# Packages.


def test_without_the_extra_signatures_name_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ConfigError, match=r"signatures need the package cryptography\. fix: pip install 'cryptography"):
        artefact._key(tmp_path / "key.pem", private=True)
