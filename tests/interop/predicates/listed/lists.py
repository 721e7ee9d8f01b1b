"""Searches of lists."""

from __future__ import annotations

LISTS = [
    *(
        f"array_contains(list, {value})"
        for value in ("1", "2", "-1", "1L", "1.0", "1.5", "1e0", "7S")
    ),
    *("NOT array_contains(list, 1)", "NOT array_contains(list, 2)", "array_contains(list, NULL)"),
    *("array_contains(list, CAST(NULL AS INT))", "array_contains(list, 1) IS NULL"),
    *("array_contains(list, 1) IS TRUE", "array_contains(list, 2) IS NOT FALSE"),
    *(
        "array_contains(list, 1 + 1)",
        "array_contains(list, '1')",
        "array_contains(list, 1) <=> NULL",
    ),
    *("array_contains(list, 1) AND array_contains(list, 2)", "array_contains(list, true)"),
    *("array_contains(list, 1) OR array_contains(list, 2)", "array_contains(list, number)"),
    *("array_contains(vector, 0)", "array_contains(vector, 0.0)", "array_contains(vector, -0.0D)"),
    *("array_contains(vector, 1F)", "array_contains(vector, CAST('NaN' AS FLOAT))"),
    *(
        "NOT array_contains(vector, 2F)",
        "array_contains(vector, 1)",
        "array_contains(vector, 2.0D)",
    ),
    *("array_contains(parts, 1)", "array_contains(number, 1)", "array_contains(deep.x, 1)"),
    *("array_contains(list)", "array_contains(list, 1, 2)", "array_contains(array(1), number)"),
    *("arrays_overlap(list, array(1))", "arrays_overlap(list, array(1, 2))"),
    *("arrays_overlap(list, array(1, NULL))", "arrays_overlap(list, array(7, NULL))"),
    *("NOT arrays_overlap(list, array(7))", "NOT arrays_overlap(list, array(7, NULL))"),
    *("arrays_overlap(list, array(NULL))", "arrays_overlap(list, array())"),
    *("NOT arrays_overlap(list, array())", "arrays_overlap(list, array()) IS NULL"),
    *("arrays_overlap(list, NULL)", "arrays_overlap(array(1, 7), list)", "arrays_overlap(list, 1)"),
    *("arrays_overlap(list, array(1L))", "arrays_overlap(list, array(1.0))"),
    *("arrays_overlap(list, array('1'))", "arrays_overlap(list, array(1D))"),
    *("arrays_overlap(list, list)", "arrays_overlap(list, array(number))"),
    *("arrays_overlap(list, array(1)) IS NULL", "arrays_overlap(list, array(1)) = true"),
    *("arrays_overlap(vector, array(0F))", "arrays_overlap(vector, array(-0F, 7F))"),
    *("arrays_overlap(vector, array(CAST('NaN' AS FLOAT)))", "arrays_overlap(vector, array(1))"),
    *("NOT arrays_overlap(vector, array(2F))", "arrays_overlap(vector, array(2D, 1D))"),
]
