"""The suite's parameter: every algorithm with every kind of action that it supports."""

import pytest

from tests.conformance.cases import CASES


@pytest.fixture(scope="session", params=CASES, ids=lambda case: f"{case.name}-{case.kind}")
def case(request):
    return request.param
