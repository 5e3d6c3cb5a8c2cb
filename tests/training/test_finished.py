"""A run whose process was killed between its last checkpoint and the writing of its collected log."""

import pytest

from tests.algorithms.players import tiny
from tidelog import Log, learn
from tidelog.cli import main
from tidelog.training.engine import Engine


@pytest.mark.full
def test_resume_writes_the_collected_log_of_a_complete_run(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as killed:
        killed.setattr(Engine, "close", lambda self: None)
        learn(tiny(), "jax:CartPole-v1", 64, out=tmp_path / "run", log_out=tmp_path / "log", progress=False)
    assert not (tmp_path / "log").exists()
    piece = next((tmp_path / "log.pieces").glob("*.npz"))
    content = piece.read_bytes()
    piece.write_bytes(content[:-9])
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "npz is missing or damaged" in " ".join(capsys.readouterr().err.split())
    piece.write_bytes(content)
    (tmp_path / "log.pieces" / "mine.npz").write_bytes(b"")  # not one of its own
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "is complete" in capsys.readouterr().out
    assert Log.load(tmp_path / "log").steps == 64
    assert not (tmp_path / "log.pieces").exists()
