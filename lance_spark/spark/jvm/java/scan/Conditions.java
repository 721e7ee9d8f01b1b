package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;

/** Writes conditions of changes of tables as forms (Forms), also in sessions without push-down. */
public final class Conditions {
  private Conditions() {}

  /**
   * Returns the JSON text of the form of a condition, or null if Spark must find the rows.
   *
   * <p>The query is one filter over an RDD. Spark's optimizer rewrites its condition as it does
   * before push-down. It may raise for a constant that cannot be computed; the result is then null,
   * so that Spark raises the error when it finds the rows.
   */
  public static Object write(Object query) {
    try {
      return form((QueryExecution) query);
    } catch (Exception e) {
      return null;
    } catch (LinkageError e) {
      Log.leftToSpark("conditions", e);
      return null;
    }
  }

  private static String form(QueryExecution query) {
    LogicalPlan analyzed = query.analyzed();
    if (!(analyzed instanceof Filter)
        || SubqueryExpression$.MODULE$.hasSubquery(((Filter) analyzed).condition())
        || !((Filter) analyzed).condition().deterministic()) {
      return null;
    }
    Object leaf = ((Filter) analyzed).child();
    while (leaf instanceof SubqueryAlias) {
      leaf = ((SubqueryAlias) leaf).child();
    }
    if (!(leaf instanceof LogicalRDD)) {
      return null;
    }
    LogicalPlan optimized = query.optimizedPlan();
    if (optimized instanceof LogicalRDD) {
      return "{\"lit\":\"true\",\"type\":\"boolean\"}";
    }
    if (optimized instanceof LocalRelation) {
      return "{\"lit\":\"false\",\"type\":\"boolean\"}";
    }
    if (!(optimized instanceof Filter) || !(((Filter) optimized).child() instanceof LogicalRDD)) {
      return null;
    }
    Expression condition = ((Filter) optimized).condition();
    Object form = Expressions.write(condition);
    return Forms.isSent(form) ? Forms.json(form) : null;
  }
}
