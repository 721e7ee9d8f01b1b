"""Tables of several fragments of which one has a damaged data file: few rows of all fragments are
taken together.

The rows of the sound fragments must be those of the sound table, and the rows of the damaged one
those that its own reader gives: the decoders of both see the same bytes.
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.scan.fragment import small_fragments
from tests.hostile import corpus
from tests.hostile.guard import fault
from tests.hostile.tables import Session, TableTarget, older

VERSIONS = ("2.0", "2.1", "2.2", "2.3")
#: The second fragment has the damaged file.
_DAMAGED = 1
_TAKEN = 14
#: How many columns are taken alone: all takes fail together if one column is damaged.
_COLUMNS = 6


def takes(root: str, data: bytes, whole: pa.Table) -> None:
    """Take some rows of all fragments, which depend on the bytes of the damaged file.

    Parameters
    ----------
    root : str
    data : bytes
    whole : pa.Table
        The rows of the sound table.
    """
    dataset = lance_spark.open_dataset(root)
    rng = random.Random(zlib.crc32(data))
    of_fragment = corpus.TAKEN_ROWS
    chosen = rng.sample(range(dataset.count_rows()), _TAKEN)
    # At least two of the damaged file.
    chosen += [of_fragment * _DAMAGED + rng.randrange(of_fragment) for _ in range(2)]
    is_sound = [number // of_fragment != _DAMAGED for number in chosen]
    failed: LanceError | None = None
    names = dataset.schema.names
    for columns in (names, *([name] for name in rng.sample(names, _COLUMNS))):
        together = _taken(dataset, columns, chosen)
        with mock.patch.object(small_fragments, "_MAX_SCATTERED_FRAGMENTS", 0):
            alone = _taken(dataset, columns, chosen)
        if isinstance(together, LanceError) or isinstance(alone, LanceError):
            assert isinstance(together, LanceError) == isinstance(alone, LanceError), (
                columns,
                together,
                alone,
            )
            failed = together if isinstance(together, LanceError) else failed
            continue
        assert len(together) == len(alone) == len(chosen)
        sound = whole.take(chosen)
        for name in columns:
            values = _values(together[name])
            assert values == _values(alone[name]), name
            if values is not None:
                for own, expected, is_kept in zip(
                    values, _values(sound[name]) or (), is_sound, strict=True
                ):
                    assert not is_kept or own == expected, name
    if failed is not None:
        raise failed


def _taken(dataset: Any, columns: list[str], rows: list[int]) -> pa.Table | LanceError:
    try:
        table = dataset.take(rows, columns)
        table.validate()
    except LanceError as error:
        if fault(error) is not None:
            raise
        return error
    return table


def _values(column: pa.ChunkedArray) -> list[str] | None:
    """Return values as text, in which NaN is equal to NaN; None if a text is no UTF-8."""
    try:
        return [repr(value) for value in column.to_pylist()]
    except (UnicodeDecodeError, ValueError, OverflowError):
        # pyarrow checks texts and times when it makes values of Python.
        return None


def _damaged_file(root: Path) -> Path:
    fragment = lance_spark.open_dataset(str(root)).fragments[_DAMAGED]
    return root / "data" / fragment.files[0].path


class TakeSession(Session):
    """A session whose step gets the bytes of the damaged file."""

    @functools.cached_property
    def _whole(self) -> pa.Table:
        return lance_spark.open_dataset(str(corpus.table(self._table))).to_table()

    def run(self, data: bytes) -> None:
        """Take rows with these bytes in the file."""
        self._steps = (functools.partial(takes, data=data, whole=self._whole),)
        super().run(data)


def targets() -> Iterator[TableTarget]:
    """Yield a target for each file version whose fragments are read together."""
    for version in VERSIONS:
        session = TakeSession(f"taken {version}", functools.cache(_damaged_file), ())
        name = f"takes_{version.replace('.', '_')}"
        yield TableTarget(name, session.run, session.seeds, older, 2, None)
