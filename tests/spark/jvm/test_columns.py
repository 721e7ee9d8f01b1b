"""Columns that Java reads from the bytes of an Arrow stream, compared with Spark's Arrow
vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.spark.jvm import classes
from lance_spark.spark.pushdown.columnar import streams, to_streams
from lance_spark.spark.types.mapping import batch_schema, to_spark_schema
from lance_spark.spark.write.input import decode
from tests.support.cells import number_of
from tests.support.interop.tables import random_table
from tests.support.spark.converted import converted

TABLES = number_of(60, 1_000)
FLIPS = number_of(100, 20_000)
#: Reads all rows of messages, also of messages with changed bytes.
HELPER = """
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

public class Decoded {
  public static Object[] rows(Object messages, byte[] bytes, int length, Object schema)
      throws Exception {
    Method read = messages.getClass().getDeclaredMethod(
        "read", new Class[] {byte[].class, int.class, int.class});
    read.setAccessible(true);
    ColumnarBatch batch = (ColumnarBatch) read.invoke(
        messages, new Object[] {bytes, Integer.valueOf(0), Integer.valueOf(length)});
    UnsafeProjection copier = UnsafeProjection.create((StructType) schema);
    Object[] rows = new Object[batch.numRows()];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = copier.apply(batch.getRow(i)).copy();
    }
    return rows;
  }

  /** Returns the batches of rows that a writer gets. */
  public static List batches(Object rows, Constructor make, Object schema) throws Exception {
    java.util.Iterator batches = (java.util.Iterator) make.newInstance(
        new Object[] {java.util.Arrays.asList((Object[]) rows).iterator(), schema});
    List values = new ArrayList();
    while (batches.hasNext()) {
      values.add(((InternalRow) batches.next()).getBinary(0));
    }
    return values;
  }

  /** Returns whether two arrays of rows are equal. */
  public static boolean equal(Object left, Object right) {
    return java.util.Arrays.equals((Object[]) left, (Object[]) right);
  }

  /** Returns how many of the changed messages raise an error. */
  public static int refused(
      Constructor make, Object schema, byte[] bytes, int changes, int most, int seed)
      throws Exception {
    Random random = new Random(seed);
    int refused = 0;
    for (int i = 0; i < changes; i++) {
      byte[] changed = (byte[]) bytes.clone();
      int length = changed.length;
      if (i % 4 == 0) {
        length = random.nextInt(length);
      } else {
        int at = random.nextInt(Math.min(most, length));
        changed[at] = i % 4 == 1 ? (byte) random.nextInt(256)
            : (byte) (changed[at] ^ (1 << random.nextInt(8)));
      }
      try {
        rows(make.newInstance(new Object[] {schema}), changed, length, schema);
      } catch (java.lang.reflect.InvocationTargetException e) {
        if (!(e.getCause() instanceof RuntimeException)) {
          throw e;
        }
        refused++;
      } catch (RuntimeException e) {
        refused++;
      }
    }
    return refused;
  }
}
"""


class Jvm:
    """Reads messages in the JVM."""

    def __init__(self, spark: Any) -> None:
        lance_spark.enable(spark)
        self.loader = classes.loaded_extension(spark).getClassLoader()
        self.gateway, self.jvm = spark.sparkContext._gateway, spark.sparkContext._jvm
        compiler = self.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self.loader)
        compiler.cook(HELPER)
        self.helper = compiler.getClassLoader().loadClass("Decoded")
        reader = self.loader.loadClass(f"{classes.PACKAGE}.ArrowStreams")
        (self.make,) = reader.getDeclaredConstructors()
        self.make.setAccessible(True)

    def _call(self, owner: Any, name: str, *arguments: Any) -> Any:
        (method,) = [item for item in owner.getDeclaredMethods() if item.getName() == name]
        method.setAccessible(True)
        values = self.gateway.new_array(self.jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            values[index] = argument
        return method.invoke(None, values)

    def schema(self, schema: spark_types.StructType) -> Any:
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())

    def reader(self, schema: Any) -> Any:
        values = self.gateway.new_array(self.jvm.java.lang.Object, 1)
        values[0] = schema
        return self.make.newInstance(values)

    def rows(self, reader: Any, message: bytes, schema: Any) -> Any:
        return self._call(self.helper, "rows", reader, bytearray(message), len(message), schema)

    def refused(self, message: bytes, schema: Any, changes: int, most: int) -> int:
        return int(
            self._call(
                self.helper, "refused", self.make, schema, bytearray(message), changes, most, 7
            )
        )

    def rows_of_spark(self, stream: bytes, schema: Any) -> Any:
        """Return the rows, read by Spark's vectors."""
        owner = self.loader.loadClass(f"{classes.PACKAGE}.Rows")
        (method,) = [item for item in owner.getDeclaredMethods() if item.getName() == "of"]
        method.setAccessible(True)
        values = self.gateway.new_array(self.jvm.java.lang.Object, 4)
        values[0], values[1], values[2], values[3] = bytearray(stream), 0, len(stream), schema
        return method.invoke(None, values)

    def batches(self, rows: Any, schema: Any) -> list[bytes]:
        """Return the rows as a writer gets them."""
        (make,) = self.loader.loadClass(f"{classes.PACKAGE}.BatchBuilder").getDeclaredConstructors()
        make.setAccessible(True)
        return [bytes(value) for value in self._call(self.helper, "batches", rows, make, schema)]

    def equal(self, left: Any, right: Any) -> bool:
        return bool(self._call(self.helper, "equal", left, right))


