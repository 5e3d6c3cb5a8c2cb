"""Checkpoints: complete or absent, and refused with what is wrong when they are not what they should be."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.training.runs import all_of, bc, begin, chunks_of, finish, full, stop_at, write_record
from tidelog import _files, load_run
from tidelog.errors import CheckpointError
from tidelog.policies.policy import fingerprint

MEMBER, MANIFEST = "member-0.safetensors", "manifest.json"


@pytest.fixture(scope="module")
def whole(origin, tmp_path_factory):
    """A finished run with checkpoints at 28, 35 and 42."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        chunks_of(7, monkeypatch)
        out = tmp_path_factory.mktemp("whole") / "run"
        return finish(begin(bc(), origin, out, best_metric="imitation_loss", save_seconds=0.0))


@pytest.fixture
def run(whole, tmp_path):
    """A copy of its folder, to be broken."""
    return Path(shutil.copytree(whole.folder, tmp_path / "run"))


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def other_number(path):
    content = path.read_text()
    path.write_text(content.replace('"bytes": ', '"bytes": 1'))


def changed(**values):
    def change(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


DAMAGE = {
    "a corrupt byte": (MEMBER, lambda p: flipped(p, -5), f"{MEMBER} was changed after it was written: its checksum"),
    "a corrupt header": (MEMBER, lambda p: flipped(p, 3), f"{MEMBER} was changed after it was written"),
    "a cut file": (MEMBER, lambda p: p.write_bytes(p.read_bytes()[:-1]), "expected .* it was truncated or changed"),
    "an empty file": (MEMBER, lambda p: p.write_bytes(b""), "has 0 bytes: expected"),
    "a missing file": (MEMBER, Path.unlink, f"{MEMBER} is missing"),
    "a cut manifest": (MANIFEST, lambda p: p.write_text(p.read_text()[:-9]), f"{MANIFEST} is incomplete"),
    "no text": (MANIFEST, lambda p: p.write_bytes(b"\xff\xfe"), f"{MANIFEST} is incomplete or cannot be read"),
    "another number": (MANIFEST, other_number, f"{MANIFEST} was changed after it was written: its checksum differs"),
    "another schema": (MANIFEST, changed(schema=99), "has schema version 99, this tidelog reads 3. fix: read it with"),
    "something else": (MANIFEST, changed(kind="policy"), "is not the manifest of a tidelog checkpoint"),
    "a list": (MANIFEST, lambda p: p.write_text("[]"), "is not the manifest of a tidelog checkpoint"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.sample(every=4)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(damage, run):
    file, break_it, message = DAMAGE[damage]
    break_it(run / "checkpoints" / "0000000042" / file)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_run(run)
    assert "0000000042" in str(raised.value)
    assert str(raised.value).endswith(", or use the one before it, with checkpoint=35")
    assert finish(load_run(run, checkpoint=35)).update == 42


def test_without_one_before_nothing_is_offered(run):
    for update in (28, 35):
        shutil.rmtree(run / "checkpoints" / f"{update:010d}")
    flipped(run / "checkpoints" / "0000000042" / MEMBER, -1)
    with pytest.raises(
        CheckpointError, match=r"checksum differs\. fix: restore it from a copy, or make the checkpoint again$"
    ):
        load_run(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match=r"has no complete checkpoint\. fix: start the run again"):
        load_run(run)


def test_a_checkpoint_of_other_members_or_settings_is_refused(run, origin, tmp_path):
    two = begin(bc(), origin, tmp_path / "two", seeds=2)
    stop_at(two, 1)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(two.folder / "checkpoints", run / "checkpoints")
    with pytest.raises(CheckpointError, match="has the members of another run: expected 1"):
        load_run(run)


@pytest.mark.parametrize("path", ["nowhere", "log", "run.json"])
def test_what_is_no_run_is_refused(path, saved, tmp_path):
    (tmp_path / "run.json").write_text("[]")
    folder = {"nowhere": tmp_path / "nowhere", "log": saved, "run.json": tmp_path}[path]
    with pytest.raises(CheckpointError, match=r"run\.json"):
        load_run(folder)


def test_an_option_of_another_version_is_named_unless_it_was_not_used(run):
    content = json.loads((run / "run.json").read_text())
    write_record(run, content | {"options": content["options"] | {"population": None}})
    assert load_run(run).finished
    write_record(run, content | {"options": content["options"] | {"population": {"every": 10}}})
    with pytest.raises(CheckpointError, match=r"has the option population, which this .* fix: read it with the"):
        load_run(run)


def test_an_incomplete_checkpoint_is_passed_over(run, whole):
    (run / "checkpoints" / "0000000042" / MANIFEST).unlink()
    with pytest.warns(UserWarning, match=r"0000000042 has no manifest\.json and is passed over"):
        loaded = load_run(run)
    assert loaded.update == 35
    with pytest.warns(UserWarning, match="is passed over"):
        assert all_of(finish(loaded)) == all_of(whole)


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "write_bytes"), (Path, "mkdir")])
def test_a_full_disk_leaves_the_checkpoint_before_intact(owner, name, origin, whole, tmp_path, monkeypatch):
    chunks_of(7, monkeypatch)
    run = stop_at(begin(bc(), origin, tmp_path / "run", best_metric="imitation_loss", save_seconds=0.0), 7)
    there = {path: path.read_bytes() for path in (run.folder / "checkpoints").rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, full)
        with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left on device"):
            finish(load_run(run.folder))
    assert {path: path.read_bytes() for path in (run.folder / "checkpoints").rglob("*") if path.is_file()} == there
    assert not [*run.folder.rglob(".writing*")]
    assert all_of(finish(load_run(run.folder))) == all_of(whole)


