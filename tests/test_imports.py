"""The house rules that no type checker sees: who may import whom, what an import costs, and who may be named where."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tidelog
import tidelog as tl
from tidelog.algorithms.names import ALGORITHMS

SOURCE = Path(tidelog.__file__).parent
ROOT = Path(__file__).parents[1]
FLOORS = (  # a room may import itself, the rooms of its own floor, and all floors above it in this list
    ("types", "errors", "_files", "_machine", "_text", "plots", "parallel"),
    ("schema",),
    ("runtime",),
    ("hub",),
    ("data", "envs", "losses"),
    ("sinks",),
    ("recommend.interactions", "recommend.read"),
    ("support", "networks"),
    ("recommend.networks",),
    (
        "algorithms.contract",
        "algorithms.short_form",
        "algorithms.hyperparameters",
        "algorithms.optimisation",
        "algorithms.sampling",
        "algorithms.segments",
        "algorithms.finetune",
    ),
    ("algorithms.ppg_common", "recommend"),
    ("algorithms",),
    ("policies",),
    ("recommend.held_out",),
    ("training", "recommend.tables"),
    ("sweeps.job",),
    ("ope", "recommend.evaluate"),
    ("report", "testing", "auto"),
    ("sweeps",),
    ("serving",),
    ("cli",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ENTRANCES = ("__init__", "__main__")  # the package's own entrances may name every room
ENTRANCE_USERS = ("cli.demo",)  # an example as a user writes it, through `import tidelog`


@cache
def modules() -> dict[str, ast.Module]:
    """Every module by its dotted name below the package."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of this package that are imported anywhere in it, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "tidelog")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "tidelog":
                yield from (f"tidelog.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("tidelog."):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield whole if whole.removeprefix("tidelog.") in modules() else node.module


def room(name: str) -> str:
    """The longest name of a room that a module's name begins with."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in FLOOR), parts[0])


def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in modules()} - set(ENTRANCES) == set(FLOOR)


def test_imports_go_up_only() -> None:
    for name in set(modules()) - set(ENTRANCES):
        for module in imported(modules()[name]):
            if module == "tidelog" or module == "tidelog.__version__":
                assert name in (*ENTRANCE_USERS, "cli"), f"{name} goes through the package's door"
                continue
            used = room(module.removeprefix("tidelog."))
            assert FLOOR[used] <= FLOOR[room(name)], f"{name} imports {module}, which stands on it"


def test_no_two_modules_need_each_other() -> None:
    """Imports inside functions and for types count too, and the packages that an import runs on its way."""
    needs = {name: _needs(name, tree) for name, tree in modules().items()}
    while needs:
        free = [one for one, wanted in needs.items() if not wanted & set(needs)]
        assert free, f"a circle among {sorted(needs)}"
        for one in free:
            del needs[one]


def _needs(name: str, tree: ast.AST) -> set[str]:
    found = set(_modules_in(tree))
    return found | {package for one in found for package in _packages(one)} - {*_packages(name), name}


def _packages(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


def _modules_in(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports, or imports names from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tidelog"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}".removeprefix("tidelog.")
                yield whole if whole in modules() else node.module.removeprefix("tidelog").removeprefix(".")


CHANGES = {"write_text", "write_bytes", "mkdir", "makedirs", "unlink", "rmdir", "rmtree", "touch", "fsync", "truncate",
           "mkstemp", "mkdtemp", "rename", "removedirs"}  # fmt: skip
CHANGES_ELSEWHERE = {
    ("cli.demo", "mkdir"): "an empty folder",
}


def test_the_disk_is_changed_in_one_module() -> None:
    """What `_files` does not do is not tested against stops of the machine; Polars' `rename` is another thing."""
    found = set()
    for name, tree in modules().items():
        own = CHANGES - ({"rename"} if "polars" in outsiders(tree) else set())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in own:
                found |= {(name, node.func.attr)} - ({(name, "rename")} if "DISK" in ast.dump(node.func) else set())
    assert {one for one in found if one[0] != "_files"} == set(CHANGES_ELSEWHERE)


def outsiders(tree: ast.AST) -> set[str]:
    """Packages of others that a module imports by a statement."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"tidelog"}


def test_a_saved_policy_needs_numpy_and_safetensors_alone() -> None:
    """And what serves it, an ASGI stack; signatures need cryptography, an extra."""
    allowed = {
        "runtime": {"numpy", "safetensors", "cryptography"},
        "serving": {"msgspec", "numpy", "starlette", "uvicorn"},
    }
    for name, tree in modules().items():
        if room(name) in allowed:
            assert outsiders(tree) <= allowed[room(name)], name
            used = {room(module.removeprefix("tidelog.")) for module in imported(tree)}
            above = {"errors", "types", "_files", "_machine", "_text"}
            assert used <= {"runtime", *above, room(name)}, name


@pytest.mark.full
def test_a_saved_policy_runs_where_only_numpy_and_safetensors_are_installed(tmp_path: Path) -> None:
    """With the commands of docs/artefact.md, in an environment of its own."""
    log = tl.collect("treatment", episodes=20, seed=0)
    policy = tl.fit(tl.BC(hidden=(8,)), log, 2, progress=False).policy()
    policy.save(tmp_path / "policy.zip")
    row = {"severity": 3, "strain": 1, "toxicity": 0, "hour": 8, "kidneys": "impaired"}
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    shutil.copytree(ROOT, tmp_path / "tidelog", ignore=shutil.ignore_patterns(".*", "build", "tests", "benchmarks"))
    page = (ROOT / "docs" / "artefact.md").read_text()
    commands = re.findall(r"^pip (install .+)$", page, re.MULTILINE)
    assert commands == ["install --no-deps tidelog/", "install numpy safetensors"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for command in commands:
        done = subprocess.run(
            [python, "-m", "pip", *command.split()], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"pip cannot install packages here: {done.stderr[-200:]}")
    script = f"from tidelog import runtime; print(runtime.load('policy.zip')({row!r}))"
    done = subprocess.run([python, "-c", script], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.strip()) == ("", str(policy(row)))


def test_importing_is_cheap(tmp_path: Path) -> None:
    """One process: each step says which of the heavy packages are loaded after it."""
    script = """
import sys, pathlib
heavy = ("jax", "equinox", "optax", "polars", "numpy", "gymnasium", "minari", "h5py", "matplotlib", "rich", "tyro",
         "scipy")
def loaded():
    print(",".join(name for name in heavy if name in sys.modules))
import tidelog; loaded()
import tidelog.data; table = pathlib.Path(sys.argv[1]); table.write_text("x,a\\n1,0\\n2,1\\n")
tidelog.check(table, {"observation": ["x"], "action": "a", "terminated": True}).text(); loaded()
from tidelog.cli import main; loaded()
import tidelog.cli.serve; loaded()
import tidelog.cli.train; loaded()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "t.csv")], capture_output=True, text=True, check=True
    )
    first, second, third, fourth, fifth = done.stdout.split("\n")[:5]
    assert first == ""
    assert second == third == "polars,numpy"
    assert "jax" not in fourth
    assert "equinox" not in fourth
    assert "scipy" not in fifth, "a training starts in a quarter of a second less without it"


