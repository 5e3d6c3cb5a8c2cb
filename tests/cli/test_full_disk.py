"""A real limit of file sizes, in a child: the error names the cause and the fix, and nothing half written is left."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import toy
from tests.training.runs import bc

CHILD = """
import resource, signal, sys
from tidelog.cli import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for line in sys.stdin.read().splitlines():
    words = line.split()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(words[0]), resource.RLIM_INFINITY))
    code = main(words[1:])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(f"code {code}", flush=True)
"""
COMMANDS = (
    "act run --data log.csv --out a.csv", "act run --data log.csv --out a.parquet",
    "log check --data bad.csv --columns columns.toml --quarantine q.csv",
    "log convert --data log.csv --columns columns.toml --out c.parquet",
    "log convert --data log.csv --columns columns.toml --out c.npz",
    "log convert --data log.csv --columns columns.toml --out c.tidelog",
    "log inspect --data log.csv --html p.html", "report run", "export run --out p --no-onnx",
)  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table of 1,200 rows, its mapping, and a run."""
    monkeypatch.chdir(tmp_path)
    toy(tmp_path, 1_200, x=np.arange(1_200) / 60)
    Path("bad.csv").write_text(Path("log.csv").read_text().replace(",1,", ",one,"))
    tl.fit(bc(), tl.read_log("log.csv", "columns.toml"), 2, out="run", progress=False)
    return tmp_path


def contents(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.full
def test_a_limit_of_file_sizes_is_named(here):
    before, limits = contents(here), (0, 1_500)
    lines = [f"{limit} {command}" for command in COMMANDS for limit in limits]
    child = [sys.executable, "-c", CHILD]
    environment = os.environ | {"COLUMNS": "2000", "PYTHONDONTWRITEBYTECODE": "1"}  # Python would write half files
    done = subprocess.run(
        child, input="\n".join(lines), capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert "Traceback" not in done.stderr
    errors = done.stderr.strip().splitlines()
    assert re.findall(r"^code (.*)$", done.stdout, re.MULTILINE) == ["2"] * len(lines), done.stdout + done.stderr
    assert len(errors) == len(lines), done.stderr
    for line, error in zip(lines, errors, strict=True):
        if line.startswith("0 export"):
            assert "no temporary folder can be written" in error
            continue
        assert "cannot be written: File too large" in error, (line, error)
        assert "what was there is unchanged. fix: raise the limit of file sizes (ulimit -f)" in error, (line, error)
    assert contents(here) == before


def test_a_library_that_hides_the_error_of_the_disk_hides_it_no_more(tmp_path, monkeypatch):
    """Polars turns it into an error of its own, NumPy drops its number."""
    import errno

    from tidelog import _files as disk
    from tidelog.policies.batch_inference import write_table

    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setattr(disk, "_Stream", lambda file, stream=disk._Stream: stream(Full(file)))
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(tl.ConfigError, match="No space left on device; what was there is unchanged"):
            write_table(pl.DataFrame({"x": np.arange(1_000.0)}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
