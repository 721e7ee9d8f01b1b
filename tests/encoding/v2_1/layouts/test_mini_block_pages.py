"""Columns of many pages: the reader decodes whole pages together, with the same result as page by
page.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.encoding.v2_1.layouts import mini_block
from lance_spark.errors import CorruptFileError
from lance_spark.file.reader import FileReader
from lance_spark.storage.local import LocalSource
from tests.file.sources import MemorySource
from tests.support.encodings.chunks import pages_of

ROWS = 6_000
PAGES = 8
KEY = "lance-encoding:"
PLAIN = {KEY + "compression": "none"}


def numbers() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 1 << 40, ROWS)


def texts() -> pa.Array:
    return pa.array([f"{'text ' * (n % 5)}{n}" for n in numbers().tolist()])


def mask(share: float) -> np.ndarray:
    return np.random.default_rng(3).random(ROWS) < share


def lists(items: pa.Array, seed: int = 4) -> pa.Array:
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(0, 4, len(items) // 2))
    ends = ends[ends <= len(items)]
    offsets = pa.array(np.append(0, ends), pa.int32())
    return pa.ListArray.from_arrays(offsets, items, mask=pa.array(rng.random(len(ends)) < 0.2))


def few(seed: int = 5) -> pa.Array:
    """Each page has other words, in another order."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 20, ROWS) + np.arange(ROWS) // 700 * 3
    return pa.array([f"word {n} {'o' * (n % 9)}" for n in places.tolist()])


COLUMNS: dict[str, tuple[pa.Array, dict[str, str]]] = {
    "numbers": (pa.array(numbers()), {}),
    "flat": (pa.array(numbers()), PLAIN),
    "booleans": (pa.array(mask(0.5)), {}),
    "nulls": (pa.array(numbers(), mask=mask(0.3)), {}),
    "nulls in some pages": (pa.array(numbers(), mask=mask(0.3) & (np.arange(ROWS) > 4000)), {}),
    "texts": (texts(), PLAIN),
    "texts and nulls": (pa.array(texts(), mask=mask(0.3)), PLAIN),
    "zstd": (texts(), {KEY + "compression": "zstd"}),
    "runs": (pa.array(np.repeat(numbers()[: ROWS // 40], 40)), {KEY + "dict-divisor": "100000"}),
    "words": (few(), {}),
    "words and nulls": (pa.array(few(), mask=mask(0.3)), {}),
    "dictionaries": (few().dictionary_encode(), {}),
    "vectors": (pa.FixedSizeListArray.from_arrays(pa.array(numbers()), 4), {}),
    "lists": (lists(pa.array(numbers())), {}),
    "lists of lists": (lists(lists(pa.array(numbers()))), {}),
    "lists of words": (lists(few()), {}),
    "lists of structs": (
        lists(pa.StructArray.from_arrays([pa.array(numbers()), texts()], ["a", "b"])),
        PLAIN,
    ),
}


def write(path: Path, name: str, version: str) -> pa.Array:
    """Write a column in many pages."""
    array, metadata = COLUMNS[name]
    schema = pa.schema([pa.field("c", array.type, metadata=metadata or None)])
    with LanceFileWriter(str(path), schema, version=version, data_cache_bytes=1) as writer:
        step = len(array) // PAGES
        for start in range(0, len(array), step):
            piece = pa.concat_arrays([array.slice(start, step)])
            writer.write_batch(pa.record_batch([piece], schema=schema))
    assert len(pages_of(path.read_bytes())) > 4
    return LanceFileReader(str(path)).read_all().to_table().column(0).combine_chunks()


def plain(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return array.dictionary.take(array.indices)
    return array


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", COLUMNS)
def test_whole_pages(tmp_path: Path, name: str, version: str) -> None:
    path = tmp_path / "f.lance"
    expected = plain(write(path, name, version))
    rows, step = len(expected), len(expected) // PAGES
    parts = (range(rows), range(step - 50, rows - 10), range(step, 3 * step), range(5, step + 5))
    together = mock.Mock(wraps=mini_block._one_run)
    with mock.patch.object(mini_block, "_one_run", together):
        for source in (LocalSource(str(path)), MemorySource(path.read_bytes())):
            reader = FileReader.open(source)
            for part in parts:
                (values,) = reader.read(reader.schema.fields, part)
                values.validate(full=True)
                assert plain(values).equals(expected.slice(part.start, len(part))), part
            reader.close()
    assert together.called or name == "dictionaries"


@pytest.mark.parametrize("limit", ["_MAX_VALUES", "_MAX_BYTES"])
def test_groups_are_not_large(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "f.lance"
    expected = write(path, "lists", "2.1")
    sizes = []

    def decode(self: object, *arguments: np.ndarray) -> object:
        sizes.append(int(arguments[3].sum()))
        return real(self, *arguments)

    real = mini_block.MiniBlockPage.decode
    with (
        mock.patch.object(mini_block, limit, 20_000 if limit == "_MAX_BYTES" else 2_500),
        mock.patch.object(mini_block.MiniBlockPage, "decode", decode),
    ):
        reader = FileReader.open(LocalSource(str(path)))
        (values,) = reader.read(reader.schema.fields, range(reader.num_rows))
    assert values.equals(expected)
    assert 1 < len(sizes) < len(pages_of(path.read_bytes()))
    assert max(sizes) < 4_000


@pytest.mark.parametrize("name", ["numbers", "nulls", "lists", "texts", "words"])
@pytest.mark.parametrize("page", [0, 2])
def test_a_corrupt_page_is_named(tmp_path: Path, name: str, page: int) -> None:
    """A damaged page of many has the same error as the page alone, or no error in either case."""
    path = tmp_path / "f.lance"
    write(path, name, "2.1")
    data = path.read_bytes()
    written = pages_of(data)
    result = 0
    for place in range(0, 40, 3):
        broken = bytearray(data)
        at = data.index(written[page].buffers[1].tobytes()) + place
        broken[at] ^= 0xFF
        reader = FileReader.open(MemorySource(bytes(broken)))
        fields = reader.schema.fields
        before = sum(item.num_rows for item in written[:page])
        error = None
        try:
            alone = reader.read(fields, range(before, before + written[page].num_rows))[0]
        except CorruptFileError as raised:
            error = str(raised)
        if error is None:
            whole = reader.read(fields, range(reader.num_rows))[0]
            assert whole.slice(before, len(alone)).equals(alone)
            continue
        result += 1
        assert f"page {page}" in error
        with pytest.raises(CorruptFileError) as again:
            reader.read(fields, range(reader.num_rows))
        assert str(again.value) == error
    assert result or name in ("numbers", "nulls")


def test_pages_whose_levels_are_mixed_up_are_refused(tmp_path: Path) -> None:
    """The number of rows is checked for each page, not only for all pages together."""
    path = tmp_path / "f.lance"
    write(path, "lists", "2.1")
    reader = FileReader.open(LocalSource(str(path)))
    (field,) = reader.schema.fields
    reader.read([field], range(reader.num_rows))
    (structural,) = reader._readers.values()
    (leaf,) = structural._leaves
    metas = [leaf._page(number).meta for number in (1, 2)]
    for number, rows in ((1, metas[0].num_rows + 1), (2, metas[1].num_rows - 1)):
        page = leaf._page(number)
        page._meta = page.meta = type(page.meta)(page.meta.buffers, rows, 0, page.meta.encoding)
        page._table = None
    with pytest.raises(CorruptFileError, match="page 1"):
        reader.read([field], range(reader.num_rows))