@pytest.mark.parametrize("name", tidelog.__all__)
def test_every_public_name_is_there_and_described(name: str) -> None:
    found = getattr(tidelog, name)
    module = getattr(found, "__module__", found.__name__ if inspect.ismodule(found) else "")
    assert module.startswith("tidelog."), "an alias of somebody else's name"
    assert len(inspect.getdoc(found) or "") > 20
    assert name in dir(tidelog)


def test_names_that_there_are_not_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'tidelog' has no attribute 'fitt': did you mean 'fit'\?"):
        _ = tidelog.fitt
    assert re.fullmatch(r"\d+\.\d+\.\d+", tidelog.__version__)


def test_the_loop_and_the_commands_name_no_algorithm() -> None:
    """Names, imports, attributes and whole strings; the demo tells of two, and help may show an example."""
    forbidden = {*ALGORITHMS, *(algorithm.__name__ for algorithm in ALGORITHMS.values())}
    for name, tree in modules().items():
        if room(name) in ("training", "cli") and name != "cli.demo":
            assert not set(_words(tree)) & forbidden, name


def _words(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.alias(name=word):
                yield word
            case ast.Constant(value=str(word)):
                yield word
            case ast.ImportFrom(module=str(module)):
                yield from module.split(".")


def test_nothing_is_pickled() -> None:
    """A pickle runs code when it is read: checkpoints, policies and logs are arrays and JSON."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace("allow_pickle=False", "").replace("never pickle", "")
        assert "pickle" not in text, path
        for word in ("joblib", "marshal", "shelve", "eval(", "exec("):
            assert not re.search(rf"(?<![\w.]){re.escape(word)}", text), path
    for name, tree in modules().items():
        loads = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.load"]
        for call in loads:
            assert "allow_pickle=False" in ast.unparse(call), name
