"""Java classes with their own logic, called by py4j."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

import lance_spark
from lance_spark.spark import replies
from lance_spark.spark.jvm import classes
from tests.support.spark.requests import parsed as parsed_reply

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def call(spark: Any) -> Call:
    """Call a static method of a class that is not public, by the names of class and method."""
    lance_spark.enable(spark)
    loader = classes.loaded_extension(spark).getClassLoader()
    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm

    def static(name: str, method: str, *arguments: Any) -> Any:
        methods = loader.loadClass(f"{classes.PACKAGE}.{name}").getDeclaredMethods()
        (chosen,) = [
            candidate
            for candidate in methods
            if candidate.getName() == method
            and len(candidate.getParameterTypes()) == len(arguments)
        ]
        chosen.setAccessible(True)
        objects = gateway.new_array(jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            objects[index] = argument
        return chosen.invoke(None, objects)

    return static


@pytest.fixture(scope="module")
def dtype(spark: Any) -> Callable[[str], Any]:
    """Return Spark's type in Java by its name in SQL."""
    return spark.sparkContext._jvm.org.apache.spark.sql.types.DataType.fromDDL


@pytest.fixture(scope="module")
def parsed(spark: Any) -> Callable[[Any], Any]:
    """Return a value as Java parses it from JSON."""
    jvm = spark.sparkContext._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    anything = jvm.java.lang.Class.forName("java.lang.Object")
    return lambda value: mapper.readValue(json.dumps(value), anything)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("int", 7),
        ("bigint", 2**40),
        ("double", 0.5),
        ("boolean", True),
        ("string", "é'\\ 𝄞"),
        ("timestamp", 1_700_000_000_000_001),
        ("array<int>", [1, None, -3]),
        ("array<array<string>>", [["a"], [], None]),
        ("map<string,bigint>", {"b": 1, "a": None}),
        ("array<string>", []),
        ("string", None),
    ],
)
def test_values_of_procedures_survive_both_ways(
    call: Call,
    dtype: Callable[[str], Any],
    parsed: Callable[[Any], Any],
    type_name: str,
    value: Any,
) -> None:
    spark_value = call("Values", "toSpark", parsed(value), dtype(type_name))
    back = call("Values", "toJson", spark_value, dtype(type_name))
    assert json.loads(call("Forms", "json", back)) == value


def test_rows_of_procedures(
    call: Call, dtype: Callable[[str], Any], parsed: Callable[[Any], Any]
) -> None:
    columns = dtype(
        "struct<n: bigint, at: timestamp, words: array<string>, f: double, nothing: int>"
    )
    row = call("Values", "toSpark", parsed([1, 2, ["x", None], 3, None]), columns)
    # JSON has one type of numbers. Spark fails if a value has another class than its type needs.
    assert [row.getLong(0), row.getLong(1), row.getDouble(3)] == [1, 2, 3.0]
    assert row.getArray(2).getUTF8String(0).toString() == "x"
    assert row.getArray(2).isNullAt(1)
    assert row.isNullAt(4)


def test_literals_of_requests(call: Call, dtype: Callable[[str], Any]) -> None:
    literal = call("Forms", "literal", bytearray(b"\x00\x7f\xff"), dtype("binary"))
    assert dict(literal) == {"lit": "007fff", "type": "binary"}
    literal = call("Forms", "literal", None, dtype("decimal(5,2)"))
    assert dict(literal) == {"lit": None, "type": "decimal(5,2)"}
    for name in "array<int>", "struct<a: int>", "string collate unicode_ci", "interval month":
        assert call("Forms", "literal", None, dtype(name)) is None


def test_replies_are_found_in_pickles(call: Call) -> None:
    def found(pickled: bytes, kind: str) -> tuple[dict[str, Any], bytes] | None:
        reply = call("Reply", "in", bytearray(pickled), kind)
        if reply is None:
            return None
        values = {}
        for name in ("header", "bytes", "start", "length"):
            field = reply.getClass().getDeclaredField(name)
            field.setAccessible(True)
            values[name] = field.get(reply)
        start = values["start"]
        return dict(values["header"]), bytes(values["bytes"])[start : start + values["length"]]

    # A name of a user that looks like the mark.
    name = replies.MARK.decode("latin-1")
    data = bytes(range(256)) * 300
    pickled = pickle.dumps([name, replies.reply_of("plan", data, table=name, rows=2**40), "x"])
    assert found(pickled, "plan") == ({"kind": "plan", "table": name, "rows": 2**40}, data)
    assert found(pickled, "plan") == parsed_reply(pickled)
    assert found(pickled, "call") is None
    assert found(pickled[:2000], "plan") is None
    assert found(pickle.dumps(name), "plan") is None
    # Bytes of a user are no reply, whatever follows the mark.
    for rest in (b"", b"\xff" * 20, b"\0\0\0\2\0\0\0\0{]"):
        assert found(pickle.dumps(replies.MARK + rest), "plan") is None


