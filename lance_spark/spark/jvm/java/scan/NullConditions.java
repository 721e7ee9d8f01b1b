package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.collection.Iterator;

/**
 * Conditions with a null literal, such as `x IS NULL AND NULL`, to which Spark's optimizer turns
 * comparisons of a column with a value outside of its type.
 *
 * <p>Spark fails when it translates such a condition for a scan that takes aggregates or orders. It
 * does not translate an expression around the null, so that it evaluates the condition itself.
 */
final class NullConditions extends Replacing {
  private NullConditions() {}

  /** Returns the plan with an expression around each null of a condition over our tables. */
  static LogicalPlan hidden(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new NullConditions());
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Aggregate || node instanceof Sort || node instanceof Project;
  }

  Object replaced(Object node) {
    LogicalPlan plan = (LogicalPlan) node;
    LogicalPlan hidden = (LogicalPlan) plan.transformExpressions(new Wrapping());
    // Few plans have such conditions: only for these are the leaves looked at.
    return hidden == plan || !readsOurs(plan) ? plan : hidden;
  }

  static boolean readsOurs(LogicalPlan plan) {
    for (Iterator i = plan.collectLeaves().iterator(); i.hasNext(); ) {
      if (isOurs(i.next())) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether a leaf is a table of ours, by path or by name, without push-down so far. */
  static boolean isOurs(Object leaf) {
    Object table =
        leaf instanceof DataSourceV2Relation ? ((DataSourceV2Relation) leaf).table() : null;
    return table instanceof NamedTable
        || table instanceof RequestTable
        || PushDownRule.isOurs(leaf);
  }

  static class Wrapping extends Replacing {
    public boolean isDefinedAt(Object e) {
      return (e instanceof And || e instanceof Or) && (isNull(left(e)) || isNull(right(e)));
    }

    Object replaced(Object e) {
      Expression left = wrapped(left(e));
      Expression right = wrapped(right(e));
      return e instanceof And ? (Object) new And(left, right) : new Or(left, right);
    }

    private static Expression wrapped(Expression e) {
      return isNull(e) ? new KnownNullable(e) : e;
    }

    private static boolean isNull(Expression e) {
      return e instanceof Literal && ((Literal) e).value() == null;
    }

    private static Expression left(Object e) {
      return (Expression) ((BinaryExpression) e).left();
    }

    private static Expression right(Object e) {
      return (Expression) ((BinaryExpression) e).right();
    }
  }
}
