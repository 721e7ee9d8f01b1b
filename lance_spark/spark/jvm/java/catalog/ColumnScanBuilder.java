package org.lancespark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/** Passes the columns of a query on, and nothing else: for sessions with push-down off. */
public class ColumnScanBuilder implements SupportsPushDownRequiredColumns {
  private final RequestScanBuilder builder;

  ColumnScanBuilder(RequestScanBuilder builder) {
    this.builder = builder;
  }

  public void pruneColumns(StructType required) {
    builder.pruneColumns(required);
  }

  public Scan build() {
    return builder.build();
  }
}
