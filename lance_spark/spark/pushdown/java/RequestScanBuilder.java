package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what a query needs of a table, for the Python reader to be asked. */
public abstract class RequestScanBuilder
    implements SupportsPushDownAggregates, SupportsPushDownLimit, SupportsPushDownRequiredColumns {
  private static final int MOST_ROWS_OF_ONE = 100000;

  protected final RequestTable table;
  private final CaseInsensitiveStringMap options;
  private final Map request = new LinkedHashMap();
  private StructType wanted;
  private Predicate[] pushed = new Predicate[0];
  private RequestScan asked;

  RequestScanBuilder(RequestTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.options = options;
    this.wanted = table.schema();
  }

  /** Returns a builder that takes filters as this version of Spark hands them over. */
  static RequestScanBuilder of(RequestTable table, CaseInsensitiveStringMap options) {
    if (Versions.handsExpressionsOver()) {
      return new ExpressionScanBuilder(table, options);
    }
    return new PredicateScanBuilder(table, options);
  }

  /** Notes the filters that the reader answers, as they travel and as EXPLAIN shows them. */
  protected void take(List forms, List shown) {
    if (!forms.isEmpty()) {
      request.put("filters", forms);
      pushed = (Predicate[]) shown.toArray(new Predicate[shown.size()]);
    }
  }

  protected Predicate[] pushed() {
    return pushed;
  }

  /** Tells whether the reader answers with the values themselves, so that Spark need not put those of partitions together. */
  public boolean supportCompletePushDown(Aggregation aggregation) {
    try {
      Map bound = new LinkedHashMap(request);
      StructType output = aggregated(aggregation, bound);
      if (output == null) {
        return false;
      }
      RequestScan scan = new RequestScan(table, options, output, bound, pushed);
      InternalRow[] found = scan.found();
      asked = scan;
      return found != null && found.length == 1;
    } catch (LinkageError e) {
      Log.leftToSpark("aggregates", e);
    }
    return false;
  }

  /** Takes counts of rows and values, and minima and maxima of the types that Forms.isOrdered names, over all rows. */
  public boolean pushAggregation(Aggregation aggregation) {
    try {
      Map bound = new LinkedHashMap(request);
      StructType output = aggregated(aggregation, bound);
      if (output != null) {
        request.putAll(bound);
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

  /** Adds aggregates to a request and returns the columns of their values, or null if they are not the reader's. */
  private StructType aggregated(Aggregation aggregation, Map to) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (aggregation.groupByExpressions().length > 0 || functions.length == 0) {
      return null;
    }
    StructType output = new StructType();
    List forms = new ArrayList();
    for (int i = 0; i < functions.length; i++) {
      AggregateFunc function = functions[i];
      String name = nameOf(function);
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
        DataType found = Forms.typeAt(table.schema(), path);
        if (found == null) {
          return null;
        }
        form.put("col", path);
        if (!(function instanceof Count)) {
          if (!Forms.isOrdered(found)) {
            return null;
          }
          type = found;
        }
      }
      forms.add(form);
      output = output.add("agg" + i, type, true);
    }
    to.put("aggregates", forms);
    return output;
  }

  private static String nameOf(AggregateFunc function) {
    if (function instanceof CountStar) return "count_star";
    if (function instanceof Count) return ((Count) function).isDistinct() ? null : "count";
    if (function instanceof Min) return "min";
    if (function instanceof Max) return "max";
    return null;
  }

  public boolean pushLimit(int limit) {
    request.put("limit", Integer.valueOf(limit));
    if (!request.containsKey("filters") && !options.containsKey("filter") && limit <= MOST_ROWS_OF_ONE) {
      request.put("exact", Boolean.TRUE);
    } else {
      request.remove("exact");
    }
    return true;
  }

  /**
   * Without filters, one partition gives a small limit exactly, and ends of itself. Else each partition may give so many
   * rows and Spark takes the limit of all; it then kills the Python workers that it stops reading from.
   */
  public boolean isPartiallyPushed() {
    return !request.containsKey("exact");
  }

  public void pruneColumns(StructType required) {
    if (required.isEmpty() && !Versions.takesBatchesWithoutColumns()) {
      wanted = Forms.narrowest(table.schema());
    } else {
      wanted = required;
    }
  }

  /** Asks at once: what the reader finds while it plans is part of the plan. */
  public Scan build() {
    if (!request.containsKey("aggregates")) {
      List packed = Packing.columns(wanted);
      if (!packed.isEmpty()) {
        request.put("packed", packed);
      }
    }
    RequestScan scan = asked;
    if (scan == null || !scan.asks(Forms.json(request), wanted)) {
      scan = new RequestScan(table, options, wanted, request, pushed);
    }
    InternalRow[] found = scan.found();
    return found == null ? scan : new FoundScan(scan, found);
  }
}
