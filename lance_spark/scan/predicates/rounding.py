"""Rounding of numbers with Java's results."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np

#: Half a unit beyond the largest float32: from here on numbers are infinite.
_INFINITE = 2**128 - 2**103


def to_float32(number: Decimal | Fraction | int | float) -> float:
    """Return the float32 that is nearest to a number; the even one if two are equally near.

    A conversion through float64 would round twice, and sometimes return another neighbour.
    """
    if isinstance(number, float):
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    exact = Fraction(number)
    if abs(exact) >= _INFINITE:
        return float("inf") if exact > 0 else float("-inf")
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
    if np.isinf(guess):
        guess = np.copysign(np.finfo(np.float32).max, guess)
    candidates = [
        guess,
        np.nextafter(guess, np.float32("-inf")),
        np.nextafter(guess, np.float32("inf")),
    ]
    best = min(
        (value for value in candidates if np.isfinite(value)),
        key=lambda value: (abs(Fraction(float(value)) - exact), int(value.view(np.uint32)) & 1),
    )
    if best == 0 and isinstance(number, Decimal) and number.is_signed():
        return -0.0
    return float(best)


def to_float64(number: Decimal | Fraction | int) -> float:
    """Return the float64 that is nearest to a number; infinite if it is too large."""
    # Python rounds integers, decimals and fractions correctly.
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def half_up(number: Fraction, scale: int) -> int:
    """Return a number in units of 10 ** -scale, halves rounded away from zero."""
    units = abs(number) * Fraction(10) ** scale
    rounded = (2 * units.numerator + units.denominator) // (2 * units.denominator)
    return rounded if number >= 0 else -rounded


def decimal_of(units: int, scale: int) -> Decimal:
    """Return the decimal of a number of units of 10 ** -scale, never rounded."""
    digits = tuple(int(digit) for digit in str(abs(units)))
    return Decimal((int(units < 0), digits, -scale))
