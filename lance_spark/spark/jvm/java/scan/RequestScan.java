package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportOrdering;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A scan that the Python reader plans once, when Spark first needs its size or its partitions. */
public class RequestScan
    implements SupportsReportStatistics,
        SupportsReportOrdering,
        SupportsReportPartitioning,
        SupportsRuntimeV2Filtering,
        Batch,
        ReadCounts.Counted,
        SelectiveFilter.Selective {
  private final RequestTable table;
  private final CaseInsensitiveStringMap options;
  private final StructType output;
  private final Map request;
  private volatile String json;

  /** The request but for the columns by which rows meet: what counts is which keys these give. */
  private volatile String identity;

  private final Predicate[] filters;
  private final boolean isSelective;
  private final List packed;
  private volatile PlanReply reply;
  private volatile RequestScan plain;

  /** The same scan with the filters of a join. Only counters are read from it. */
  private volatile RequestScan joined;

  RequestScan(
      RequestTable table,
      CaseInsensitiveStringMap options,
      StructType output,
      Map request,
      Predicate[] filters,
      boolean isSelective) {
    this.table = table;
    this.options = options;
    this.output = output;
    this.request = request;
    this.filters = filters;
    this.isSelective = isSelective;
    this.packed = request.containsKey("packed") ? (List) request.get("packed") : new ArrayList();
  }

  public boolean isSelective() {
    return isSelective;
  }

  public StructType readSchema() {
    return output;
  }

  /** Returns the text of EXPLAIN, with what the scan reads once it is planned. */
  public String description() {
    StringBuilder text = new StringBuilder("lance pushdown");
    if (request.containsKey("aggregates")) {
      text.append(" aggregates=").append(Forms.json(request.get("aggregates")));
      if (request.containsKey("groups")) {
        text.append(" groups=").append(Forms.json(request.get("groups")));
      }
    } else {
      String struct = output.catalogString();
      String columns = struct.substring("struct<".length(), struct.length() - 1);
      text.append(" columns=[").append(columns).append("]");
    }
    if (request.containsKey(RequestScanBuilder.VALUES)) {
      text.append(" computed=").append(ValueForms.shown((List) request.get(RequestScanBuilder.VALUES)));
    }
    if (request.containsKey(RequestScanBuilder.LOCATORS)) {
      Map locators = (Map) request.get(RequestScanBuilder.LOCATORS);
      text.append(" locators=").append(locators.get("columns"));
    }
    if (options.containsKey("full_text_query")) {
      text.append(" full_text_query=").append(options.get("full_text_query"));
    }
    if (options.containsKey("nearest")) {
      String search = options.get("nearest");
      text.append(" nearest=").append(search.replaceAll("\\[[-+0-9.eE,\\s\\[\\]]*\\]", "[...]"));
    }
    text.append(" filters=[");
    for (int i = 0; i < filters.length; i++) {
      text.append(i == 0 ? "" : ", ").append(filters[i]);
    }
    text.append("]");
    if (request.containsKey("limit")) {
      text.append(" limit=").append(request.get("limit"));
    }
    if (request.containsKey("top")) {
      String top = Forms.json(request.get("top"));
      text.append(" top=").append(top.replaceAll("\"vector\":\\[[^\\]]*\\]", "\"vector\":[...]"));
    }
    PlanReply planned = reply;
    if (planned != null) {
      text.append(" partitions=").append(planned.partitions.length);
      text.append(" fragments=").append(planned.scannedFragments);
      text.append(" skipped=").append(planned.fragments - planned.scannedFragments);
      if (planned.indexes != null) {
        text.append(" indexes=[").append(planned.indexes).append("]");
      }
      if (planned.fresh != null) {
        text.append(" fresh=[").append(planned.fresh).append("]");
      }
      if (planned.columnar != null) {
        text.append(" columnar=").append(planned.columnar);
      }
      if (planned.ordered.length > 0) {
        text.append(" ordered=[").append(shown(planned.ordered)).append("]");
      }
      if (!planned.keys.isEmpty()) {
        text.append(" partitioned=[").append(planned.keys).append("]");
      }
      text.append(" version=").append(planned.versionName());
      text.append(" table=").append(planned.location);
    }
    return text.toString();
  }

  public CustomMetric[] supportedCustomMetrics() {
    boolean isFresh = options.getBoolean("fresh", false);
    return Metrics.ofScan(table.source.source().createPythonMetrics(), isFresh);
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    Metrics.begin(counts());
    RequestScan read = joined;
    return Metrics.of(read == null ? reply() : read.reply());
  }

  public Statistics estimateStatistics() {
    return new Estimate(reply().rows, reply().bytes);
  }

  /** Returns the order of the rows of each partition, by which Spark need not sort them again. */
  public SortOrder[] outputOrdering() {
    return reply().ordered;
  }

  /** Returns the keys of the partitions, by which Spark need not shuffle their rows. */
  public Partitioning outputPartitioning() {
    return reply().keys.partitioning();
  }

  private static String shown(SortOrder[] orders) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < orders.length; i++) {
      text.append(i == 0 ? "" : ", ").append(orders[i].expression()).append(" ");
      text.append(orders[i].direction());
      if (orders[i].nullOrdering() != orders[i].direction().defaultNullOrdering()) {
        text.append(" ").append(orders[i].nullOrdering());
      }
    }
    return text.toString();
  }

  /**
   * Returns a batch of plain columns. If the request asked for packed columns, sends another one.
   */
  public Batch toBatch() {
    List forms = RuntimeFilters.take(this);
    RequestScan scan = packed.isEmpty() ? this : plain();
    return forms == null ? scan : scan.filtered(forms);
  }

  /**
   * Returns the columns by whose values Spark may filter the scan before it runs. None if the scan
   * has a limit, whose rows are joined after it, or computed columns, which filters cannot name.
   */
  public NamedReference[] filterAttributes() {
    boolean isWhole =
        !request.containsKey("limit")
            && !request.containsKey("top")
            && !request.containsKey("aggregates")
            && !request.containsKey(RequestScanBuilder.VALUES);
    return isWhole ? RuntimeFilters.columns(output) : new NamedReference[0];
  }

  public void filter(Predicate[] predicates) {
    RuntimeFilters.give(this, predicates, output);
  }

  /**
   * Returns the scan of the rows that meet more filters, or this one if the partitions of that would
   * have other keys. Its tasks use the factory of this one.
   */
  RequestScan filtered(List forms) {
    Map others = new LinkedHashMap(request);
    List all = new ArrayList();
    if (request.containsKey("filters")) {
      all.addAll((List) request.get("filters"));
    }
    all.addAll(forms);
    others.put("filters", all);
    others.put("tasks", Boolean.TRUE);
    RequestScan scan = new RequestScan(table, options, output, others, filters, isSelective);
    if (!reply().keys.haveAllOf(scan.reply().keys)) {
      return this;
    }
    reply().counts.expect(scan.reply().partitions.length);
    joined = scan;
    return scan;
  }

  private synchronized RequestScan plain() {
    if (plain == null) {
      Map others = new LinkedHashMap(request);
      others.remove("packed");
      plain = new RequestScan(table, options, output, others, filters, isSelective);
    }
    return plain;
  }

  public ReadCounts counts() {
    RequestScan read = plain == null ? this : plain;
    return read.reply == null ? null : read.reply.counts;
  }

  /**
   * Returns a stream, which Spark asks for after it has planned the scan. It has no request but
   * that for columns.
   */
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    PythonTable python = new PythonTable(table.source, table.name(), output);
    return ColumnarStream.over(
        python.newScanBuilder(options).build().toMicroBatchStream(checkpoint),
        table.source,
        options,
        output);
  }

  /** Returns the scan of packed columns, or null if no column is packed. */
  PackedScan packed() {
    if (packed.isEmpty()) {
      return null;
    }
    DataType bytes = reply().isColumnar() ? Packing.IN_PLACE : DataTypes.BinaryType;
    return new PackedScan(this, Packing.schema(output, packed, bytes));
  }

  public InputPartition[] planInputPartitions() {
    return reply().partitions;
  }

  public PartitionReaderFactory createReaderFactory() {
    return reply().factory;
  }

  /** Returns the rows that came with the reply, or null if tasks are to read them. */
  InternalRow[] driverRows() {
    return reply().driverRows;
  }

  boolean isFor(String request, StructType columns) {
    return json().equals(request) && output.equals(columns);
  }

  private String json() {
    if (json == null) {
      json = Forms.json(request);
    }
    return json;
  }

  private String identity() {
    if (identity == null) {
      Map others = new LinkedHashMap(request);
      others.remove(RequestScanBuilder.CLUSTERING);
      identity = Forms.json(others);
    }
    return identity;
  }

  synchronized PlanReply reply() {
    if (reply == null) {
      StructType sent = Packing.schema(output, packed, DataTypes.BinaryType);
      Object asked = Arrays.asList(new Object[] {table.schema(), options, output, json()});
      PlanReply known = table.snapshot.reply(asked);
      if (known == null) {
        reply = PlanReply.to(request, table, options, output, sent);
        table.snapshot.keep(asked, reply);
      } else {
        reply = known.again(table, options, sent);
      }
    }
    return reply;
  }

  /** Spark compares scans to reuse exchanges, so that it reads equal scans of a query once. */
  public boolean equals(Object other) {
    if (!(other instanceof RequestScan)) {
      return false;
    }
    RequestScan that = (RequestScan) other;
    return table.equals(that.table)
        && options.equals(that.options)
        && output.equals(that.output)
        && identity().equals(that.identity())
        && (json().equals(that.json()) || reply().keys.toString().equals(that.reply().keys.toString()));
  }

  public int hashCode() {
    return output.hashCode() * 31 + identity().hashCode();
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
