"""A compilation cache, and saved policies to read."""

import pytest

from tests.runtime.cases import CASES, policy


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    """A folder with one saved policy per case, every second one a zip."""
    place = tmp_path_factory.mktemp("artefacts")
    return {name: policy(name).save(place / (f"{i}.zip" if i % 2 else f"{i}")) for i, name in enumerate(CASES)}
