package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Plans joins with APPROX NEAREST k BY a distance as LanceTable.nearest_join does, if the right side
 * is a table of ours. Spark, which has them since 4.2, compares all rows with all others.
 *
 * <p>The rule comes after the analysis: the first rules of the optimizer replace such joins.
 */
public class NearestJoinRule extends Rule {
  private static final String VECTOR = "vector";

  /** Functions, the metric of each, and whether the greatest values are the nearest. */
  private static final Object[][] METRICS = {
    {VectorDistance.L2, "l2", Boolean.FALSE},
    {VectorDistance.COSINE, "cosine", Boolean.FALSE},
    {VectorDistance.DOT, "dot", Boolean.TRUE},
    {SparkClasses.L2_DISTANCE, "l2", Boolean.FALSE},
    {SparkClasses.COSINE_SIMILARITY, "cosine", Boolean.TRUE},
    {SparkClasses.INNER_PRODUCT, "dot", Boolean.TRUE}
  };

  public TreeNode apply(TreeNode plan) {
    boolean isEnabled = PushDownRule.isEnabled() && SQLConf.get().crossJoinEnabled();
    return isEnabled ? (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement()) : plan;
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return SparkRelease.isNearestJoin(node) && ((LogicalPlan) node).resolved();
    }

    Object replaced(Object node) {
      try {
        LogicalPlan plan = replacement((LogicalPlan) node);
        return plan == null ? node : plan;
      } catch (Exception e) {
        Log.leftToSpark("joins with NEAREST BY", e);
      } catch (LinkageError e) {
        Log.leftToSpark("joins with NEAREST BY", e);
      }
      return node;
    }
  }

  /** Returns the plan of a join; null if Spark is to plan it. */
  private static LogicalPlan replacement(LogicalPlan node) {
    Product join = (Product) node;
    LogicalPlan left = (LogicalPlan) SparkField.LEFT.of(join);
    LogicalPlan right = (LogicalPlan) SparkField.RIGHT.of(join);
    DataSourceV2Relation relation = relationOf(right);
    boolean isApproximate = ((Boolean) SparkField.APPROX.of(join)).booleanValue();
    if (!isApproximate || relation == null || left.isStreaming()) {
      return null;
    }
    List names = new ArrayList();
    for (Iterator i = right.output().iterator(); i.hasNext(); ) {
      Attribute column = (Attribute) i.next();
      if (!relation.outputSet().contains(column)) {
        return null;
      }
      names.add(column.name());
    }
    Expression distance = (Expression) SparkField.RANKING_EXPRESSION.of(join);
    distance = distance instanceof Alias ? ((Alias) distance).child() : distance;
    boolean isSimilarity =
        String.valueOf(SparkField.DIRECTION.of(join)).equals("NearestBySimilarity");
    String metric = metricOf(distance, isSimilarity);
    boolean isOurs = VectorFunctions.called(distance) != null;
    Seq vectors = isOurs ? ((Invoke) distance).arguments() : distance.children();
    if (metric == null || vectors.size() != 2) {
      return null;
    }
    Expression first = (Expression) vectors.apply(0);
    Expression second = (Expression) vectors.apply(1);
    boolean isFirst = isColumn(first, relation);
    Expression own = isFirst ? first : second;
    Expression query = isFirst ? second : first;
    if (!isColumn(own, relation)
        || !query.deterministic()
        || !query.references().subsetOf(left.outputSet())) {
      return null;
    }
    Map arguments = new LinkedHashMap();
    arguments.put("options", optionsOf(relation));
    arguments.put("column", ((AttributeReference) own).name());
    arguments.put("columns", names);
    arguments.put("k", SparkField.NUM_RESULTS.of(join));
    arguments.put("metric", metric);
    boolean isInner = String.valueOf(SparkField.JOIN_TYPE.of(join)).equals("Inner");
    arguments.put("how", isInner ? "inner" : "left");
    arguments.put("settings", RequestScanBuilder.nearestSettings());
    Dataset queries = Dataset$.MODULE$.ofRows(SparkSession.active(), renamed(left, query));
    Dataset joined = (Dataset) SessionCallback.exchanged("join_nearest", arguments, queries);
    return withColumns(node, joined.queryExecution().analyzed(), left.output().size());
  }

  /** Returns the relation of a table of ours under names and lists of columns; else null. */
  private static DataSourceV2Relation relationOf(LogicalPlan plan) {
    while (plan instanceof SubqueryAlias || plan instanceof Project || plan instanceof View) {
      plan = (LogicalPlan) plan.children().apply(0);
    }
    if (!(plan instanceof DataSourceV2Relation)) {
      return null;
    }
    Table table = ((DataSourceV2Relation) plan).table();
    boolean isOurs = PushDownRule.isOurs(plan) || table instanceof NamedTable;
    return isOurs ? (DataSourceV2Relation) plan : null;
  }

  private static Map optionsOf(DataSourceV2Relation relation) {
    Map given = relation.options().asCaseSensitiveMap();
    boolean isNamed = relation.table() instanceof NamedTable;
    return new HashMap(
        isNamed
            ? ((NamedTable) relation.table()).with(given).asCaseSensitiveMap()
            : TimeZones.added(given));
  }

  private static boolean isColumn(Expression expression, DataSourceV2Relation relation) {
    return expression instanceof AttributeReference
        && relation.outputSet().contains((AttributeReference) expression);
  }

  private static String metricOf(Expression distance, boolean isSimilarity) {
    ScalarFunction function = VectorFunctions.called(distance);
    String name = function == null ? SparkClasses.of(distance) : function.name();
    for (int i = 0; i < METRICS.length; i++) {
      boolean descends = ((Boolean) METRICS[i][2]).booleanValue();
      if (METRICS[i][0].equals(name) && descends == isSimilarity) {
        return (String) METRICS[i][1];
      }
    }
    return null;
  }

  /** Returns queries whose columns have distinct names, and their vectors as the last column. */
  static LogicalPlan renamed(LogicalPlan queries, Expression vector) {
    List columns = new ArrayList();
    for (Iterator i = queries.output().iterator(); i.hasNext(); ) {
      columns.add(AssignedColumns.alias((Expression) i.next(), "query" + columns.size()));
    }
    columns.add(AssignedColumns.alias(vector, VECTOR));
    return new Project(AssignedColumns.seq(columns), queries);
  }

  /**
   * Returns the rows of a plan as the columns of a join; null if their types differ.
   *
   * @param queries the number of the columns of the queries, after which their vector comes
   */
  private static LogicalPlan withColumns(LogicalPlan join, LogicalPlan rows, int queries) {
    Seq found = rows.output();
    List columns = new ArrayList();
    for (Iterator i = join.output().iterator(); i.hasNext(); ) {
      Attribute wanted = (Attribute) i.next();
      int number = columns.size();
      Attribute column = (Attribute) found.apply(number < queries ? number : number + 1);
      if (!column.dataType().equals(wanted.dataType())) {
        return null;
      }
      // Spark declares that all columns of such a join can be null.
      Expression value = column.nullable() ? column : new KnownNullable(column);
      columns.add(
          new Alias(
              value,
              wanted.name(),
              wanted.exprId(),
              wanted.qualifier(),
              Option.apply(wanted.metadata()),
              (Seq) Nil$.MODULE$));
    }
    return new Project(AssignedColumns.seq(columns), rows);
  }
}
