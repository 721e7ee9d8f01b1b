"""All cases. Each module of this package has `CASES`, of one topic."""

from __future__ import annotations

from tests.interop.shadow.cases import (
    arguments,
    blobs,
    datasets,
    evolution,
    files,
    filters,
    fragments,
    history,
    indexes,
    merges,
    operations,
    scanners,
    searches,
    sources,
)

CASES = [
    *datasets.CASES,
    *scanners.CASES,
    *filters.CASES,
    *fragments.CASES,
    *merges.CASES,
    *evolution.CASES,
    *blobs.CASES,
    *searches.CASES,
    *files.CASES,
    *history.CASES,
    *indexes.CASES,
    *operations.CASES,
    *sources.CASES,
    *arguments.CASES,
]
