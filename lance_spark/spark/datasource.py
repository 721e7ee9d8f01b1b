"""The data source "lance": the entry point of Spark for reads, writes and streams.

Spark creates and pickles this object in short-lived Python processes, one for each step of
planning. So this module imports little, and each step imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LanceDataSource(DataSource):
    """Lance tables as a Spark data source.

    Examples
    --------
    >>> df = spark.read.format("lance").load("/data/flights.lance")
    >>> df = spark.read.format("lance").option("version", 3).load("/data/flights.lance")
    >>> df.write.format("lance").mode("append").save("/data/flights.lance")
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lance"

    def schema(self) -> StructType:
        """Return the Spark schema of the version, reduced to the columns of the options.

        Raises
        ------
        InvalidOptionError, TableNotFoundError, VersionNotFoundError, UnsupportedTypeError
        """
        from lance_spark.spark.options.options import ReadOptions
        from lance_spark.spark.read import catalog
        from lance_spark.spark.read.reader import table_schema
        from lance_spark.spark.types.mapping import to_spark_schema

        options = ReadOptions.parse(self.options)
        if options.feed and not catalog.is_for_catalog(self.options):
            from lance_spark.spark.options.rare_options import FeedOptions
            from lance_spark.spark.streaming.change_feed import feed_schema

            feed = FeedOptions.parse(options)
            if feed.change_feed:
                return to_spark_schema(feed_schema(options, feed))
        schema = to_spark_schema(table_schema(options))
        if catalog.is_for_catalog(self.options):
            return catalog.with_options(schema, self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for a schema of the table, of the user or of the optimizer rule.

        A request is removed from the schema, in place.

        Raises
        ------
        InvalidOptionError
        UnsupportedError
            A request has parts that this release does not support.
        """
        from lance_spark.errors import naming
        from lance_spark.spark.pushdown.request import take_request

        last = schema.fields[-1] if schema.fields else None
        # pyspark checks the batches against this very object.
        request = take_request(schema)
        from lance_spark.spark.options.options import ReadOptions
        from lance_spark.spark.read.catalog import options_of
        from lance_spark.spark.read.reader import LanceReader, display

        first = schema.fields[0] if schema.fields else None
        carrier = first if request is None else last
        options = ReadOptions.parse(options_of(carrier, self.options))
        if options.feed:
            from lance_spark.spark.options.rare_options import FeedOptions
            from lance_spark.spark.pushdown.request import refused
            from lance_spark.spark.streaming.change_feed import ChangeFeedReader

            if request is not None:
                raise refused("a change feed takes no requests", "option readChangeFeed")
            return ChangeFeedReader(options, FeedOptions.parse(options), schema)
        if request is not None and request.packed:
            from lance_spark.spark.pushdown.packed_arrays import pack

            schema = pack(schema, request.packed)
        with naming(display(options.path)):
            return LanceReader(options, schema, request)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for a schema. It records the current version.

        Raises
        ------
        InvalidOptionError, SchemaMismatchError, UnsupportedTypeError
        """
        from lance_spark.spark.options.options import WriteOptions
        from lance_spark.spark.write.planning import make_writer

        return make_writer(WriteOptions.parse(self.options), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the stream reader for a schema of the table or of the user.

        Raises
        ------
        InvalidOptionError
        UnsupportedError
            An option needs a newer Spark.
        """
        from lance_spark.spark.options.options import ReadOptions
        from lance_spark.spark.options.rare_options import FeedOptions
        from lance_spark.spark.read.catalog import options_of
        from lance_spark.spark.streaming.reader import LanceStreamReader

        first = schema.fields[0] if schema.fields else None
        options = ReadOptions.parse(options_of(first, self.options))
        return LanceStreamReader(options, FeedOptions.parse(options), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the stream writer for a schema. Each batch becomes one version.

        Raises
        ------
        InvalidOptionError
        """
        from lance_spark.spark.options.options import WriteOptions
        from lance_spark.spark.streaming.writer import LanceStreamWriter

        return LanceStreamWriter(WriteOptions.parse(self.options), schema, overwrite)
