"""The data source "lance": the entry point of Spark for reads, writes and streams.

Spark creates and pickles this object in short-lived Python processes, one for each step of
planning. So this module imports little, and each step imports what it needs.

`CREATE TABLE t USING lance LOCATION ...` asks the data source for the schema with all options, and
Spark's catalog keeps that schema. A later SELECT passes the schema without the options. The
metadata of its first column therefore holds the options, and a read without a path takes them from
there. A write does not: the metadata stays in every DataFrame that was read from the table, so a
write of such a DataFrame would go to the table that it was read from.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import copy
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from lance_spark.spark.jvm.shims.pyspark_names import check_supported
from lance_spark.spark.python_process import leave_modules_uncollected, plain_messages

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructField, StructType

    from lance_spark.spark.write.row_changes import RowChangeWriter
    from lance_spark.spark.write.writer import LanceWriter

#: Key of the metadata of the first field of a schema for Spark's catalog, which holds options.
_KEY = "lance_spark.options"
#: Option of a write that has the sources of locators to blobs (`write.locators`).
_LOCATORS = "blob_locators"


class LanceDataSource(DataSource):
    """Lance tables as a Spark data source.

    Examples
    --------
    >>> df = spark.read.format("lance").load("/data/flights.lance")
    >>> df = spark.read.format("lance").option("version", 3).load("/data/flights.lance")
    >>> df.write.format("lance").mode("append").save("/data/flights.lance")
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Not when the module is imported: Spark imports it also to look for other formats.
        check_supported()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lance"

    def schema(self) -> StructType:
        """Return the Spark schema of the version, reduced to the columns of the options.

        Raises InvalidOptionError, TableNotFoundError, VersionNotFoundError, UnsupportedTypeError.
        """
        from lance_spark.spark.options.read import ReadOptions
        from lance_spark.spark.read.reader import table_schema
        from lance_spark.spark.types.mapping import to_spark_schema

        leave_modules_uncollected()
        options = ReadOptions.parse(self.options)
        if options.feed and not is_for_catalog(self.options):
            from lance_spark.spark.options.feed import FeedOptions
            from lance_spark.spark.streaming.change_feed import feed_schema

            feed = FeedOptions.parse(options)
            if feed.read_change_feed:
                return to_spark_schema(feed_schema(options, feed))
        schema = to_spark_schema(table_schema(options))
        if is_for_catalog(self.options):
            return with_options(schema, self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for a schema of the table, of the user or of the optimizer rule.

        A request is removed from the schema, in place.

        Raises InvalidOptionError. Raises UnsupportedError: a request has parts that this release
        does not support.
        """
        from lance_spark.errors import error_context
        from lance_spark.spark.catalog.calls import CallReader, take_call
        from lance_spark.spark.pushdown.request import take_request

        leave_modules_uncollected()
        call = take_call(schema)
        if call is not None:
            return CallReader(call)
        last = schema.fields[-1] if schema.fields else None
        # pyspark checks the batches against this very object.
        request = take_request(schema)
        from lance_spark.spark.options.read import ReadOptions
        from lance_spark.spark.read.reader import LanceReader, display

        first = schema.fields[0] if schema.fields else None
        carrier = first if request is None else last
        options = ReadOptions.parse(options_of(carrier, self.options))
        if options.feed:
            from lance_spark.spark.options.feed import FeedOptions
            from lance_spark.spark.pushdown.request import refused
            from lance_spark.spark.streaming.change_feed import ChangeFeedReader

            if request is not None:
                raise refused("a change feed takes no requests", "option readChangeFeed")
            return ChangeFeedReader(options, FeedOptions.parse(options), schema)
        columns, columnar = copy(schema), None
        if request is not None and request.packed:
            from lance_spark.spark.pushdown.columnar import pack

            pack(schema, request.packed)
        if request is not None and request.columnar:
            from lance_spark.spark.pushdown.columnar import to_streams

            columnar = to_streams(schema)
        with error_context(display(options.path)):
            return LanceReader(options, columns, request, columnar)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for a schema. It records the current version.

        Raises InvalidOptionError, SchemaMismatchError, UnsupportedTypeError.
        """
        options = dict(self.options)
        sources = None
        if _LOCATORS in options:
            from lance_spark.spark.write.locators import BlobSources

            sources = BlobSources.parse(options.pop(_LOCATORS))
        writer: RowChangeWriter | LanceWriter
        if "row_changes" in options:
            from lance_spark.spark.write.row_changes import make_row_change_writer

            writer = make_row_change_writer(options)
        else:
            from lance_spark.spark.options.write import WriteOptions
            from lance_spark.spark.write.planning import make_writer

            writer = make_writer(WriteOptions.parse(options), schema, overwrite)
        writer.schema, writer.sources = schema, sources
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the stream reader for a schema of the table or of the user.

        An option that is wrong is an error of the first call of the reader: Spark hides errors of
        this method behind one of its own.
        """
        from lance_spark.errors import LanceError, error_context
        from lance_spark.spark.options.feed import FeedOptions
        from lance_spark.spark.options.read import ReadOptions
        from lance_spark.spark.pushdown.request import PushedScan, refused, take_request
        from lance_spark.spark.read.reader import display
        from lance_spark.spark.streaming.reader import LanceStreamReader, RefusedReader

        first = schema.fields[0] if schema.fields else None
        request = take_request(schema)
        try:
            options = ReadOptions.parse(options_of(first, self.options))
            with error_context(display(options.path)):
                feed = FeedOptions.parse(options)
                if request is None:
                    return LanceStreamReader(options, feed, schema)
                from lance_spark.spark.pushdown.columnar import to_streams

                shared = request.shared_memory
                if request != PushedScan(columnar=True, shared_memory=shared):
                    raise refused("a stream is only asked for columns", request)
                columns = copy(schema)
                return LanceStreamReader(options, feed, columns, to_streams(schema), shared)
        except LanceError as error:
            return RefusedReader(error)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the stream writer for a schema. Each batch becomes one version.

        Raises InvalidOptionError.
        """
        from lance_spark.spark.options.write import WriteOptions
        from lance_spark.spark.streaming.upserts import LanceUpsertWriter
        from lance_spark.spark.streaming.writer import LanceStreamWriter

        with plain_messages():
            options = WriteOptions.parse(self.options)
            writer = LanceUpsertWriter if options.upsert else LanceStreamWriter
            return writer(options, schema, overwrite)


def is_for_catalog(options: Mapping[str, str]) -> bool:
    """Return whether the options belong to a table of the catalog."""
    return "provider" in options


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema for the catalog, which holds the options that find the table again.

    Raises InvalidOptionError: the options have settings of the store, which may be secrets and do
    not belong in a schema; or they are options of a change feed.
    """
    import json

    from pyspark.sql.types import StructField, StructType

    from lance_spark.errors import InvalidOptionError
    from lance_spark.spark.options.declared import READ_NAMES
    from lance_spark.spark.options.read import ReadOptions
    from lance_spark.storage.uri import parse_uri

    parsed = ReadOptions.parse(options)
    if parsed.feed:
        raise InvalidOptionError(
            f"option {next(iter(parsed.feed))} does not apply to tables of Spark's catalog: read "
            "a change feed by spark.read, or a stream by spark.readStream, with the table's path"
        )
    location = parse_uri(parsed.path)
    if parsed.storage_options or location.display != location.uri:
        raise InvalidOptionError(
            "a table of Spark's catalog cannot store storage options: set them in the environment "
            "of the cluster, or use CREATE TEMPORARY VIEW v USING lance OPTIONS (...)"
        )
    kept = {name: options[name] for name in ("path", *READ_NAMES) if name in options}
    first, *other_fields = schema.fields
    metadata = {**first.metadata, _KEY: json.dumps(kept)}
    return StructType(
        [StructField(first.name, first.dataType, first.nullable, metadata), *other_fields]
    )


def options_of(field: StructField | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: the given options, and options that the catalog's schema holds.

    - `field`: First field of the schema, or the field of a request, which has the metadata of the
      first.
    """
    import json

    read_options: dict[str, Any] = dict(options)
    if "path" in options or field is None:
        return read_options
    kept = field.metadata.get(_KEY)
    return {**json.loads(kept), **read_options} if kept else read_options