def test_a_failed_rename_brings_back_what_stood_there(run, whole, monkeypatch):
    """Where the system cannot exchange two folders."""
    policy, folder = whole.policy(), run / "best" / "member-0"
    before = (folder / "weights.safetensors").read_bytes()

    class Failing(_files.Disk):
        def exchange(self, one, other):
            return False

        def rename(self, source, target):
            if source.name.startswith(_files.WRITING):
                full()
            super().rename(source, target)

    monkeypatch.setattr(_files, "DISK", Failing())
    with pytest.raises(CheckpointError, match="what was there is unchanged"):
        policy.save(folder)
    assert (folder / "weights.safetensors").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["member-0"]


@pytest.mark.parametrize("keep", [1, 2])
def test_the_last_few_are_kept(keep, origin, tmp_path, monkeypatch):
    chunks_of(7, monkeypatch)
    run = finish(begin(bc(), origin, tmp_path / "run", save_seconds=0.0, keep_checkpoints=keep))
    assert [path.name for path in sorted((run.folder / "checkpoints").iterdir())] == [
        f"{update:010d}" for update in (35, 42)[-keep:]
    ]


def test_without_time_passing_the_first_and_the_last_are_written(origin, tmp_path):
    run = finish(begin(bc(), origin, tmp_path / "run"))
    assert sorted(int(path.name) for path in (run.folder / "checkpoints").iterdir()) == [0, 42]


def test_what_a_kill_left_half_written_is_ignored_and_cleaned_up(run):
    (run / "checkpoints" / "0000000042").rename(run / "checkpoints" / ".writing-0000000042-0123abcd")
    (run / "best" / ".writing-member-0-0123abcd").mkdir()
    loaded = load_run(run)
    assert loaded.update == 35
    finish(loaded)
    assert not [*run.rglob(".*")]
    assert load_run(run).update == 42


def test_many_members_remember_their_best(origin, tmp_path):
    run = finish(begin(bc(), origin, tmp_path / "run", seeds=11, best_metric="imitation_loss", steps=1))
    again = load_run(run.folder)  # eleven: as words, 10 comes before 2
    assert fingerprint(again.best_policy().params) == fingerprint(run.best_policy().params)
