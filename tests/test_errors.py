"""What errors advise can be done as it is written; numbers are written as people read them."""

import ast
import pickle
import re
from importlib import metadata
from pathlib import Path

import pytest

from tidelog import errors
from tidelog._text import amount, count_of, in_unit, three_digits, with_ends
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


# Numbers as people read them: three digits, plain where that can be read, with the unit where there is one.


NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"), (4.5, "4.5"), (12_345.6, "12,300"), (999.6, "1,000"), (-1234.0, "-1,230"), (0.0, "0"),
        (-0.0, "0"), (1.0, "1"), (2.5e9, "2.5e+09"), (1.5e-7, "1.5e-07"), (NAN, "no number"),
        (float("inf"), "no number"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_a_sign_is_shown_on_request_and_zero_has_none() -> None:
    assert [three_digits(value, sign=True) for value in (0.5, -0.5, 0.0, 12_345.0)] == ["+0.5", "-0.5", "0", "+12,300"]


def test_a_unit_follows_a_number_and_no_unit_changes_nothing() -> None:
    assert (amount(0.1234, "EUR"), amount(0.1234, "EUR", sign=True)) == ("0.123 EUR", "+0.123 EUR")
    assert (amount(0.1234), amount(NAN, "EUR"), in_unit(None, "in "), in_unit("EUR", "in ")) == (
        "0.123", "no number", "", " in EUR")  # fmt: skip
    assert with_ends((0.08, 0.01, 1500.0)) == "0.08 (0.01 to 1,500)"
    assert with_ends((0.08, 0.01, 0.15), "EUR", sign=True) == "+0.08 EUR (+0.01 to +0.15)"
    assert with_ends((NAN, NAN, NAN), "EUR") == "no number"


def test_a_noun_after_one_is_in_the_singular():
    assert [count_of(count, "row") for count in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
