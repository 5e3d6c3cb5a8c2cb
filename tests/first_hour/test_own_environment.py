"""An environment of one's own from the shell: what `--env` says where its module is not found.

`tests/first_hour/test_docs.py` runs the module and the commands of docs/environments.md.
"""

import subprocess
import sys

# as the installed script does, which does not look for modules in the working folder
SCRIPT = "import sys; sys.path = [one for one in sys.path if one]; from tidelog.cli import main; sys.exit(main())"


def test_a_module_that_is_not_there_is_named(tmp_path):
    words = [sys.executable, "-c", SCRIPT, "collect", "--env", "my_modul:Steer-v0", "--episodes", "1", "--out", "log"]
    (tmp_path / "my_module.py").write_text("")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the module 'my_modul'" in done.stderr
    assert "--plugin my_modul" in done.stderr
    assert not (tmp_path / "log").exists()
