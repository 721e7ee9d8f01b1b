package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A scan that Python plans once, when Spark first asks for its size or its partitions. */
public class RequestScan implements SupportsReportStatistics, Batch {
  private final RequestTable table;
  private final CaseInsensitiveStringMap options;
  private final StructType output;
  private final Map request;
  private final String json;
  private final Predicate[] filters;
  private final List packed;
  private volatile Answer answer;

  RequestScan(
      RequestTable table, CaseInsensitiveStringMap options, StructType output, Map request, Predicate[] filters) {
    this.table = table;
    this.options = options;
    this.output = output;
    this.request = request;
    this.json = Forms.json(request);
    this.filters = filters;
    this.packed = request.containsKey("packed") ? (List) request.get("packed") : new ArrayList();
  }

  public StructType readSchema() {
    return output;
  }

  /** What EXPLAIN shows; how many partitions only once the scan is planned. */
  public String description() {
    StringBuilder text = new StringBuilder("lance pushdown");
    if (request.containsKey("aggregates")) {
      text.append(" aggregates=").append(Forms.json(request.get("aggregates")));
    } else {
      String columns = output.catalogString();
      text.append(" columns=[").append(columns.substring("struct<".length(), columns.length() - 1)).append("]");
    }
    text.append(" filters=[");
    for (int i = 0; i < filters.length; i++) {
      text.append(i == 0 ? "" : ", ").append(filters[i]);
    }
    text.append("]");
    if (request.containsKey("limit")) {
      text.append(" limit=").append(request.get("limit"));
    }
    Answer known = answer;
    if (known != null) {
      text.append(" partitions=").append(known.partitions.length);
    }
    return text.toString();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return Metrics.with(table.source.source().createPythonMetrics());
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return Metrics.of(answer());
  }

  public Statistics estimateStatistics() {
    Answer known = answer();
    return new Estimate(known.rows, known.bytes);
  }

  /** Returns a batch of the columns as they are: if they were asked for as bytes, asks again. */
  public Batch toBatch() {
    if (packed.isEmpty()) {
      return this;
    }
    Map plain = new LinkedHashMap(request);
    plain.remove("packed");
    return new RequestScan(table, options, output, plain, filters);
  }

  /** Returns the scan as it answers if some columns come as bytes, or null if none do. */
  PackedScan packed() {
    return packed.isEmpty() ? null : new PackedScan(this, Packing.schema(output, packed));
  }

  public InputPartition[] planInputPartitions() {
    return answer().partitions;
  }

  public PartitionReaderFactory createReaderFactory() {
    return answer().factory;
  }

  /** Returns the rows if they came with the answer, or else null. */
  InternalRow[] found() {
    return answer().found;
  }

  boolean asks(String request, StructType columns) {
    return json.equals(request) && output.equals(columns);
  }

  synchronized Answer answer() {
    if (answer == null) {
      answer = Answer.to(request, table, options, output, Packing.schema(output, packed));
    }
    return answer;
  }

  /** Equal scans of a query are read once: Spark compares them to reuse exchanges. */
  public boolean equals(Object other) {
    if (!(other instanceof RequestScan)) {
      return false;
    }
    RequestScan that = (RequestScan) other;
    return table.equals(that.table)
        && options.equals(that.options)
        && output.equals(that.output)
        && json.equals(that.json);
  }

  public int hashCode() {
    return output.hashCode() * 31 + json.hashCode();
  }

  static final class Estimate implements Statistics {
    private final long rows;
    private final long bytes;

    Estimate(long rows, long bytes) {
      this.rows = rows;
      this.bytes = bytes;
    }

    public OptionalLong numRows() {
      return rows < 0 ? OptionalLong.empty() : OptionalLong.of(rows);
    }

    public OptionalLong sizeInBytes() {
      return bytes < 0 ? OptionalLong.empty() : OptionalLong.of(bytes);
    }
  }
}
