package org.lancespark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;

/** A scan that returns packed arrays, for a plan that unpacks them. */
public class PackedScan implements Scan, Batch, ReadCounts.Counted {
  private final RequestScan scan;
  private final StructType output;

  PackedScan(RequestScan scan, StructType output) {
    this.scan = scan;
    this.output = output;
  }

  public StructType readSchema() {
    return output;
  }

  public String description() {
    return scan.description();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    Metrics.begin(counts());
    return Metrics.of(scan.reply());
  }

  public ReadCounts counts() {
    return scan.reply().counts;
  }

  public Batch toBatch() {
    return this;
  }

  public InputPartition[] planInputPartitions() {
    return scan.reply().partitions;
  }

  public PartitionReaderFactory createReaderFactory() {
    return scan.reply().factory;
  }

  public boolean equals(Object other) {
    return other instanceof PackedScan && ((PackedScan) other).scan.equals(scan);
  }

  public int hashCode() {
    return scan.hashCode();
  }
}