@pytest.fixture(scope="module")
def jvm(spark: Any) -> Jvm:
    return Jvm(spark)


def message_of(batch: pa.RecordBatch) -> bytes:
    (row,) = streams(iter([batch]))
    return bytes(row.column("batch")[0].as_buffer())


def stream_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def random_batches(first: int) -> Iterator[tuple[int, spark_types.StructType, pa.RecordBatch]]:
    """Yield fifty random tables, except tables with types that Spark lacks."""
    for seed in range(first, first + 50):
        result = converted(random_table(seed, maps=True))
        if result is not None:
            yield (seed, *result)


@pytest.mark.parametrize("first", range(0, TABLES, 50))
def test_random_tables(jvm: Jvm, first: int) -> None:
    compared = 0
    for seed, schema, batch in random_batches(first):
        assert to_streams(spark_types.StructType(list(schema.fields))) == "yes"
        java_schema = jvm.schema(schema)
        reader = jvm.reader(java_schema)
        rng = np.random.default_rng(seed)
        start = int(rng.integers(0, batch.num_rows + 1))
        for part in (batch, batch.slice(start), batch.slice(0, start)):
            rows = jvm.rows(reader, message_of(part), java_schema)
            assert len(rows) == part.num_rows
            assert jvm.equal(rows, jvm.rows_of_spark(stream_of(part), java_schema)), seed
        compared += batch.num_rows > 0
    assert compared > 20


ROWS = 1_500
NUMBERS = np.arange(ROWS)
ABSENT = NUMBERS % 7 == 3
WORDS = pa.array([f"wörd {n % 90}" * (n % 3) for n in NUMBERS], mask=ABSENT)
LISTS = pa.array([None if n % 5 == 0 else [n, None, -n][: n % 4] for n in NUMBERS])
VECTORS = pa.array([None if n % 5 == 0 else [n / 4, -n, None] for n in NUMBERS])


