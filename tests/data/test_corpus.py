"""Inputs that once ended in a traceback, a wrong report or a dead process: all are read or refused now."""

from pathlib import Path

import pytest

from benchmarks.fuzz_readers import CORPUS, READERS, Files, outcome, packed, unpacked

KEPT = sorted(CORPUS.iterdir()) if CORPUS.exists() else []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_input_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    name = path.name.rpartition("-")[0].replace("_", " ")
    assert outcome(READERS[name], unpacked(path.read_bytes()), tmp_path / "files") in ("valid", "caught")


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in KEPT) < 200_000


def test_files_are_packed_and_unpacked() -> None:
    files: Files = {"a": b"", "b/c.json": b"{}" * 300}
    assert unpacked(packed(files)) == files
    for damaged in (packed(files)[:-1], packed({"../a": b""}), packed({"/a": b""}), b"x"):
        assert unpacked(damaged) == {}
