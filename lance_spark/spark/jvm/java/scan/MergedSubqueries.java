package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction0;

/**
 * Aggregates in subqueries over the same rows of a table, which Spark reads once.
 *
 * <p>Spark merges subqueries whose scans are equal. But it has optimized each subquery by then, and
 * scans that have taken the aggregates of different subqueries are not equal. So a subquery that may
 * be merged is set aside just before push-down: a leaf holds its plan. When the query around it has
 * come to the same point, the plans come back, and Spark's own rule merges them. The merged ones are
 * part of the query from then on, and Spark pushes their aggregates down. The optimizer goes on with
 * each of the others by itself.
 */
final class MergedSubqueries {
  /**
   * Spark's setting: whether it merges subqueries of different rows, and filters the rows in their
   * aggregates. Scans take no such aggregates, and would read all rows.
   */
  private static final String OF_OTHER_ROWS =
      "spark.sql.optimizer.mergeSubplans.filterPropagation.enabled";

  private MergedSubqueries() {}

  /** Returns a subquery as a leaf that holds its plan, or as it is. */
  static Subquery setAside(Subquery subquery) {
    LogicalPlan plan = subquery.child();
    DataSourceV2Relation relation = subquery.correlated() ? null : relation(plan);
    if (relation == null) {
      return subquery;
    }
    DataSourceV2ScanRelation leaf =
        new DataSourceV2ScanRelation(
            relation,
            new Held(PushDownRule.withRequests(plan)),
            (Seq) plan.output(),
            Option.empty(),
            Option.empty()
            /* since 4.2
            , (Seq) Nil$.MODULE$
            since 4.2 */
            /* since 4.3
            , false
            since 4.3 */
            );
    return new Subquery(leaf, false);
  }

  /**
   * Returns the table of a plan that aggregates its rows to one, unless metadata may know the result;
   * null for all other plans.
   */
  private static DataSourceV2Relation relation(LogicalPlan plan) {
    boolean isAggregated = false;
    boolean readsRows = false;
    LogicalPlan node = plan;
    while (node instanceof Project || node instanceof Filter || isAggregate(node)) {
      isAggregated |= isAggregate(node);
      readsRows |= node instanceof Filter || isAggregate(node) && !isKnown((Aggregate) node);
      node = (LogicalPlan) ((UnaryNode) node).child();
    }
    return isAggregated && readsRows && NullConditions.isOurs(node)
        ? (DataSourceV2Relation) node
        : null;
  }

  private static boolean isAggregate(LogicalPlan node) {
    return node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty();
  }

  /** Returns whether metadata may know all results of aggregates without a filter. */
  private static boolean isKnown(Aggregate aggregate) {
    for (Iterator i = aggregate.aggregateExpressions().iterator(); i.hasNext(); ) {
      if (!isKnown((Expression) i.next())) {
        return false;
      }
    }
    return true;
  }

  private static boolean isKnown(Expression expression) {
    if (expression instanceof AggregateExpression) {
      AggregateExpression aggregate = (AggregateExpression) expression;
      Object function = aggregate.aggregateFunction();
      return !aggregate.isDistinct()
          && aggregate.filter().isEmpty()
          && (function instanceof Count || function instanceof Min || function instanceof Max);
    }
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      if (!isKnown((Expression) i.next())) {
        return false;
      }
    }
    return true;
  }

  /** Returns a query with the plans that were set aside, merged where Spark merges them. */
  static LogicalPlan putBack(LogicalPlan query) {
    Restoring restoring = new Restoring();
    LogicalPlan whole = (LogicalPlan) query.transformUpWithSubqueries(restoring);
    if (restoring.count == 0) {
      return query;
    }
    LogicalPlan merged = restoring.count == 1 ? whole : merged(whole);
    return (LogicalPlan) merged.transformAllExpressions(new Optimizing());
  }

  private static LogicalPlan merged(LogicalPlan query) {
    try {
      Rule rule = SparkRelease.mergingOfSubqueries();
      Option excluded = SQLConf.get().optimizerExcludedRules();
      if (excluded.isDefined() && ((String) excluded.get()).contains(rule.ruleName())) {
        return query;
      }
      SQLConf settings = SQLConf.get().clone();
      settings.setConfString(OF_OTHER_ROWS, "false");
      return (LogicalPlan)
          SQLConf$.MODULE$.withExistingConf(settings, new Application(rule, query));
    } catch (Exception e) {
      Log.leftToSpark("subqueries", e);
    } catch (LinkageError e) {
      Log.leftToSpark("subqueries", e);
    }
    return query;
  }

  /** The plan of a subquery that is set aside. */
  static final class Held implements Scan {
    private final LogicalPlan plan;

    Held(LogicalPlan plan) {
      this.plan = plan;
    }

    public StructType readSchema() {
      return plan.schema();
    }
  }

  static final class Restoring extends Replacing {
    private int count;

    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2ScanRelation
          && ((DataSourceV2ScanRelation) node).scan() instanceof Held;
    }

    Object replaced(Object node) {
      count++;
      // A subquery that is set aside may have others in its conditions.
      return ((Held) ((DataSourceV2ScanRelation) node).scan())
          .plan.transformUpWithSubqueries(this);
    }
  }

  static final class Application extends AbstractFunction0 {
    private final Rule rule;
    private final LogicalPlan plan;

    Application(Rule rule, LogicalPlan plan) {
      this.rule = rule;
      this.plan = plan;
    }

    public Object apply() {
      return rule.apply(plan);
    }
  }

  /** Lets the optimizer go on with the subqueries that it has not pushed down. */
  static final class Optimizing extends Replacing {
    public boolean isDefinedAt(Object expression) {
      return expression instanceof SubqueryExpression;
    }

    Object replaced(Object expression) {
      SubqueryExpression subquery = (SubqueryExpression) expression;
      LogicalPlan plan = (LogicalPlan) subquery.plan();
      LogicalPlan optimized = (LogicalPlan) plan.transformAllExpressions(this);
      if (NullConditions.readsOurs(optimized)) {
        // As a correlated one, which is not set aside again. Spark only adds no filters of joins to
        // those, and there are no joins.
        Subquery whole = new Subquery(optimized, true);
        optimized =
            ((Subquery) SparkSession.active().sessionState().optimizer().execute(whole)).child();
      }
      return optimized == plan ? subquery : subquery.withNewPlan(optimized);
    }
  }
}
