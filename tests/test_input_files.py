"""Only regular files are opened, wherever a file from outside is read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog._files import NotRegularError, check_regular, open_regular, read_regular, read_text
from tidelog.cli.act import _lines
from tidelog.cli.flags import read_config
from tidelog.errors import TidelogError
from tidelog.ope.verdict import read_verdict
from tidelog.policies.policy import _read as read_declared
from tidelog.policies.policy import read_arrays
from tidelog.report.frame import check_target
from tidelog.report.runs import read_evaluation

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
