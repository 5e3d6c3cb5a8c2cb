"""Foreign or damaged files: refused by name, and only with our own errors."""

import io
import json
import stat
import struct
import zipfile

import numpy as np
import pytest
from safetensors import numpy as safetensors

from tests.runtime.cases import listing, policy
from tidelog import SpecError, TidelogError, load_policy, runtime
from tidelog.errors import CheckpointError
from tidelog.runtime.artefact import MANIFEST, POLICY, WEIGHTS, SavedPolicy, write

NAME = "iql, memory"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A zip and its parts: the manifest without checksums, and the weights."""
    path = policy(NAME).save(tmp_path_factory.mktemp("whole") / "policy.zip")
    saved = SavedPolicy(path)
    kept = {name: value for name, value in saved.manifest.items() if name not in ("kind", "schema", "files")}
    return path, json.dumps(kept), saved.read(WEIGHTS)


def read(path):
    """Return whether it was read; other errors than ours fail the test."""
    try:
        runtime.load(path)
    except TidelogError:
        return False
    return True


def zipped(path, members, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = options.get("compression", zipfile.ZIP_STORED)
            info.external_attr = options.get("mode", stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return path


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/b", "..\\evil", "C:\\evil", "run.json", ".", "weights"])
def test_a_zip_holds_the_files_of_a_policy_and_nothing_else(name, whole, tmp_path):
    path = zipped(tmp_path / "p.zip", [*members_of(whole[0]), (name, b"x")])
    with pytest.raises(CheckpointError, match="holds"):
        runtime.load(path)
    assert [found.name for found in tmp_path.iterdir()] == ["p.zip"]


def test_links_and_doubles_and_what_unfolds_are_refused(whole, tmp_path):
    members = members_of(whole[0])
    bombs = [(MANIFEST, b"0" * 10_000_000), *members[1:]]
    with pytest.raises(CheckpointError, match=r"'manifest.json' is not one plain, uncompressed file"):
        runtime.load(zipped(tmp_path / "bomb.zip", bombs, compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(CheckpointError, match="is not one plain, uncompressed file"):
        runtime.load(zipped(tmp_path / "link.zip", members, mode=stat.S_IFLNK | 0o777))
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(tmp_path / "twice.zip", [*members, members[1]])
    with pytest.raises(CheckpointError, match=r"'weights.safetensors' is not one plain, uncompressed file"):
        runtime.load(tmp_path / "twice.zip")


def test_a_zip_that_says_it_holds_more_than_it_has_is_refused(whole, tmp_path):
    """Two members of the central directory that lie on the same bytes, each as large as the file."""
    content = bytearray(whole[0].read_bytes())
    start = content.index(b"PK\x01\x02")
    for place in (start + 20, start + 24):  # compressed and plain size of the first member
        content[place : place + 4] = struct.pack("<I", len(content))
    (tmp_path / "p.zip").write_bytes(content)
    with pytest.raises(CheckpointError, match="declares array sizes larger than the archive"):
        runtime.load(tmp_path / "p.zip")


@pytest.mark.parametrize(("change", "message"), [
    ({"later": 1}, "has the unknown field 'later'"),
    ({"masks": {"actions": 5, "true": "forbidden", "in_the_log": False}}, "'masks' differs from the spec"),
    ({"scaler": {"observation": {"numeric": {"mean": [0.0], "std": [1.0]}}}}, "expected 4 finite numbers"),
    ({"scaler": {"observation": {"numeric": {"mean": [0.0] * 4, "std": [0.0] * 4}}}}, "a standard deviation of"),
    ({"recipe": {"kind": "script", "code": "import os"}}, "a node of the unknown kind 'script'"),
    ({"recipe": {"kind": "linear", "weight": {"array": "x"}, "bias": None}}, "needs the array 'x'"),
    ({"recipe": {"kind": "recipe", "act": None, "values": None}}, "a node of kind 'recipe' has no field 'carry'"),
    ({"recipe": None}, "contains a custom module"),
])  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(change, message, whole, tmp_path):
    write(tmp_path / "p", {WEIGHTS: whole[2]}, json.loads(whole[1]) | change)
    with pytest.raises(CheckpointError, match=message):
        runtime.load(tmp_path / "p")


def test_fields_that_lack_are_named(whole, tmp_path):
    for name in ("spec", "parity", "origin"):
        kept = json.loads(whole[1])
        del kept[name]
        write(tmp_path / name, {WEIGHTS: whole[2]}, kept)
        with pytest.raises(CheckpointError, match=f"has no '{name}'"):
            runtime.load(tmp_path / name)


def test_nothing_is_reserved_for_sizes_that_the_weights_do_not_have(whole, tmp_path):
    manifest = json.loads(whole[1])
    manifest["spec"]["observation"]["numeric"] |= {"size": 10**12, "names": [], "fills": []}
    manifest |= {"scaler": {"observation": {}}, "missing": {}}
    write(tmp_path / "p", {WEIGHTS: whole[2]}, manifest)
    with pytest.raises(CheckpointError, match="declares sizes"):
        runtime.load(tmp_path / "p")


@pytest.mark.parametrize("number", [np.nan, np.inf, 2e18])
def test_an_array_with_a_number_that_overflows_is_named(number, whole, tmp_path):
    arrays = safetensors.load(whole[2])
    name = next(name for name in arrays if arrays[name].ndim == 2)
    arrays[name] = arrays[name].copy()
    arrays[name][0, 0] = number
    write(tmp_path / "p", {WEIGHTS: safetensors.save(arrays)}, json.loads(whole[1]))
    for read_it in (runtime.load, load_policy):
        with pytest.raises(CheckpointError) as refused:
            read_it(tmp_path / "p")
        assert f"the array {json.dumps(name)} has numbers from" in str(refused.value)
        assert ". fix: train it again" in str(refused.value)


def test_observations_that_overflow_are_refused_without_a_warning(tmp_path):
    path = policy("iql, choice").save(tmp_path / "p")
    acting, seen = runtime.load(path), {"categorical": [[0, 0]], "numeric": [[3e38, -3e38, 3e38, 0.0]]}
    for call in (acting.act, acting.q_values, acting.probabilities):
        with pytest.raises(SpecError, match=r"numbers that are not finite .*\. fix: correct values"):
            call(seen)


def header(content):
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


DAMAGES = {  # of the descriptions of two arrays in the header
    "beyond the file": lambda one, two: one.update(data_offsets=[0, 10**9]),
    "overlapping": lambda one, two: two.update(data_offsets=one["data_offsets"]),
    "negative": lambda one, two: one.update(shape=[-1, 4]),
    "enormous": lambda one, two: one.update(shape=[2**40, 2**40]),
    "of another type": lambda one, two: one.update(dtype="F8_E4M3"),
}


@pytest.mark.parametrize("damage", ["a huge header", *DAMAGES])
def test_weights_that_lie_about_themselves_are_refused(damage, whole, tmp_path):
    found, rest = header(whole[2])
    if damage in DAMAGES:
        DAMAGES[damage](*[found[name] for name in found if name != "__metadata__"][:2])
    text = json.dumps(found).encode()
    length = len(text) if damage in DAMAGES else 2**60
    write(tmp_path / "p", {WEIGHTS: struct.pack("<Q", length) + text + rest}, json.loads(whole[1]))
    for load in (runtime.load, load_policy):
        with pytest.raises(CheckpointError):
            load(tmp_path / "p")


def places_of(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places_of(value, (*path, key))


def replaced(node, path, value):
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


ODD = (
    None,
    True,
    -1,
    0,
    7,
    2**70,
    1e308,
    float("nan"),
    "",
    "x",
    [],
    {},
    [[]],
    {"array": "x"},
    {"kind": "mlp"},
    [1] * 50,
)


@pytest.mark.full
@pytest.mark.parametrize("name", [NAME, "lists, attention", "lists, imagined"])
def test_manifests_with_one_odd_value_are_read_or_refused(name, tmp_path):
    """Valid checksums, as an attacker would write; every place of the spec, scaler and recipe gets odd values."""
    saved = SavedPolicy((listing if name.startswith("lists") else policy)(name).save(tmp_path / "whole.zip"))
    manifest = {name: value for name, value in saved.manifest.items() if name not in ("kind", "schema", "files")}
    weights, sums = saved.read(WEIGHTS), {WEIGHTS: saved.manifest["files"][WEIGHTS]}
    generator, manifest = np.random.default_rng(0), json.loads(json.dumps(manifest))
    places = [
        p for p in places_of(manifest) if p and p[0] in ("spec", "scaler", "recipe", "masks", "missing", "origin")
    ]
    refused = 0
    for _ in range(400):
        place, odd = places[generator.integers(len(places))], ODD[generator.integers(len(ODD))]
        changed = replaced(manifest, place, odd)
        path = zipped(tmp_path / "p.zip", [(MANIFEST, POLICY.text(changed, sums)), (WEIGHTS, weights)])
        refused += not read(path)
    assert refused > 200  # 0 of 17 other seeds fail


def test_bytes_flipped_anywhere_are_refused(whole, tmp_path):
    generator, content, path = np.random.default_rng(1), whole[0].read_bytes(), tmp_path / "p.zip"
    read_at_all = 0
    for i in range(400):
        damaged = bytearray(content)
        if i % 2:
            damaged = damaged[: generator.integers(len(content))]
        for place in generator.integers(0, max(1, len(damaged)), 1 + i % 7):
            damaged[place : place + 1] = bytes([generator.integers(256)])
        path.write_bytes(damaged)
        read_at_all += read(path)
    # changes of unused parts of a zip: dates, attributes; 0 of 17 other seeds fail
    assert read_at_all < 120


def test_other_files_are_no_policies(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("notes.txt", "mine")
    for name, content in {"a.zip": b"", "b.zip": b"PK\x05\x06", "c.zip": buffer.getvalue(), "d": b"{}"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError):
            runtime.load(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"is not a tidelog policy: it has no manifest\.json"):
        runtime.load(tmp_path)
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / MANIFEST).write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="incomplete or cannot be read"):
        runtime.load(deep)


def changed(whole, tmp_path, *changes):
    """Return a copy of the zip with replaced values, and valid checksums."""
    manifest = json.loads(whole[1])
    for place, value in changes:
        manifest = replaced(manifest, place, value)
    sums = {WEIGHTS: SavedPolicy(whole[0]).manifest["files"][WEIGHTS]}
    return zipped(tmp_path / "p.zip", [(MANIFEST, POLICY.text(manifest, sums)), (WEIGHTS, whole[2])])


def deep(levels):
    found: list = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("recipe", "values"), deep(600)),
        (("recipe", "values"), 7),
        (("recipe", "values"), {"kind": "norm", "scale": {"array": ".head.bias"}, "shift": {"array": ".head.bias"}}),
        (("spec", "action", "n"), 2),
        (("spec", "observation", "categorical", "sizes"), [30, 2]),
        (("recipe", "carry"), 5),
    ],
)  # fmt: skip
def test_recipes_that_would_fail_later_are_refused_at_once(place, value, whole, tmp_path):
    changes = [(place, value)]
    if place[-1] == "n":
        changes += [(("spec", "action", "names"), ["stay", "up"]), (("masks", "actions"), 2)]
    if place[-1] == "sizes":
        changes += [(("spec", "observation", "categorical", "vocabularies"), [])]
    path = changed(whole, tmp_path, *changes)
    with pytest.raises(CheckpointError):
        runtime.load(path)


def test_what_takes_little_room_here_may_not_take_much_on_the_way(tmp_path):
    """A picture that few weights process through wide kernels; attention over many steps."""
    saved = policy("discrete bcq, pictures").save(tmp_path / "pictures")
    for edit, name in ((large_picture, saved), (long_history, listing("lists, attention").save(tmp_path / "lists"))):
        found = SavedPolicy(name)
        manifest = {k: v for k, v in found.manifest.items() if k not in ("kind", "schema", "files")}
        edit(manifest)
        write(tmp_path / "p", {WEIGHTS: found.read(WEIGHTS)}, manifest)
        with pytest.raises(CheckpointError, match=r"intermediate values|declares sizes"):
            runtime.load(tmp_path / "p")


def large_picture(manifest):
    manifest["spec"]["observation"]["picture"] |= {"height": 6000, "width": 7000}


def long_history(manifest):
    manifest["recipe"]["act"]["history"] = 10_000


def test_a_folder_whose_manifest_never_ends_is_refused(tmp_path):
    import os

    for name, make in {"link": lambda path: os.symlink("/dev/zero", path), "pipe": os.mkfifo}.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / MANIFEST)
        for load in (runtime.load, load_policy):
            with pytest.raises(CheckpointError, match="expected a regular file"):
                load(folder)


def test_a_folder_is_kept_whatever_it_is_called(tmp_path):
    """The content of a folder, not its name, decides whether it may be replaced."""
    folder = tmp_path / "has schema version x"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is not a saved policy, nothing was written\. fix: choose another path"):
        policy(NAME).save(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_jax_builds_no_networks_that_the_weights_were_not_made_for(whole, tmp_path):
    path = changed(whole, tmp_path, (("config", "hidden"), [30_000, 30_000]))
    with pytest.raises(CheckpointError, match=r"hidden = \[30000, 30000\] needs more than the .* weights"):
        load_policy(path)
    with pytest.raises(CheckpointError, match=r"declares sizes|larger networks than|expected at most 2,147"):
        load_policy(changed(whole, tmp_path, (("config", "recurrent_size"), 10**12)))
    with pytest.raises(CheckpointError, match="is 0 or less"):
        load_policy(changed(whole, tmp_path, (("scaler", "observation", "numeric", "std"), [0.0] * 4)))


def test_a_node_with_an_unknown_field_is_refused(whole, tmp_path):
    """A newer program may mean something by it; to pass it over would be to act differently without a word."""
    _, manifest, weights = whole
    kept = json.loads(manifest)
    kept["recipe"]["act"]["softness"] = 0.5
    write(tmp_path / "policy", {WEIGHTS: weights}, {name: value for name, value in kept.items() if name != "sha256"})
    with pytest.raises(CheckpointError, match="softness"):
        runtime.load(tmp_path / "policy")


def test_a_zip_without_a_manifest_is_no_policy(whole, tmp_path):
    path = zipped(tmp_path / "p.zip", [one for one in members_of(whole[0]) if one[0] != MANIFEST])
    with pytest.raises(
        CheckpointError, match=rf"has no {MANIFEST}, so it is not a tidelog policy. fix: choose another"
    ):
        runtime.load(path)


def test_an_onnx_file_is_named_as_what_it_is(tmp_path):
    (tmp_path / "policy.onnx").write_bytes(b"\x08\x08 no zip")
    with pytest.raises(CheckpointError, match=r"an ONNX file, .* fix: name the run it was exported from, or export"):
        SavedPolicy(tmp_path / "policy.onnx")
