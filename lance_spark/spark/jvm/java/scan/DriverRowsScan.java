package org.lancespark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A scan whose rows came with the reply to its request, so that no task reads them. */
public class DriverRowsScan
    implements LocalScan, SupportsReportStatistics, SelectiveFilter.Selective {
  private final RequestScan scan;
  private final InternalRow[] rows;

  DriverRowsScan(RequestScan scan, InternalRow[] rows) {
    this.scan = scan;
    this.rows = rows;
  }

  /** Returns the scan with its rows in other columns. */
  DriverRowsScan with(InternalRow[] projected) {
    return new DriverRowsScan(scan, projected);
  }

  public boolean isSelective() {
    return scan.isSelective();
  }

  public StructType readSchema() {
    return scan.readSchema();
  }

  public String description() {
    return scan.description() + " rows=" + rows.length;
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return scan.toMicroBatchStream(checkpoint);
  }

  public InternalRow[] rows() {
    return rows;
  }

  public Statistics estimateStatistics() {
    long bytes = scan.estimateStatistics().sizeInBytes().orElse(-1L);
    return new RequestScan.Estimate(rows.length, bytes);
  }

  public boolean equals(Object other) {
    return other instanceof DriverRowsScan && ((DriverRowsScan) other).scan.equals(scan);
  }

  public int hashCode() {
    return scan.hashCode();
  }
}
