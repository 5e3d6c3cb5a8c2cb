"""The file of examples/cluster: as far as it can be checked without a cluster."""

import re
import shutil
import subprocess
from pathlib import Path

import tidelog as tl
from tidelog.cli import train
from tidelog.cli.flags import parse

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "slurm_processes.sh"


def test_the_script_for_slurm_is_bash_and_has_flags_of_train():
    for command in (["bash", "-n"], ["shellcheck"]):
        if shutil.which(command[0]) is not None:
            done = subprocess.run([*command, str(SCRIPT)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    words = re.search(r"words=\(train iql (.*)\)", SCRIPT.read_text())[1].replace('"', "")
    words = words.replace("$out", "/shared/runs/iql").split()
    options = parse(train.flags_of(tl.IQL), [*words, "--coordinator", "auto"], "train iql")
    assert (options.coordinator, options.batch_size, options.overwrite) == ("auto", 8192, True)
