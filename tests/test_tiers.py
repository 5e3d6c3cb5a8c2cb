"""The tiers of this suite: what its own hooks select, refuse and clean up."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.suite_mutations import MUTATIONS, read_mutations

CONFTEST = Path(__file__).with_name("conftest.py")
SUITE = """
import pytest
from hypothesis import given, strategies


@pytest.mark.sample("one")
@pytest.mark.parametrize("case", ["one", "two"])
def test_sampled(case): ...


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("case", ["one", "two", "three"])
def test_every_second(case): ...


@pytest.mark.full
def test_long(): ...


@pytest.mark.full
@pytest.mark.slow
def test_study(): ...


@pytest.mark.full
@pytest.mark.bits
def test_one_program_of_many(): ...


@pytest.mark.bits
def test_one_program(): ...


@pytest.mark.bits(across_programs=True)
def test_two_programs(): ...


@pytest.mark.full
@pytest.mark.bits
@pytest.mark.sample("one", others="slow")
@pytest.mark.parametrize("case", ["one", "two"])
def test_bits_of_many(case): ...


@pytest.mark.full
@pytest.mark.sample("one", others="slow")
@pytest.mark.parametrize("case", ["one", "two"])
def test_long_of_many(case): ...


@given(strategies.integers())
def test_property(number): ...
"""
SECOND = {"test_every_second[one]", "test_every_second[three]"}
SETTINGS = """[pytest]
markers =
  full: x
  bits: x
  sample: x
  slow: x
addopts = --strict-markers
"""


@pytest.fixture(scope="module")
def hooks(pytestconfig):
    """The functions of this suite's conftest."""
    found = [plugin for plugin in pytestconfig.pluginmanager.get_plugins() if hasattr(plugin, "QUICK_XLA")]
    assert len(found) == 1
    return found[0]


def collected(folder: Path, marks: str, suite: str = SUITE) -> tuple[set[str] | None, str]:
    """The tests that a small suite with this conftest selects, None if it is refused, and what pytest printed."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_small.py").write_text(suite)
    (folder / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", marks]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    )
    selected = {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}
    return None if done.returncode else selected, done.stdout + done.stderr


@pytest.mark.sample("default")
@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("not slow and not full", {"test_sampled[one]", *SECOND, "test_one_program", "test_property"}),
        (
            "full",
            {"test_sampled[two]", "test_every_second[two]", "test_long", "test_long_of_many[one]", "test_property"},
        ),
        ("bits", {"test_one_program", "test_one_program_of_many", "test_bits_of_many[one]", "test_two_programs"}),
        ("slow", {"test_study", "test_bits_of_many[two]", "test_long_of_many[two]"}),
    ],
    ids=["default", "full", "bits", "slow"],
)
def test_every_test_has_its_tier(tmp_path, marks, expected):
    selected, printed = collected(tmp_path, marks)
    assert selected == expected, printed


@pytest.mark.full
def test_a_sample_that_does_not_exist_is_refused(tmp_path):
    selected, printed = collected(tmp_path, "not full", SUITE.replace('sample("one")', 'sample("one", "tow")'))
    assert selected is None
    assert "marks `sample` name cases that do not exist" in printed
    assert "tow" in printed


@pytest.mark.full  # every run of this suite begins with it: XLA would end a process that sets another flag
def test_a_flag_is_set_only_where_xla_has_it(hooks):
    real = "--xla_backend_optimization_level=0"
    assert hooks.accepted_flags([real, "--xla_a_flag_that_nobody_has_written=1"]) == [real]


def test_old_programs_are_deleted_and_new_ones_kept(hooks, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for file in (old, new):
        file.write_bytes(b"program")
    long_ago = time.time() - (hooks.KEPT_DAYS + 1) * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    config = SimpleNamespace(cache=SimpleNamespace(mkdir=lambda name: tmp_path))
    assert hooks.programs(config) == tmp_path
    assert not old.exists()
    assert new.exists()
    assert hooks.programs(SimpleNamespace()) is None


@pytest.mark.parametrize(
    ("marks", "full"), [("full", True), ("not slow and not full", False), ("bits", False), ("full and not slow", True)]
)
def test_the_full_tier_is_known_by_its_mark(hooks, marks, full):
    assert hooks.full_tier(SimpleNamespace(option=SimpleNamespace(markexpr=marks))) is full


def test_every_mistake_of_the_study_can_still_be_made():
    """A mistake whose line has changed would be left out of `benchmarks.suite_mutants`, and nobody would notice."""
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS), "every mistake has a name of its own"
    for one in MUTATIONS:
        ast.parse(one.apply(one.path().read_text(encoding="utf-8")), one.function)


def test_a_mistake_is_made_in_its_function_alone():
    (one,) = read_mutations("[tidelog.a:B.c] tests/a\nname\n-    x = 1\n-    y\n+    y\n")
    text = "class A:\n  def c():\n    x = 1\n    y\n\n\nclass B:\n  @d\n  def c():\n    x = 1\n    y\n"
    assert one.apply(text) == text[: text.rindex("    x")] + "    y\n"
    with pytest.raises(ValueError, match=r"name: .* occurs 0 times in tidelog.a:B.c"):
        one.apply(text.replace("x = 1", "x = 2"))
    with pytest.raises(ValueError, match="no mutation"):
        read_mutations("[tidelog.a:B.c] tests/a\nname\nx = 1\n+x = 2")
