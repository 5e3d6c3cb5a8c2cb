"""What errors advise can be done as it is written."""

import ast
import pickle
import re
from importlib import metadata
from pathlib import Path

import pytest

from tidelog import errors
from tidelog.errors import LogError, TidelogError, install, nearest

SOURCES = sorted((Path(__file__).resolve().parents[1] / "src" / "tidelog").rglob("*.py"))
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, TidelogError)}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_is_fields_also_in_another_process(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("x = 3", "at most 2", "use 1")))
    assert (error.found, error.expected, error.fix) == ("x = 3", "at most 2", "use 1")
    assert str(error) == "x = 3: expected at most 2. fix: use 1"
    assert (error.problem, str(type(error)("x is 3", fix="use 1"))) == (
        "x = 3: expected at most 2",
        "x is 3. fix: use 1",
    )


def test_a_report_travels_with_its_error():
    assert pickle.loads(pickle.dumps(LogError("bad", report=["a row"]))).report == ["a row"]


def test_no_error_has_its_fields_inside_one_text_and_no_text_is_parsed_back():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            texts = [ast.unparse(one) for one in node.args if isinstance(one, ast.Constant | ast.JoinedStr)]
            where = f"{path}, line {node.lineno}"
            if name in {*ERRORS, "RequestError"}:
                assert not any("fix: " in text or ": expected " in text for text in texts), where
            if name in ("partition", "rpartition", "split", "search", "match", "sub", "fullmatch"):
                assert not any("fix:" in text for text in texts), where


def test_the_packages_of_an_extra_are_named_themselves():
    """No package index has tidelog: advice to install "tidelog[onnx]" would fail."""
    assert install("serve").startswith("pip install '")
    assert all(name in install("serve") for name in ("h11>=", "starlette>=", "uvicorn>="))
    assert all(name in install("onnx") for name in ("jax2onnx", "onnx>=", "onnxruntime"))
    assert "tidelog" not in install("onnx")


def test_every_hint_names_an_extra_that_there_is():
    """A hint with a misspelt extra would print `pip install` and no package."""
    asked = {name for one in SOURCES for name in re.findall(r"""\binstall\(["'](\w+)["']\)""", one.read_text())}
    assert {"serve", "onnx", "trees"} <= asked
    for name in asked:
        assert re.fullmatch(r"pip install '[A-Za-z].*'", install(name)), name


def test_a_source_without_an_installation_names_the_extra(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert install("onnx").endswith("pip install -e '.[onnx]'")


def test_a_name_in_other_letters_is_the_nearest():
    assert nearest("sofa", ["stay", "SOFA", "dose"]) == "did you mean 'SOFA'?"
    assert nearest("Dose", ["SOFA", "DOSE", "dose"]) == "did you mean 'dose'?"
    assert nearest("age", ["SOFA", "dose"]) == "known names: SOFA, dose"
