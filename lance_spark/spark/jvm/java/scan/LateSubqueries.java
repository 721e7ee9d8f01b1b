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
import org.apache.spark.sql.catalyst.trees.TreePattern;
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
 * Aggregates in subqueries, which are pushed down with the query around them.
 *
 * <p>Spark optimizes each subquery by itself, before the query. Its scans would be planned too early:
 *
 * <ul>
 *   <li>Spark merges subqueries whose scans are equal, and reads the rows once. Scans that have taken
 *       the aggregates of different subqueries are not equal.
 *   <li>A subquery that depends on rows of the query becomes a join, which adds filters of its keys.
 *       The scans of one that joins tables would not take these, and would differ from equal scans
 *       of the query, with which they share their rows otherwise.
 * </ul>
 *
 * <p>So plans are set aside just before push-down: a leaf holds the plan of a subquery that may be
 * merged, or a table of one that becomes a join. When the query around it has come to the same point,
 * the plans come back, and Spark's own rule merges them. The merged ones are part of the query from
 * then on, as joins are, and Spark pushes their aggregates down. The optimizer goes on with each of
 * the others by itself.
 */
final class LateSubqueries {
  /**
   * Spark's setting: whether it merges subqueries of different rows, and filters the rows in their
   * aggregates. Scans take no such aggregates, and would read all rows.
   */
  private static final String OF_OTHER_ROWS =
      "spark.sql.optimizer.mergeSubplans.filterPropagation.enabled";

  /** Set while the optimizer goes on with a subquery: it is not set aside again. */
  private static final ThreadLocal GOES_ON = new ThreadLocal();

  private LateSubqueries() {}

  /** Returns a subquery with what is set aside in leaves, or as it is. */
  static Subquery setAside(Subquery subquery) {
    LogicalPlan plan = subquery.child();
    if (GOES_ON.get() != null) {
      return subquery;
    }
    if (subquery.correlated()) {
      return aggregatesJoin(plan) ? (Subquery) subquery.transform(new Holding()) : subquery;
    }
    DataSourceV2Relation relation = relation(plan);
    return relation == null
        ? subquery
        : new Subquery(leaf(relation, PushDownRule.withRequests(plan)), false);
  }

  /**
   * Returns a query or a subquery with the plans of subqueries that have become joins in it. What
   * is set aside in their own subqueries stays there until the whole query is put back.
   */
  static LogicalPlan withJoined(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUp(new Restoring(false));
  }

  private static LogicalPlan leaf(DataSourceV2Relation relation, LogicalPlan held) {
    return new DataSourceV2ScanRelation(
        relation,
        new Held(held),
        (Seq) held.output(),
        Option.empty(),
        Option.empty()
        /* since 4.2
        , (Seq) Nil$.MODULE$
        since 4.2 */
        /* since 4.3
        , false
        since 4.3 */
        );
  }

  /**
   * Returns whether a plan aggregates rows that it joins: by the keys of one more join, if Spark
   * makes one of it. The scan of a single table takes such an aggregate without more filters.
   */
  private static boolean aggregatesJoin(LogicalPlan plan) {
    LogicalPlan node = plan;
    while (node instanceof Project || node instanceof Filter) {
      node = (LogicalPlan) ((UnaryNode) node).child();
    }
    return node instanceof Aggregate && node.containsPattern(TreePattern.JOIN());
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
    Restoring restoring = new Restoring(true);
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

  /** Sets tables aside. */
  static final class Holding extends Replacing {
    public boolean isDefinedAt(Object node) {
      return NullConditions.isOurs(node);
    }

    Object replaced(Object node) {
      return leaf((DataSourceV2Relation) node, (LogicalPlan) node);
    }
  }

  /** The plan of a subquery, or the table of one, that is set aside. */
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
    private final boolean inSubqueries;
    private int count;

    Restoring(boolean inSubqueries) {
      this.inSubqueries = inSubqueries;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2ScanRelation
          && ((DataSourceV2ScanRelation) node).scan() instanceof Held;
    }

    Object replaced(Object node) {
      count++;
      LogicalPlan held = ((Held) ((DataSourceV2ScanRelation) node).scan()).plan;
      // A subquery that is set aside may have others in its conditions.
      return inSubqueries ? held.transformUpWithSubqueries(this) : held;
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
        optimized = pushedDown(optimized);
      }
      return optimized == plan ? subquery : subquery.withNewPlan(optimized);
    }

    private static LogicalPlan pushedDown(LogicalPlan plan) {
      // As a correlated one: Spark only adds no filters of joins to those, and there are no joins.
      Subquery whole = new Subquery(plan, true);
      GOES_ON.set(Boolean.TRUE);
      try {
        return ((Subquery) SparkSession.active().sessionState().optimizer().execute(whole)).child();
      } finally {
        GOES_ON.remove();
      }
    }
  }
}