@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (WORDS, pa.large_string()),
        (WORDS, pa.dictionary(pa.int8(), pa.string())),
        (WORDS, pa.dictionary(pa.int16(), pa.large_string())),
        (WORDS, pa.dictionary(pa.int32(), pa.string())),
        (WORDS.cast(pa.binary()), pa.dictionary(pa.int32(), pa.binary())),
        (WORDS.cast(pa.binary()), pa.large_binary()),
        (LISTS, pa.large_list(pa.int64())),
        (VECTORS, pa.list_(pa.float64(), 3)),
        (pa.nulls(ROWS, pa.string()), pa.null()),
        (pa.nulls(ROWS, pa.list_(pa.int32())), pa.null()),
        (pa.nulls(ROWS, pa.struct([("a", pa.int32())])), pa.null()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_other_types_in_the_stream(jvm: Jvm, array: pa.Array, stored: pa.DataType) -> None:
    schema = jvm.schema(to_spark_schema(pa.schema([pa.field("x", array.type)])))
    reader = jvm.reader(schema)
    for start, count in ((0, ROWS), (100, 1_001), (5, 1), (7, 0)):
        plain = pa.record_batch({"x": array.slice(start, count)})
        encoded = pa.nulls(count) if pa.types.is_null(stored) else plain["x"].cast(stored)
        rows = jvm.rows(reader, message_of(pa.record_batch({"x": encoded})), schema)
        assert jvm.equal(rows, jvm.rows_of_spark(stream_of(plain), schema))


def test_columns_without_values_take_no_bytes(jvm: Jvm) -> None:
    types = [pa.int64(), pa.string(), pa.list_(pa.float32()), pa.struct([("a", pa.int8())])]
    plain = pa.record_batch(
        {str(number): pa.nulls(ROWS, item) for number, item in enumerate(types)}
    )
    plain = plain.append_column("id", pa.array(NUMBERS))
    schema = jvm.schema(to_spark_schema(plain.schema))
    stream = message_of(plain)
    assert len(stream) < NUMBERS.nbytes + 2_000
    rows = jvm.rows(jvm.reader(schema), stream, schema)
    assert jvm.equal(rows, jvm.rows_of_spark(stream_of(plain), schema))


def test_large_batches_are_split() -> None:
    table = pa.record_batch({"id": pa.array(range(40)), "x": pa.array(["y" * 10**6] * 40)})
    parts = [row.column("batch")[0].as_buffer() for row in streams(iter([table]))]
    assert len(parts) > 5
    assert max(part.size for part in parts) < 9 << 20
    rows = pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts])
    assert rows.equals(pa.table(table))
    (part,) = [row.column("batch")[0].as_buffer() for row in streams(iter([table.slice(0, 1)]))]
    assert pa.ipc.open_stream(part).read_all().num_rows == 1


def everything() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": NUMBERS,
            "word": WORDS,
            "coded": WORDS.cast(pa.dictionary(pa.int8(), pa.string())),
            "flag": pa.array(NUMBERS % 2 == 0, mask=ABSENT),
            "list": LISTS,
            "vector": VECTORS.cast(pa.list_(pa.float64(), 3)),
            "money": pa.array(NUMBERS).cast(pa.decimal128(38, 2)),
            "map": pa.array([[("a", n)] * (n % 3) for n in NUMBERS], pa.map_("string", "int64")),
            "struct": pa.StructArray.from_arrays([WORDS, pa.array(NUMBERS)], ["s", "n"]),
        }
    )


def test_damaged_messages_are_errors(jvm: Jvm) -> None:
    """No input ends the JVM: each input is read or refused."""
    batch = everything()
    schema = jvm.schema(to_spark_schema(batch.schema))
    message = message_of(batch)
    assert len(jvm.rows(jvm.reader(schema), message, schema)) == ROWS
    # The first 4,000 bytes have the schema, and the dictionary with its metadata.
    assert FLIPS // 3 < jvm.refused(message, schema, FLIPS, 4_000) < FLIPS
    assert jvm.refused(message, schema, FLIPS, len(message)) >= FLIPS // 4


@pytest.mark.parametrize("first", range(0, TABLES, 50))
def test_random_rows_are_written(jvm: Jvm, first: int) -> None:
    compared = 0
    for seed, schema, batch in random_batches(first):
        java_schema = jvm.schema(schema)
        rows = jvm.rows_of_spark(stream_of(batch), java_schema)
        parts = [
            decode(pa.py_buffer(value), batch.schema) for value in jvm.batches(rows, java_schema)
        ]
        table = pa.Table.from_batches(parts, schema=batch.schema)
        table.validate(full=True)
        assert table.equals(pa.table(batch)), seed
        compared += batch.num_rows > 0
    assert compared > 20


VARIANTS = """
    SELECT if(id % 7 = 3, NULL, parse_json(concat('{"a": [', id, ', null], "b": "',
        repeat('wörd', int(id % 90)), '"}'))) AS v,
      if(id % 5 = 1, NULL, named_struct('x', if(id % 2 = 0, NULL, parse_json('[1, 2.5]')))) AS s,
      if(id % 3 = 1, NULL, array(parse_json('null'), NULL, to_variant_object(array(id)))) AS l,
      map('k', parse_json(string(id)), 'n', NULL) AS m,
      if(id = 700, parse_json(concat('"', repeat('y', 5000000), '"')), NULL) AS large
    FROM range(0, 1500, 1, 1)
"""


