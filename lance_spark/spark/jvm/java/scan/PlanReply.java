package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.FieldReference$;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.Iterator;

/**
 * The reply of the Python reader to the request of a scan, in one round trip.
 *
 * <p>The request travels as metadata of one more field after the wanted fields, which the reader
 * removes. The reply takes the place of the first partition. `lance_spark/spark/pushdown/request.py`
 * has the keys of its header. If the reader has read the rows already, or partitions have keys, its
 * data are an Arrow stream of the rows, or of the values of the keys.
 */
final class PlanReply implements Cloneable {
  static final String FIELD = "__lance_request";

  /** Key of the metadata by which the reader of a table by name gets its options. */
  private static final String OPTIONS = "lance_spark.options";

  /** Says that partitions return columns. */
  static final String COLUMNAR = "yes";

  final InputPartition[] partitions;

  /** Makes the readers of the partitions, which report to the counters. */
  PartitionReaderFactory factory;

  /** What tasks read of the partitions. */
  ReadCounts counts;

  private final PythonDataSourceReadInfo info;

  final long rows;
  final long bytes;

  /** The rows of the partitions, or null if tasks are to read them. */
  final InternalRow[] driverRows;

  /** Number of fragments that the partitions read. */
  final long scannedFragments;

  /** Number of fragments of the table. */
  final long fragments;

  /** The version for other scans of the query, with the tag of its manifest. */
  final String version;

  /** Where the table is, without secrets. */
  final String location;

  /** "yes" if partitions return columns, or why not; null if the request did not ask for it. */
  final String columnar;

  /** Whether Spark is to ask for rows, and make the groups itself. */
  final boolean hasManyGroups;

  /** The indexes that rule out rows, as EXPLAIN shows them; null if there are none. */
  final String indexes;

  /** What is read of the table's MemWAL, as EXPLAIN shows it; null if nothing is. */
  final FreshSources fresh;

  /** The order of the rows of each partition; empty if it is unknown. */
  final SortOrder[] ordered;

  /** The keys by which the rows are partitioned. */
  final PartitionKeys keys;

  private PlanReply(
      PythonDataSourceReadInfo info,
      InputPartition[] partitions,
      long rows,
      long bytes,
      String version,
      long scannedFragments,
      long fragments,
      String location,
      String columnar,
      boolean hasManyGroups,
      SortOrder[] ordered,
      String indexes,
      FreshSources fresh,
      PartitionKeys keys,
      InternalRow[] driverRows) {
    this.info = info;
    this.partitions = partitions;
    this.rows = rows;
    this.bytes = bytes;
    this.version = version;
    this.scannedFragments = scannedFragments;
    this.fragments = fragments;
    this.location = location;
    this.columnar = columnar;
    this.hasManyGroups = hasManyGroups;
    this.ordered = ordered;
    this.indexes = indexes;
    this.fresh = fresh;
    this.keys = keys;
    this.driverRows = driverRows;
  }

  /** Returns the version as EXPLAIN shows it. */
  String versionName() {
    int tag = version == null ? -1 : version.indexOf('~');
    return tag < 0 ? version : version.substring(0, tag);
  }

  /** Returns whether partitions return columns. */
  boolean isColumnar() {
    return COLUMNAR.equals(columnar);
  }

  /**
   * Sends a request for the version that the other scans of the query read.
   *
   * @param output columns of the scan
   * @param packedOutput columns of the partitions, some of which may be packed
   */
  static PlanReply to(
      Map request,
      RequestTable table,
      CaseInsensitiveStringMap options,
      StructType output,
      StructType packedOutput) {
    Snapshot.Version version = table.snapshot.of(options);
    if (version.name == null) {
      synchronized (version) {
        if (version.name == null) {
          // The first scan of the query: its reply names the version for the others.
          PlanReply reply = send(request, table, options, output, packedOutput);
          version.name = reply.version;
          return reply;
        }
      }
    }
    Map withVersion = new LinkedHashMap(request);
    withVersion.put("at", version.name);
    return send(withVersion, table, options, output, packedOutput);
  }

