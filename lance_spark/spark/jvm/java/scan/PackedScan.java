package org.lancespark;

import java.util.List;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructType;

/** A scan that returns packed arrays, for a plan that unpacks them. */
public class PackedScan implements SupportsRuntimeV2Filtering, Batch, ReadCounts.Counted {
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
    return scan.reportDriverMetrics();
  }

  public ReadCounts counts() {
    return scan.reply().counts;
  }

  public Batch toBatch() {
    List forms = RuntimeFilters.take(this);
    return forms == null ? this : new PackedScan(scan.filtered(forms), output);
  }

  public NamedReference[] filterAttributes() {
    return scan.filterAttributes();
  }

  public void filter(Predicate[] predicates) {
    RuntimeFilters.give(this, predicates, scan.readSchema());
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
