"""Thousands of made inputs, and all inputs that once did harm: the package raises only its own
errors, soon and in little memory. `python -m tests.hostile --minutes 10` tries more inputs.

`python -m tests.hostile --minutes 10` throws more.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError, CorruptTableError, LanceError
from lance_spark.file.open import open_file
from lance_spark.mutations.indexes.existing import _field_names
from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.manifest.manifest import Manifest
from tests.file.sources import StrictSource
from tests.hostile import corpus, guard
from tests.hostile.files import worse_file
from tests.hostile.guard import Breach, guarded
from tests.hostile.session import replay, throw
from tests.hostile.targets import TARGETS
from tests.support.cells import number_of

REGRESSIONS = Path(__file__).parent / "regressions"
INPUTS = number_of(130, 20_000)
SEED = 20_261_122

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")


def test_made_inputs() -> None:
    outcome = throw(SEED, INPUTS, 900)
    assert [(name, problem) for name, problem, _ in outcome.failures] == []
    assert outcome.inputs.total() == INPUTS
    assert outcome.inputs.keys() == TARGETS.keys()
    # More than half of the inputs are damaged enough to be refused.
    assert outcome.refused.total() > INPUTS / 2


def test_inputs_that_did_harm() -> None:
    paths = sorted(path for path in REGRESSIONS.glob("*/*") if path.is_file())
    assert paths
    assert sum(path.stat().st_size for path in paths) < 1 << 20
    assert replay(paths) == []


def test_most_inputs_get_past_the_footer() -> None:
    rng = random.Random(SEED)
    opened = 0
    for _ in range(200):
        data = worse_file(rng.choice(corpus.files("2.2")), rng)
        try:
            open_file(StrictSource(data))
        except LanceError:
            continue
        opened += 1
    assert opened > 150


def test_names_nested_without_end() -> None:
    proto = table_pb2.Manifest()
    for number in range(5_000):
        proto.fields.add(id=number, parent_id=number - 1, name="n" * 100)
    proto.fields[0].parent_id = -1
    manifest = Manifest(proto, "m")

    def names(_data: bytes) -> None:
        _field_names(manifest)

    error = guarded(names, b"")
    assert isinstance(error, CorruptTableError)
    assert "nested" in str(error)


def test_casts_beside_a_damaged_index_section(tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(corpus.table("old"), path)
    file = corpus.newest(path)
    manifest = decode(file.read_bytes(), "m")
    file.write_bytes(encode(manifest.to_proto(), b"\xff" * 40, None))
    with pytest.raises(CorruptTableError, match="index section"):
        lance_spark.open_dataset(str(path)).alter_columns({"path": "i", "data_type": pa.int32()})


def test_rows_that_no_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(corpus.table("plain"), path)
    file = corpus.newest(path)
    manifest = decode(file.read_bytes(), "m")
    proto = manifest.to_proto()
    for fragment in proto.fragments:
        fragment.physical_rows = 2**32
        del fragment.files[:]
    file.write_bytes(encode(proto, None, None))
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.count_rows() > 2**32

    def look(_data: bytes) -> None:
        assert next(dataset.to_batches()).num_rows
        assert next(dataset.to_batches(filter="i IS NULL")).num_rows
        assert dataset.to_table(filter="i = -5").num_rows == 0

    assert guarded(look, b"") is None


def test_the_guard_reports_broken_rules() -> None:
    def hides_a_lack_of_memory(data: bytes) -> None:
        try:
            bytearray(1 << 40)
        except MemoryError as error:
            raise CorruptFileError("of no use") from error

    def loops(data: bytes) -> None:
        while True:
            pass

    def refuses(data: bytes) -> None:
        raise CorruptFileError("as it should")

    for run, seconds, problem in (
        (hides_a_lack_of_memory, None, "MemoryError behind CorruptFileError"),
        (lambda data: bytearray(2 * guard.MEMORY), None, "MemoryError"),
        (lambda data: data[0], None, "IndexError"),
        (loops, 0.05, "TooSlow"),
    ):
        with pytest.raises(Breach, match=problem):
            guarded(run, b"", seconds)
    assert isinstance(guarded(refuses, b""), CorruptFileError)
    assert guarded(len, b"") is None
