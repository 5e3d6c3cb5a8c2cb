"""What errors advise can be done as it is written."""

import re
from importlib import metadata
from pathlib import Path

from tidelog.errors import install, nearest


def test_the_packages_of_an_extra_are_named_themselves():
    """No package index has tidelog: advice to install "tidelog[onnx]" would fail."""
    assert install("serve").startswith("pip install '")
    assert all(name in install("serve") for name in ("h11>=", "starlette>=", "uvicorn>="))
    assert all(name in install("onnx") for name in ("jax2onnx", "onnx>=", "onnxruntime"))
    assert "tidelog" not in install("onnx")


def test_every_hint_names_an_extra_that_there_is():
    """A hint with a misspelt extra would print `pip install` and no package."""
    sources = (Path(__file__).resolve().parents[1] / "src" / "tidelog").rglob("*.py")
    asked = {name for one in sources for name in re.findall(r"""\binstall\(["'](\w+)["']\)""", one.read_text())}
    assert {"serve", "onnx", "trees", "plot"} <= asked
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
