"""An environment of one's own from the shell: the module and the commands of docs/environments.md, as they stand."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text()


@pytest.fixture
def folder(tmp_path):
    code = re.search(r"`my_module.py` in the working folder:\n\n```python\n(.*?)```", PAGE, re.S)[1]
    (tmp_path / "my_module.py").write_text(code)
    return tmp_path


SCRIPT = "import sys; sys.path = [one for one in sys.path if one]; from tidelog.cli import main; sys.exit(main())"


def tidelog(folder, *words):
    """Run a command as the installed script does, which does not look for modules in the working folder."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.full
def test_the_commands_of_the_page_work_in_order(folder):
    block = re.search(r"```\n(tidelog train ppg --env my_module.*?)```", PAGE, re.S)[1]
    for line in block.splitlines():
        done = tidelog(folder, *shlex.split(line)[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    rows = done.stdout.splitlines()
    assert any("member 0" in row for row in rows)


def test_a_module_that_is_not_there_is_named(folder):
    done = tidelog(folder, "collect", "--env", "my_modul:Steer-v0", "--episodes", "1", "--out", "log")
    assert done.returncode == 2
    assert "the module 'my_modul'" in done.stderr
    assert "--plugin my_modul" in done.stderr
    assert not (folder / "log").exists()
