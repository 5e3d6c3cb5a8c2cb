"""Numbers as people read them: three digits, plain where that can be read, with the unit where there is one."""

import pytest

from tidelog._text import amount, count_of, in_unit, three_digits, with_ends

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
