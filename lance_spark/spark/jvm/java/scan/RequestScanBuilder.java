package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Avg;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects the parts of a request: columns, filters, aggregates and limit of a scan. */
public abstract class RequestScanBuilder
    implements SupportsPushDownAggregates,
        SupportsPushDownLimit,
        SupportsPushDownTopN,
        SupportsPushDownRequiredColumns {
  /**
   * The setting that makes the count of a correlated subquery with GROUP BY 0, not null, where there
   * is no group.
   */
  private static final String COUNTS =
      "spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled";

  /** Setting: whether an index may answer ORDER BY of a distance with LIMIT, with other rows. */
  private static final String APPROXIMATE = "spark.lance.nearest.approximate";

  private static final String NPROBES = "spark.lance.nearest.nprobes";
  private static final String REFINE_FACTOR = "spark.lance.nearest.refineFactor";

  /** The part of a request with the columns by which the query makes rows meet. */
  static final String CLUSTERING = "clustering";

  /** The part of a request with the columns of blobs that the query only copies. */
  static final String LOCATORS = "locators";

  /** The part of a request with conditions of keys that the driver may look for. */
  static final String KEYS = "keys";

  /** Largest limit that one partition returns exactly. */
  private static final int MAX_EXACT_LIMIT = 100000;

  /** The part of a request with columns that the scan computes. */
  static final String VALUES = "computed";

  protected final RequestTable table;
  private final CaseInsensitiveStringMap options;

  /** Whether the rows of the scan are joined with others (SelectiveFilter). */
  protected final boolean isJoined;

  /** Whether all rows are computed before they are ordered (Failures). */
  private final boolean isComputed;

  /** The columns by which the query makes rows meet, or null (ClusteringColumns). */
  private final String clustering;

  /** What the scan is asked for of blobs that the query only copies, or null (CopiedBlobs). */
  private final String locators;

  /** Conditions of keys that the driver may look for, or null (CandidateRows). */
  private final String keys;

  /** Columns that the scan can compute (ComputedColumns). */
  private final List computed;

  private final StructType schema;

  /** Whether a filter was taken that Spark takes to be selective. */
  protected boolean isSelective;

  private final Map request = new LinkedHashMap();
  private StructType wanted;
  private Predicate[] pushed = new Predicate[0];

  /**
   * Whether Spark asks for averages. It then asks for sums in their place, but itself adds up
   * integers as doubles for an average.
   */
  private boolean hasAverages = false;

  /** The scan of aggregates that `supportCompletePushDown` has planned. */
  private RequestScan planned;

  RequestScanBuilder(RequestTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.isJoined = options.containsKey(ScanMarks.JOINED);
    this.isComputed = options.containsKey(ScanMarks.COMPUTED);
    this.clustering = options.get(ScanMarks.CLUSTERING);
    this.locators = options.get(ScanMarks.LOCATORS);
    this.keys = options.get(ScanMarks.KEYS);
    String values = options.get(ScanMarks.VALUES);
    this.computed = values == null ? new ArrayList() : (List) Forms.parsed(values);
    this.schema = withComputed(table.schema(), computed);
    this.options = ScanMarks.without(options);
    this.wanted = table.schema();
  }

  private static StructType withComputed(StructType schema, List computed) {
    StructType all = schema;
    for (int i = 0; i < computed.size(); i++) {
      Map column = (Map) computed.get(i);
      DataType type = DataType.fromJson((String) column.get("type"));
      all = all.add((String) column.get("name"), type, true);
    }
    return all;
  }

  /** Adds to a request the computed columns whose names are used. */
  private void addComputed(Map request, Set names) {
    List used = new ArrayList();
    for (int i = 0; i < computed.size(); i++) {
      Map column = new LinkedHashMap((Map) computed.get(i));
      column.remove("type");
      if (names.contains(column.get("name"))) {
        used.add(column);
      }
    }
    if (!used.isEmpty()) {
      request.put(VALUES, used);
    }
  }

  /** Returns the builder that receives filters as this version of Spark passes them. */
  static RequestScanBuilder of(RequestTable table, CaseInsensitiveStringMap options) {
    if (SparkRelease.passesExpressions()) {
      return new ExpressionScanBuilder(table, options);
    }
    return new PredicateScanBuilder(table, options);
  }

  /** Adds filters to the request, as forms and as EXPLAIN shows them. */
  protected void take(List forms, List shown) {
    if (!forms.isEmpty()) {
      request.put("filters", forms);
      pushed = (Predicate[]) shown.toArray(new Predicate[shown.size()]);
    }
  }

  protected Predicate[] pushed() {
    return pushed;
  }

  /** Returns whether the reply has the values, so that Spark does not merge rows of partitions. */
  public boolean supportCompletePushDown(Aggregation aggregation) {
    try {
      Map complete = new LinkedHashMap(request);
      StructType output = addAggregates(aggregation, complete);
      if (output == null) {
        return false;
      }
      RequestScan scan = new RequestScan(table, options, output, complete, pushed, isSelective);
      InternalRow[] rows = scan.driverRows();
      planned = scan;
      return rows != null && (rows.length == 1 || complete.containsKey("groups"));
    } catch (LinkageError e) {
      Log.leftToSpark("aggregates", e);
    }
    return false;
  }

  /**
   * Takes counts, minima and maxima (Forms.hasExtremes), and exact sums. Groups are by columns.
   */
  public boolean pushAggregation(Aggregation aggregation) {
    try {
      Map complete = new LinkedHashMap(request);
      StructType output = addAggregates(aggregation, complete);
      if (output != null && !hasManyGroups(complete, output)) {
        request.putAll(complete);
        wanted = output;
        return true;
      }
    } catch (Exception e) {
      Log.leftToSpark("aggregates", e);
    } catch (LinkageError e) {
      Log.leftToSpark("aggregates", e);
    }
    return false;
  }

  private boolean hasManyGroups(Map complete, StructType output) {
    return planned != null
        && planned.isFor(Forms.json(complete), output)
        && planned.reply().hasManyGroups;
  }

  /**
   * Adds aggregates to a request. Returns their columns, or null if the reader has no such
   * aggregate.
   */
  private StructType addAggregates(Aggregation aggregation, Map complete) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    StructType output = new StructType();
    Expression[] keys = aggregation.groupByExpressions();
    if (functions.length == 0 && keys.length == 0) {
      return null;
    }
    // Spark then looks for the aggregate of a correlated subquery, whose count is 0 for no rows.
    if (keys.length > 0 && Boolean.parseBoolean(SQLConf.get().getConfString(COUNTS, "false"))) {
      return null;
    }
    Set names = new HashSet();
    List groups = new ArrayList();
    for (int i = 0; i < keys.length; i++) {
      if (!(keys[i] instanceof NamedReference)) {
        return null;
      }
      String[] path = ((NamedReference) keys[i]).fieldNames();
      DataType type = Forms.typeAt(schema, path);
      if (type == null || !Forms.isGrouped(type)) {
        return null;
      }
      names.add(path[0]);
      groups.add(Forms.column(path));
      output = output.add("group" + i, type, true);
    }
    List forms = new ArrayList();
    for (int i = 0; i < functions.length; i++) {
      AggregateFunc function = functions[i];
      String name = nameOf(function);
      hasAverages = hasAverages || function instanceof Avg;
      if (name == null) {
        return null;
      }
      Map form = new LinkedHashMap();
      form.put("op", name);
      DataType type = DataTypes.LongType;
      if (!(function instanceof CountStar)) {
        Expression argument = function.children()[0];
        if (!(argument instanceof NamedReference)) {
          return null;
        }
        String[] path = ((NamedReference) argument).fieldNames();
        DataType columnType = Forms.typeAt(schema, path);
        if (columnType == null) {
          return null;
        }
        names.add(path[0]);
        form.put("col", path);
        if (function instanceof Sum) {
          // The scan adds up the integers of a computed column of doubles.
          boolean isAverage = path[0].startsWith(ComputedColumns.PREFIX);
          type =
              isAverage && columnType.equals(DataTypes.DoubleType)
                  ? columnType
                  : Forms.sumOf(columnType);
          if (type == null || (hasAverages && type.equals(DataTypes.LongType))) {
            return null;
          }
        } else if (!(function instanceof Count)) {
          if (!Forms.hasExtremes(columnType)) {
            return null;
          }
          type = columnType;
        }
      }
      forms.add(form);
      output = output.add("agg" + i, type, true);
    }
    addComputed(complete, names);
    complete.put("aggregates", forms);
    if (!groups.isEmpty()) {
      complete.put("groups", groups);
    }
    return output;
  }

  private static String nameOf(AggregateFunc function) {
    if (function instanceof CountStar) return "count_star";
    if (function instanceof Count) return ((Count) function).isDistinct() ? null : "count";
    if (function instanceof Min) return "min";
    if (function instanceof Max) return "max";
    if (function instanceof Sum) return ((Sum) function).isDistinct() ? null : "sum";
    return null;
  }

  /** Takes the limit of rows. Spark takes that of groups, which the reader returns whole. */
  public boolean pushLimit(int limit) {
    if (request.containsKey("aggregates")) {
      return false;
    }
    request.put("limit", Integer.valueOf(limit));
    boolean filtered = request.containsKey("filters") || options.containsKey("filter");
    if (!filtered && limit <= MAX_EXACT_LIMIT) {
      request.put("exact", Boolean.TRUE);
    } else {
      request.remove("exact");
    }
    return true;
  }

  /** Asks for the first rows in an order. Spark orders them again, and takes the limit of all. */
  public boolean pushTopN(SortOrder[] orders, int limit) {
    List order = new ArrayList();
    for (int i = 0; i < orders.length; i++) {
      Map form = orderedBy(orders[i].expression());
      if (form == null) {
        return false;
      }
      form.put(
          "descending", Boolean.valueOf(orders[i].direction() == SortDirection.DESCENDING));
      form.put(
          "nulls_first", Boolean.valueOf(orders[i].nullOrdering() == NullOrdering.NULLS_FIRST));
      order.add(form);
    }
    if (order.isEmpty() || isComputed || request.containsKey("aggregates")) {
      return false;
    }
    Map top = new LinkedHashMap();
    top.put("rows", Integer.valueOf(limit));
    top.put("order", order);
    if (((Map) order.get(0)).containsKey("function")) {
      Map approximate = approximate();
      if (approximate != null) {
        top.put("approximate", approximate);
      }
    }
    request.put("top", top);
    return true;
  }

  /** Returns the settings of approximate answers, or null if the session does not allow them. */
  private Map approximate() {
    boolean isAllowed = Boolean.parseBoolean(SQLConf.get().getConfString(APPROXIMATE, "false"));
    return isAllowed || options.getBoolean("approximate_nearest", false) ? nearestSettings() : null;
  }

  /** Returns the settings of the session for searches by an index. */
  static Map nearestSettings() {
    SQLConf conf = SQLConf.get();
    Map settings = new LinkedHashMap();
    String nprobes = conf.getConfString(NPROBES, "");
    String refineFactor = conf.getConfString(REFINE_FACTOR, "");
    if (!nprobes.isEmpty()) {
      settings.put("nprobes", nprobes);
    }
    if (!refineFactor.isEmpty()) {
      settings.put("refine_factor", refineFactor);
    }
    return settings;
  }

  private Map orderedBy(Expression key) {
    if (!(key instanceof NamedReference)) {
      return VectorDistance.form(key);
    }
    String[] path = ((NamedReference) key).fieldNames();
    DataType type = Forms.typeAt(table.schema(), path);
    return type == null || !Forms.isComparable(type) ? null : Forms.column(path);
  }

  /**
   * Returns whether Spark applies the limit again.
   *
   * <p>Without filters, one partition returns the rows of a small limit, and ends by itself.
   * Otherwise each partition may return as many rows, and Spark takes the limit of all. It then
   * kills the Python workers from which it stops reading.
   */
  public boolean isPartiallyPushed() {
    return !request.containsKey("exact");
  }

  public void pruneColumns(StructType required) {
    if (required.isEmpty() && !SparkRelease.takesBatchesWithoutColumns()) {
      wanted = Forms.narrowest(table.schema());
    } else {
      wanted = required;
    }
  }

  /** Builds the scan and plans it at once, because rows that the reply brings change the plan. */
  public Scan build() {
    if (!request.containsKey("aggregates")) {
      addComputed(request, new HashSet(Arrays.asList(wanted.fieldNames())));
      List packed = Packing.columns(wanted);
      if (ColumnarFactory.isWanted()) {
        ColumnarFactory.ask(request);
      }
      if (!packed.isEmpty()) {
        request.put("packed", packed);
      }
      if (clustering != null
          && computed.isEmpty()
          && !request.containsKey("limit")
          && !request.containsKey("top")) {
        request.put(CLUSTERING, Forms.parsed(clustering));
      }
      if (locators != null) {
        Map asked = (Map) Forms.parsed(locators);
        ((List) asked.get("columns")).retainAll(Arrays.asList(wanted.fieldNames()));
        if (!((List) asked.get("columns")).isEmpty()) {
          request.put(LOCATORS, asked);
        }
      }
    }
    if (keys != null) {
      request.put(KEYS, Forms.parsed(keys));
    }
    RequestScan scan = planned;
    if (scan == null || !scan.isFor(Forms.json(request), wanted)) {
      scan = new RequestScan(table, options, wanted, request, pushed, isSelective);
    }
    InternalRow[] rows = scan.driverRows();
    return rows == null ? scan : new DriverRowsScan(scan, rows);
  }
}
