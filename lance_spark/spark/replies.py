"""Replies: what Python answers to the Java classes, inside of the pickles that Spark carries.

Spark passes pickles of partitions, functions, messages and accumulators from Python to the JVM. A
reply is a value of bytes in such a pickle, which stands there in one piece:

| bytes | what |
| --- | --- |
| 13 | `MARK`. Its first byte occurs in no text, so that no name of a user looks like it |
| 4 | length of the header, big endian |
| 4 | length of the data, big endian |
| | the header: a JSON object, whose key `kind` says what the reply is about |
| | the data; none for most replies |

`Reply.java` reads replies.

| kind | in the pickle of | written by |
| --- | --- | --- |
| `call` | the first partition | `lance_spark.spark.catalog.calls` |
| `plan` | the first partition | `lance_spark.spark.read.planning` |
| `stream` | the function that reads a stream | `lance_spark.spark.streaming.reader` |
| `read` | an accumulator | `lance_spark.spark.read.reader` |
| `written` | the message of a task of a write | `lance_spark.spark.write.writer` |
"""

from __future__ import annotations

import json
import struct
from operator import index
from typing import Any, Literal

MARK = b"\xfflance-reply\xff"
#: The lengths of the header and of the data.
LENGTHS = struct.Struct(">II")

Kind = Literal["call", "plan", "stream", "read", "written"]


def reply_of(kind: Kind, data: bytes = b"", /, **header: Any) -> bytes:
    """Return a reply with the values of its header."""
    # Counts may be integers of numpy.
    text = json.dumps({"kind": kind, **header}, default=index).encode()
    return MARK + LENGTHS.pack(len(text), len(data)) + text + data