def test_chains_of_conditions_are_flattened(call: Call, spark: Any) -> None:
    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm

    def operation(name: str, *forms: Any) -> Any:
        objects = gateway.new_array(jvm.java.lang.Object, len(forms))
        for index, form in enumerate(forms):
            objects[index] = form
        return call("Forms", "operation", name, objects)

    a, b, c = (call("Forms", "column", name) for name in "abc")
    nested = operation("and", operation("and", a, b), operation("or", b, c))
    assert json.loads(call("Forms", "json", nested)) == {
        "op": "and",
        "args": [
            {"col": "a"},
            {"col": "b"},
            {"op": "or", "args": [{"col": "b"}, {"col": "c"}]},
        ],
    }
    # A part without a form makes the whole condition lack a form.
    assert operation("and", a, None) is None

    deep = a
    for _ in range(100):
        deep = operation("not", deep)
    assert call("Forms", "isSent", deep)
    assert not call("Forms", "isSent", operation("not", operation("not", deep)))
    assert not call("Forms", "isSent", None)
    assert call("Forms", "isSent", operation("or", *[b] * 10_000))
    assert not call("Forms", "isSent", operation("or", *[b] * 10_001))
    assert call("Forms", "isSent", operation("in", a, *[b] * 10_000))
    assert not call("Forms", "isSent", operation("in", a, *[b] * 10_001))


def test_packed_columns(call: Call, dtype: Callable[[str], Any]) -> None:
    columns = dtype("struct<a: array<float>, b: array<string>, c: array<tinyint>, d: int>")
    names = call("Packing", "columns", columns)
    assert list(names) == ["a", "c"]
    packed = call(
        "Packing", "schema", columns, names, dtype("struct<a: binary>").apply(0).dataType()
    )
    assert packed.catalogString() == (
        "struct<a:binary,b:array<string>,c:binary,d:int,"
        "__lance_items_0:array<float>,__lance_items_1:array<tinyint>>"
    )
    # The given schema does not change.
    assert columns.fields()[0].dataType().catalogString() == "array<float>"
    taken = dtype("struct<a: array<float>, __lance_items_0: int>")
    assert list(call("Packing", "columns", taken)) == []


def test_the_narrowest_column_is_counted(call: Call, dtype: Callable[[str], Any]) -> None:
    columns = dtype("struct<s: string, n: bigint, b: boolean, i: int>")
    assert call("Forms", "narrowest", columns).catalogString() == "struct<b:boolean>"


#: Extensions that stop while the first rule is added, and a thread that adds the rules.
_SLOW = """
public class Slow extends org.apache.spark.sql.SparkSessionExtensions implements Runnable {
  public final java.util.concurrent.CountDownLatch reached =
      new java.util.concurrent.CountDownLatch(1);
  public final java.util.concurrent.CountDownLatch open =
      new java.util.concurrent.CountDownLatch(1);
  public scala.Function1 extension;

  public void injectPreCBORule(scala.Function1 rule) {
    reached.countDown();
    try {
      open.await();
    } catch (InterruptedException e) {
      throw new RuntimeException(e);
    }
    super.injectPreCBORule(rule);
  }

  public void run() {
    extension.apply(this);
  }
}
"""


def test_no_session_goes_on_with_a_part_of_the_rules(spark: Any, call: Call) -> None:
    jvm = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(classes.loaded_extension(spark).getClassLoader())
    compiler.cook(_SLOW)
    slow = compiler.getClassLoader().loadClass("Slow")
    extensions = slow.newInstance()
    extension = classes.loaded_extension(spark).newInstance()
    slow.getField("extension").set(extensions, extension)
    reached, opened = (slow.getField(name).get(extensions) for name in ("reached", "open"))
    first, second = (jvm.java.lang.Thread(extensions) for _ in range(2))
    try:
        first.start()
        assert getattr(reached, "await")(10, jvm.java.util.concurrent.TimeUnit.SECONDS)
        second.start()
        while (state := second.getState().toString()) not in ("BLOCKED", "TERMINATED"):
            time.sleep(0.01)
    finally:
        opened.countDown()
    first.join()
    second.join()
    assert state == "BLOCKED"
