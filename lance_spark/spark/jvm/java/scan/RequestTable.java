package org.lancespark;

import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** A Python table in the plan of one query, whose scans send requests. */
public class RequestTable implements Table, SupportsRead {
  final PythonTable python;
  final PythonDataSourceV2 source;
  final Snapshot snapshot;

  /** Whether the table is one of a catalog, for which no data source in Python was made. */
  final boolean isNamed;

  private RequestTable(
      PythonTable python, PythonDataSourceV2 source, Snapshot snapshot, boolean isNamed) {
    this.python = python;
    this.source = source;
    this.snapshot = snapshot;
    this.isNamed = isNamed;
  }

  /** Returns the table for a table of a catalog. */
  static RequestTable named(StructType schema, Snapshot snapshot) {
    PythonDataSourceV2 source = PythonCall.source();
    PythonTable python = new PythonTable(source, PythonCall.FORMAT, schema);
    return new RequestTable(python, source, snapshot, true);
  }

  /** Returns the table for a table that Spark made. */
  static RequestTable of(PythonTable python, Snapshot snapshot) {
    return new RequestTable(python, SparkShims.source(python), snapshot, false);
  }

  /** Plans a read. The options of a named table are metadata of the schema. */
  PythonDataSourceReadInfo readInfo(CaseInsensitiveStringMap options, StructType schema) {
    if (isNamed) {
      return PythonCall.readInfo(source, schema);
    }
    PythonDataSourceCreationResult created =
        source.getOrCreateDataSourceInPython(name(), options, Option.apply(schema()));
    return source.source().createReadInfoInPython(created, schema, false);
  }

  public String name() {
    return python.name();
  }

  public StructType schema() {
    return python.schema();
  }

  public Set capabilities() {
    return python.capabilities();
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return RequestScanBuilder.of(this, options);
  }

  /**
   * Equal tables with equal options have the same rows: Spark then reads equal scans of a query once.
   * The options say where a table is, also if a query names its path more than once.
   */
  public boolean equals(Object other) {
    if (!(other instanceof RequestTable) || ((RequestTable) other).snapshot != snapshot) {
      return false;
    }
    RequestTable that = (RequestTable) other;
    return that.isNamed == isNamed && that.schema().equals(schema());
  }

  public int hashCode() {
    return System.identityHashCode(snapshot);
  }

  public String toString() {
    return python.name();
  }
}
