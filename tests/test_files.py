"""The disk and the memory where the system refuses, what a killed process leaves, and which files are opened."""

import ctypes
import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.runs import full
from tidelog import _files, _machine
from tidelog._files import MANIFEST, Kind, NotRegularError, check_regular, open_regular, read_regular, read_text
from tidelog.cli.act import _lines
from tidelog.cli.flags import read_config
from tidelog.errors import CheckpointError, ConfigError, TidelogError
from tidelog.ope.verdict import read_verdict
from tidelog.policies.policy import _read as read_declared
from tidelog.policies.policy import read_arrays
from tidelog.report.frame import check_target
from tidelog.report.runs import read_evaluation

KIND = Kind("thing", 3)


def test_what_is_no_error_of_the_disk_stays_itself_and_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(path, content):
        path.write_bytes(content[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(_files.DISK, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _files.write_file(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_to_a_file_is_a_binary_one_that_can_seek(tmp_path):
    with _files.stream_to(tmp_path / "file") as stream:
        assert stream.writable()
        assert stream.seekable()
        stream.write(b"abcd")
        stream.seek(1)
        stream.write(b"X")
    assert (tmp_path / "file").read_bytes() == b"aXcd"


def test_a_folder_that_was_being_replaced_is_restored_unless_the_new_one_is_there(tmp_path):
    for name in ("run", "other"):
        old = tmp_path / f"{_files.REPLACED}{name}-0123abcd"
        old.mkdir()
        (old / "file").write_text("old")
    (tmp_path / "other").mkdir()
    with pytest.raises(
        CheckpointError, match=r"run was being replaced when its process stopped\. fix: rename .*run-0123"
    ):
        KIND.manifest(tmp_path / "run")
    _files.tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run"]
    assert (tmp_path / "run" / "file").read_text() == "old"


def test_lines_that_cannot_be_appended_are_an_error_with_its_fix(tmp_path, monkeypatch):
    file = _files.AppendOnlyFile(tmp_path / "lines")
    file.append(b"one\n")
    file.sync()
    for method in ("append", "sync"):
        monkeypatch.setattr(_files.DISK, method, full)
        with pytest.raises(CheckpointError, match=r"lines cannot be written: No space left on device; .*fix: free"):
            getattr(file, method)(*([b"two\n"] if method == "append" else []))
        monkeypatch.undo()
    file.close()
    assert (tmp_path / "lines").read_bytes() == b"one\n"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM])
def test_paths_are_exchanged_in_two_steps_where_the_system_cannot(number, tmp_path, monkeypatch):
    def refused(*args):
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(_files.ctypes, "CDLL", lambda *args, **options: SimpleNamespace(renameat2=refused))
    assert _files.Disk().exchange(tmp_path / "one", tmp_path / "two") is False
    monkeypatch.setattr(_files.ctypes, "CDLL", lambda *args, **options: SimpleNamespace())
    assert _files.Disk().exchange(tmp_path / "one", tmp_path / "two") is False


def test_an_exchange_that_fails_otherwise_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*one'"):
        _files.Disk().exchange(tmp_path / "one", tmp_path / "two")


def test_manifests_of_any_bytes_are_answered(tmp_path):
    assert KIND.has_other_schema(b"{") is False
    assert KIND.has_other_schema(b"[1]") is False
    assert KIND.has_other_schema(b'{"kind": "thing", "schema": 2}') is True
    assert KIND.has_other_schema(b'{"kind": "thing", "schema": 3}') is False
    assert KIND.is_at(tmp_path) is False
    (tmp_path / MANIFEST).write_bytes(KIND.text({"a": 1}, {}))
    assert KIND.is_at(tmp_path) is True


def test_a_manifest_that_is_too_deep_to_be_summed_is_refused(monkeypatch):
    def deep(value):
        raise RecursionError

    monkeypatch.setattr("tidelog._files.digest", deep)
    text = json.dumps({"kind": "thing", "schema": 3}).encode()
    with pytest.raises(
        CheckpointError, match=r"its values are nested too deeply\. fix: restore it from a copy, or make the thing"
    ):
        KIND.read(text, "manifest.json")


def test_memory_is_that_of_other_systems_where_linux_does_not_say(monkeypatch):
    monkeypatch.setattr(_machine, "_MEMINFO", Path("/nowhere"))
    pages = {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf_names", pages)
    monkeypatch.setattr(os, "sysconf", pages.get)
    assert list(_machine._of_machine()) == [4_096_000]
    monkeypatch.setattr(os, "sysconf_names", {})
    assert list(_machine._of_machine()) == []
    monkeypatch.setitem(sys.modules, "resource", None)
    assert list(_machine._of_process()) == []


def test_an_error_of_another_class_is_the_one_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(_files.DISK, "write", full)
    with pytest.raises(ConfigError, match="what was there is unchanged"):
        _files.write_file(tmp_path / "file", b"content", ConfigError)


def test_a_file_that_another_process_created_first_keeps_what_it_holds(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    path.write_text("a look\n")
    monkeypatch.setattr(_files.os.path, "lexists", lambda path: False)  # as it was when this process looked
    _files.create_missing(path)
    assert path.read_text() == "a look\n"


def test_only_names_that_tidelog_makes_are_tidied(tmp_path):
    own, other = tmp_path / ".writing-log-0123abcd", [tmp_path / ".writing-notes", tmp_path / ".deleting-x-0123abcdef"]
    for path in (own, *other):
        path.write_text("kept")
    _files.tidy(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(other)


# Only regular files are opened, wherever a file from outside is read.


READERS: dict[str, Callable[[Path], Any]] = {
    "settings": lambda path: read_config(str(path), object), "items": lambda path: _lines(str(path)),
    "verdict": read_verdict, "declared": read_declared, "arrays": read_arrays, "evaluation": read_evaluation,
    "report": check_target,
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_fifo_or_reads_a_device(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "link", "device"):
        with pytest.raises(TidelogError, match="expected a regular file"):
            READERS[reader](tmp_path / name)


def test_files_are_read_through_links_and_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbf12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_text(tmp_path / "link") == "12345"
    assert read_regular(tmp_path / "file", 8)[3:] == b"12345"
    assert check_regular(tmp_path / "link").st_size == 8
    with pytest.raises(OSError, match="has 8 bytes: expected at most 7"):
        read_regular(tmp_path / "file", 7)
    for missing in (open_regular, check_regular):
        with pytest.raises(FileNotFoundError):
            missing(tmp_path / "nothing")
    with pytest.raises(NotRegularError, match="is a folder"):
        open_regular(tmp_path)


def test_a_file_that_changes_before_it_is_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr("tidelog._files.check_regular", lambda path: None)
    with pytest.raises(NotRegularError, match="is a FIFO"):
        open_regular(tmp_path / "fifo")
