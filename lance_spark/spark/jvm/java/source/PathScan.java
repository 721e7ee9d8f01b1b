package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's own scan of a table of format("lance"), whose streams return columns. */
public class PathScan implements ScanBuilder, Scan {
  private final Scan python;
  private final PythonDataSourceV2 source;
  private final CaseInsensitiveStringMap options;

  PathScan(Scan python, PythonDataSourceV2 source, CaseInsensitiveStringMap options) {
    this.python = python;
    this.source = source;
    this.options = options;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return python.readSchema();
  }

  public String description() {
    return python.description();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return python.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return python.reportDriverMetrics();
  }

  public Batch toBatch() {
    return python.toBatch();
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return ColumnarStream.over(
        python.toMicroBatchStream(checkpoint), source, options, readSchema());
  }
}