def stored(value: Any) -> Any:
    """Return a value that Spark collects, as pyarrow returns it. A variant is a struct."""
    if isinstance(value, spark_types.VariantVal):
        return {"value": bytes(value.value), "metadata": bytes(value.metadata)}
    if isinstance(value, spark_types.Row):
        return {name: stored(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return [(key, stored(item)) for key, item in sorted(value.items())]
    return [stored(item) for item in value] if isinstance(value, list) else value


def batches_of(jvm: Jvm, frame: Any) -> list[pa.RecordBatch]:
    """Return the rows of a query as a writer gets them."""
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    values = jvm.batches(rows, frame._jdf.schema())
    parts = [decode(pa.py_buffer(value), batch_schema(frame.schema)) for value in values]
    for part in parts:
        part.validate(full=True)
    return parts


def test_variants_are_written(jvm: Jvm, spark: Any) -> None:
    frame = spark.sql(VARIANTS)
    parts = batches_of(jvm, frame)
    assert len(parts) > 1, "a large value ends a batch"
    rows = [stored(row) for row in frame.collect()]
    assert pa.Table.from_batches(parts).to_pylist() == rows


def test_user_defined_types_are_written(jvm: Jvm, spark: Any) -> None:
    from pyspark.ml.linalg import Vectors, VectorUDT

    vectors = [Vectors.dense([1.0, 2.0]), None, Vectors.sparse(3, [1], [9.0])]
    frame = spark.createDataFrame([(vector, [vector]) for vector in vectors], ["v", "l"])
    (part,) = batches_of(jvm, frame)
    names = VectorUDT.sqlType().names
    values = [
        None if vector is None else dict(zip(names, VectorUDT().serialize(vector), strict=True))
        for vector in vectors
    ]
    assert part["v"].to_pylist() == values
    assert part["l"].to_pylist() == [[value] for value in values]


def test_batches_of_writes_are_bounded(jvm: Jvm) -> None:
    """A batch ends after a number of rows or bytes."""
    batch = pa.record_batch({"x": pa.array(["x" * 1_500_000] * 7)})
    schema = jvm.schema(to_spark_schema(batch.schema))
    values = jvm.batches(jvm.rows_of_spark(stream_of(batch), schema), schema)
    parts = [decode(pa.py_buffer(value), batch.schema) for value in values]
    assert [part.num_rows for part in parts] == [3, 3, 1]
    late = pa.record_batch({"x": pa.array(["y"] * 100 + ["x" * 1_500_000] * 7)})
    values = jvm.batches(jvm.rows_of_spark(stream_of(late), schema), schema)
    parts = [decode(pa.py_buffer(value), late.schema) for value in values]
    assert [part.num_rows for part in parts] == [103, 3, 1]
    many = pa.record_batch({"x": pa.nulls(70_000, pa.int8())})
    schema = jvm.schema(to_spark_schema(many.schema))
    values = jvm.batches(jvm.rows_of_spark(stream_of(many), schema), schema)
    parts = [decode(pa.py_buffer(value), many.schema) for value in values]
    assert [part.num_rows for part in parts] == [65_536, 4_464]
    assert pa.Table.from_batches(parts).equals(pa.table(many))


def test_damaged_batches_of_writes_are_errors(jvm: Jvm) -> None:
    batch = everything().drop_columns(["coded", "vector"])
    schema = jvm.schema(to_spark_schema(batch.schema))
    (value,) = jvm.batches(jvm.rows_of_spark(stream_of(batch), schema), schema)
    decoded = decode(pa.py_buffer(value), batch.schema)
    assert decoded.equals(batch)
    columns, buffers = np.frombuffer(value, np.int64)[1:3].tolist()
    words = 3 + 2 * (columns + buffers)
    refused = 0
    for word in range(words):
        for wrong in (-1, 2**40):
            changed = np.frombuffer(value, np.int64, words).copy()
            changed[word] = wrong
            damaged = changed.tobytes() + value[8 * words :]
            try:
                decode(pa.py_buffer(damaged), batch.schema).validate(full=True)
            except (LanceError, pa.ArrowInvalid):
                refused += 1
    assert refused >= 2 * words - columns
    for length in (0, 8, 8 * words - 8, len(value) // 2):
        with pytest.raises(LanceError, match="cannot be read"):
            decode(pa.py_buffer(value[:length]), batch.schema)
