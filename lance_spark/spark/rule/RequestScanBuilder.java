package org.lancespark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
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
  protected final RequestTable table;
  private final CaseInsensitiveStringMap options;
  private final Map request = new LinkedHashMap();
  private StructType wanted;
  private Predicate[] pushed = new Predicate[0];

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

  /** Takes counts of rows and values, and minima and maxima of the types that Forms.isOrdered names, over all rows. */
  public boolean pushAggregation(Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (aggregation.groupByExpressions().length > 0 || functions.length == 0) {
      return false;
    }
    StructType output = new StructType();
    List asked = new ArrayList();
    for (int i = 0; i < functions.length; i++) {
      AggregateFunc function = functions[i];
      String name = nameOf(function);
      if (name == null) {
        return false;
      }
      Map form = new LinkedHashMap();
      form.put("op", name);
      DataType type = DataTypes.LongType;
      if (!(function instanceof CountStar)) {
        Expression argument = function.children()[0];
        if (!(argument instanceof NamedReference)) {
          return false;
        }
        String[] path = ((NamedReference) argument).fieldNames();
        DataType found = Forms.typeAt(table.schema(), path);
        if (found == null) {
          return false;
        }
        form.put("col", path);
        if (!(function instanceof Count)) {
          if (!Forms.isOrdered(found)) {
            return false;
          }
          type = found;
        }
      }
      asked.add(form);
      output = output.add("agg" + i, type, true);
    }
    request.put("aggregates", asked);
    wanted = output;
    return true;
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
    return true;
  }

  /** Each partition may give so many rows: Spark takes the limit of all. */
  public boolean isPartiallyPushed() {
    return true;
  }

  public void pruneColumns(StructType required) {
    if (required.isEmpty() && !Versions.takesBatchesWithoutColumns()) {
      wanted = Forms.narrowest(table.schema());
    } else {
      wanted = required;
    }
  }

  public Scan build() {
    return new RequestScan(table, options, wanted, request, pushed);
  }
}