  private static PlanReply send(
      Map request,
      RequestTable table,
      CaseInsensitiveStringMap options,
      StructType output,
      StructType packedOutput) {
    Map complete = new LinkedHashMap(request);
    complete.put("counts", Boolean.TRUE);
    complete.put("parallelism", Integer.valueOf(SparkContext.getOrCreate().defaultParallelism()));
    if (!Boolean.parseBoolean(SQLConf.get().getConfString(PushDownRule.LOCAL, "true"))) {
      complete.put("tasks", Boolean.TRUE);
    }
    if (table.snapshot.spent() > 0) {
      complete.put("spent", Long.valueOf(table.snapshot.spent()));
    }
    if (table.snapshot.query() != null) {
      complete.put("query", table.snapshot.query());
    }
    if (table.snapshot.hasOtherScans()) {
      complete.put("other_scans", Boolean.TRUE);
      long broadcast = SQLConf.get().autoBroadcastJoinThreshold();
      if (broadcast > 0) {
        complete.put("broadcast", Long.valueOf(broadcast));
      }
    }
    if (options.containsKey("filter")) {
      complete.put("settings", Settings.ofSession());
    }
    MetadataBuilder metadata = new MetadataBuilder();
    if (table.schema().length() > 0) {
      // The first column of a table of the catalog holds its options, and may not be wanted.
      metadata.withMetadata(table.schema().fields()[0].metadata());
    }
    if (table.isNamed) {
      metadata.putString(OPTIONS, Forms.json(options.asCaseSensitiveMap()));
    }
    metadata.putString("request", Forms.json(complete));
    List others = table.snapshot.others(options);
    if (others != null) {
      metadata.putString("others", Forms.json(others));
    }
    StructType withRequest =
        output.add(new StructField(FIELD, DataTypes.NullType, true, metadata.build()));
    PythonDataSourceReadInfo info;
    try {
      info = table.readInfo(options, withRequest);
    } catch (Exception e) {
      throw Errors.raiseFromPython(e);
    }
    Iterator pickles = info.partitions().iterator();
    Reply reply = pickles.hasNext() ? Reply.in((byte[]) pickles.next(), "plan") : null;
    if (reply == null) {
      throw new IllegalStateException(
          "The Python source \""
              + table.name()
              + "\" does not answer requests: install the release of lance-spark that wrote the jar"
              + " of the rule, or set "
              + PushDownRule.ENABLED
              + " to false");
    }
    Map header = reply.header;
    if (header.get("unread") != null) {
      Log.once((String) header.get("unread"));
    }
    table.snapshot.spend(((Number) header.get("spent")).longValue());
    List tasks = new ArrayList();
    while (pickles.hasNext()) {
      tasks.add(pickles.next());
    }
    PartitionKeys keys =
        header.get("keys") == null
            ? PartitionKeys.NONE
            : PartitionKeys.parse((List) header.get("keys"), output, reply, tasks.size());
    List partitions = new ArrayList();
    for (int i = 0; i < tasks.size(); i++) {
      byte[] pickle = (byte[]) tasks.get(i);
      partitions.add(
          keys.isEmpty()
              ? new PythonInputPartition(i, pickle)
              : new KeyedPartition(i, pickle, keys.values(i)));
    }
    long[] fragments = reply.numbers("fragments");
    PlanReply planned = new PlanReply(
        info,
        (InputPartition[]) partitions.toArray(new InputPartition[partitions.size()]),
        ((Number) header.get("rows")).longValue(),
        ((Number) header.get("bytes")).longValue(),
        (String) header.get("at"),
        fragments[0],
        fragments[1],
        (String) header.get("table"),
        (String) header.get("columnar"),
        Boolean.TRUE.equals(header.get("many_groups")),
        orders((List) header.get("ordered")),
        (String) header.get("indexes"),
        header.get("fresh") == null ? null : new FreshSources(reply.numbers("fresh")),
        keys,
        "rows".equals(header.get("data"))
            ? Rows.of(reply.bytes, reply.start, reply.length, output)
            : null);
    planned.count(table, options, packedOutput);
    return planned;
  }

  /**
   * Returns the reply for another scan with an equal request.
   *
   * @param packedOutput columns of the partitions, some of which may be packed
   */
  PlanReply again(
      RequestTable table, CaseInsensitiveStringMap options, StructType packedOutput) {
    try {
      PlanReply copy = (PlanReply) clone();
      copy.count(table, options, packedOutput);
      return copy;
    } catch (CloneNotSupportedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Gives the tasks counters, which are those of one scan. */
  private void count(
      RequestTable table, CaseInsensitiveStringMap options, StructType packedOutput) {
    counts = new ReadCounts(partitions.length);
    SparkContext.getOrCreate().register(counts);
    factory = factory(table, options, info, packedOutput, counts, isColumnar());
  }

  /** Returns the order that a list of columns names. */
  private static SortOrder[] orders(List columns) {
    SortOrder[] orders = new SortOrder[columns.size()];
    for (int i = 0; i < orders.length; i++) {
      Map column = (Map) columns.get(i);
      orders[i] =
          org.apache.spark.sql.connector.expressions.Expressions.sort(
              FieldReference$.MODULE$.column((String) column.get("column")),
              SortDirection.valueOf((String) column.get("direction")),
              NullOrdering.valueOf((String) column.get("nulls")));
    }
    return orders;
  }

  private static PartitionReaderFactory factory(
      RequestTable table,
      CaseInsensitiveStringMap options,
      PythonDataSourceReadInfo info,
      StructType output,
      ReadCounts counts,
      boolean isColumnar) {
    StructType sent = isColumnar ? ColumnarReader.SENT : output;
    PartitionReaderFactory python = SparkRelease.readerFactory(table, options, info, sent, counts);
    return isColumnar ? new ColumnarFactory(python, output) : python;
  }
}
