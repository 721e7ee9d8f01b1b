"""Messages of errors that Spark raises for the data source."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def refusal(call: Callable[[], object]) -> str:
    """Return the sentence of this package in the error that a call raises.

    Without the Java classes it is a line of a traceback. With them it is the whole message, once a
    test has enabled them in the session.
    """
    with pytest.raises(Exception, match=r".") as caught:
        call()
    lines = str(caught.value).splitlines()
    ours = [line for line in lines if "lance_spark.errors." in line]
    if ours:
        return ours[0]
    assert type(caught.value).__name__ == "AnalysisException"
    assert "Traceback" not in str(caught.value)
    return str(caught.value)
