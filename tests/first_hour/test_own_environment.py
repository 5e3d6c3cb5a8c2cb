"""An environment of one's own from the shell: a run that its failure ended continues with the command that is printed.

`tests/first_hour/test_docs.py` runs the module and the commands of docs/environments.md.
"""

import re
import shlex
import sys

import gymnasium
import pytest

import tidelog as tl
from tidelog.cli import main

MODULE = """
import pathlib
import gymnasium
import numpy as np


class Steer(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Steer.steps, self.left = Steer.steps + 1, self.left - 1
        reward = float("nan") if Steer.steps > 40 and pathlib.Path("broken").exists() else 1.0
        return np.zeros(1, np.float32), reward, self.left == 0, False, {}


gymnasium.register("Steer-v0", Steer)
"""
ENV = "steering:Steer-v0"
TINY = ["--num-envs", 2, "--rollout-steps", 8, "--steps", 96, "--eval-every", 16, "--minibatches", 2, "--hidden", 4]
TRAIN = ["train", "ppo", "--env", ENV, *TINY, "--out", "runs/the house"]


@pytest.fixture
def forget(tmp_path, monkeypatch):
    """What a new process has: no module of one's own, and no working folder on the path."""

    def forget():
        gymnasium.registry.pop("Steer-v0", None)
        sys.modules.pop("steering", None)
        monkeypatch.setattr(sys, "path", [one for one in sys.path if one and one != str(tmp_path)])

    yield forget
    forget()


@pytest.fixture
def house(tmp_path, monkeypatch, capsys, forget):
    """A working folder with a module, and a way to call a command as in a process of its own."""
    (tmp_path / "steering.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        forget()
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as leaving:
            code = leaving.code
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return call


@pytest.mark.full
def test_a_run_continues_with_the_command_that_its_failure_printed(house, tmp_path, monkeypatch, forget):
    (tmp_path / "broken").touch()
    code, said = house(*TRAIN)
    assert code == 4
    (command,) = re.findall(r"continue with `tidelog (.*?)`", said)
    (tmp_path / "broken").unlink()
    code, said = house("resume", "runs/the house")  # a run folder imports no module by itself
    assert code == 2
    assert f"`tidelog {command}`" in said
    assert "steering" not in sys.modules
    code, said = house("resume", "runs/the house", "--env", "other:Steer-v0")
    assert code == 2
    assert "is not an environment of runs/the house" in said
    code, said = house(*shlex.split(command))
    assert code == 0, said
    assert "resuming runs/the house" in said
    forget()  # in Python, the module or the name is needed too
    with pytest.raises(tl.ConfigError, match=r"does not import by itself.*`import steering` first"):
        tl.load_run("runs/the house")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tl.load_run("runs/the house", env=ENV).finished


@pytest.mark.full
def test_the_log_of_a_training_and_the_commands_to_a_log_of_its_policy(house, tmp_path):
    train = ["train", "ppo", "--env", ENV, *TINY, "--out", "runs/own", "--log-out", "meanwhile"]
    code, said = house(*train)
    assert code == 0, said
    assert "log of all decisions: meanwhile" in said
    (command,) = re.findall(r"(?:next|then): tidelog (collect .*? --out LOG)", said)
    code, said = house(*shlex.split(command))
    assert code == 0, said
    assert len(tl.Log.load(tmp_path / "LOG").episode_ids) == 1000


@pytest.mark.full
def test_an_environment_of_evaluations_is_named_again_too(house):
    code, said = house("collect", "--env", ENV, "--episodes", "8", "--out", "log")
    assert code == 0, said
    train = ["train", "bc", "--data", "log", "--hidden", "4", "--steps", "4", "--eval-every", "2", "--out", "runs/bc"]
    code, said = house(*train, "--evaluate", f"sampled:{ENV}=2")
    assert code == 0, said
    back = ["resume", "runs/bc", "--checkpoint", "0"]
    code, said = house(*back)
    assert code == 2
    assert f"`tidelog resume runs/bc --env {ENV}`" in said
    assert house(*back, "--env", ENV)[0] == 0


@pytest.mark.parametrize(("env", "parts"), [
    ("steering:Seter-v0", ["no environment 'steering:Seter-v0'", "did you mean 'steering:Steer-v0'?"]),
    ("steering", ["steering.py is a module in this folder. fix: name an environment that it registers (steering:"]),
    ("steerin:Steer-v0", ["did you mean 'steering:Steer-v0'?", "which does not exist here"]),
    ("nothing:Steer-v0", ["start in the folder of the module"]),
    ("no_import:Steer-v0", ["line 2 of", "no_import.py: the package 'no_such' is not", "fix: install no_such"]),
    ("no_text:Steer-v0", ["line 1 of", "no_text.py: SyntaxError", "fix: correct the module"]),
    ("no_code:Steer-v0", ["line 3 of", "no_code.py: ZeroDivisionError", "fix: correct the module"]),
])  # fmt: skip
def test_a_wrong_name_of_an_environment_of_ones_own(env, parts, house, tmp_path):
    (tmp_path / "no_import.py").write_text("import gymnasium\nimport no_such.parts\n")
    (tmp_path / "no_text.py").write_text("def (\n")
    (tmp_path / "no_code.py").write_text("import gymnasium\n\n1 / 0\n")
    code, said = house("collect", "--env", env, "--episodes", "1", "--out", "log")
    assert code == 2
    for part in parts:
        assert part in said
    for word in ("--plugin", "gymnasium:", "..", "?.", "registration"):
        assert word not in said
    assert not (tmp_path / "log").exists()
