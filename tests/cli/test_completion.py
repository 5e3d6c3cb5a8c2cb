"""The scripts of `tidelog --completion`, run by the shells themselves."""

import shutil
import subprocess

import pytest

from tidelog.cli.completion import SHELLS, words_by_command

CASES = {
    "jud": {"judge"},
    "train iq": {"iql"},
    "train iql --expec": {"--expectile"},
    "data insp": {"inspect"},
    "data inspect --wr": {"--write"},
    "sweep iql --expec": {"--expectile"},
    "sweep bc --grid": {"--grid"},
    "judge run --all": {"--all-members"},
}


def completed(script, line):
    """What bash would complete at the end of a line."""
    words = ["tidelog", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tidelog; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_algorithms_and_flags(tidelog):
    script = tidelog("--completion", "bash").out
    assert {line: completed(script, line) for line in CASES} == CASES
    assert completed(script, "nothing ") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell, tidelog):
    script = tidelog("--completion", shell).out
    assert "--expectile" in script or "-l expectile" in script
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_arguments_are_no_flags_and_switches_can_be_turned_off():
    words = words_by_command()
    assert "--policies" not in words["judge"]
    assert "--run" not in words["resume"]
    assert {"--onnx", "--no-onnx"} <= set(words["export"])


def test_another_shell_is_refused(tidelog):
    for words in (["--completion", "tcsh"], ["--completion"]):
        done = tidelog(*words)
        assert (done.code, done.out) == (2, "")
        assert f"expected {', '.join(SHELLS)}" in done.err
