package org.lancespark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** A scan whose rows came with the answer to its request: no task reads them. */
public class FoundScan implements LocalScan, SupportsReportStatistics {
  private final RequestScan scan;
  private final InternalRow[] rows;

  FoundScan(RequestScan scan, InternalRow[] rows) {
    this.scan = scan;
    this.rows = rows;
  }

  /** Returns the scan with its rows in another shape. */
  FoundScan with(InternalRow[] others) {
    return new FoundScan(scan, others);
  }

  public StructType readSchema() {
    return scan.readSchema();
  }

  public String description() {
    return scan.description() + " rows=" + rows.length;
  }

  public InternalRow[] rows() {
    return rows;
  }

  public Statistics estimateStatistics() {
    return new RequestScan.Estimate(rows.length, scan.estimateStatistics().sizeInBytes().orElse(-1L));
  }

  public boolean equals(Object other) {
    return other instanceof FoundScan && ((FoundScan) other).scan.equals(scan);
  }

  public int hashCode() {
    return scan.hashCode();
  }
}
