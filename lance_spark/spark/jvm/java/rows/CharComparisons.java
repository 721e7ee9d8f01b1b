package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.StringTrimRight;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.types.StringType;
import scala.Option;
import scala.runtime.AbstractFunction1;

/**
 * Joins of a merge: compares columns of char(n) with keys of the source without spaces at their
 * ends.
 *
 * <p>Spark pads such a column, but not a string of a source that has no char(n). A key of the source
 * would match no row, and its row would be inserted, which pads the key: the table had two rows of
 * one key.
 */
public class CharComparisons extends Replacing {
  /** Returns the rows of a join, given as a frame, with such comparisons. */
  public static Object ofJoin(Object rows) {
    Dataset frame = (Dataset) rows;
    LogicalPlan plan = frame.queryExecution().analyzed();
    CharComparisons joins = new CharComparisons();
    return joins.isDefinedAt(plan)
        ? Dataset$.MODULE$.ofRows(frame.sparkSession(), (LogicalPlan) joins.replaced(plan))
        : frame;
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Join
        && ((Join) node).condition().isDefined()
        && ((Expression) ((Join) node).condition().get()).find(new IsDefined()).isDefined();
  }

  Object replaced(Object node) {
    Join join = (Join) node;
    Expression condition = (Expression) join.condition().get();
    return new Join(
        (LogicalPlan) join.productElement(0),
        (LogicalPlan) join.productElement(1),
        join.joinType(),
        Option.apply(condition.transform(new Trimming())),
        join.hint());
  }

  static class IsDefined extends AbstractFunction1 {
    public Object apply(Object node) {
      return Boolean.valueOf(isComparison(node));
    }
  }

  static class Trimming extends Replacing {
    public boolean isDefinedAt(Object e) {
      return isComparison(e);
    }

    Object replaced(Object e) {
      Expression left = trimmed((Expression) ((Expression) e).children().apply(0));
      Expression right = trimmed((Expression) ((Expression) e).children().apply(1));
      return e instanceof EqualTo
          ? (Object) new EqualTo(left, right)
          : new EqualNullSafe(left, right);
    }

    private static Expression trimmed(Expression e) {
      return new StringTrimRight(e, Option.empty());
    }
  }

  /** Returns whether an expression compares a column of char(n) with another string. */
  private static boolean isComparison(Object e) {
    if (!(e instanceof EqualTo) && !(e instanceof EqualNullSafe)) {
      return false;
    }
    Expression left = (Expression) ((Expression) e).children().apply(0);
    Expression right = (Expression) ((Expression) e).children().apply(1);
    return left.dataType() instanceof StringType
        && right.dataType() instanceof StringType
        && (isChar(left) || isChar(right));
  }

  private static boolean isChar(Expression e) {
    if (!(e instanceof Attribute)) {
      return false;
    }
    Option type = CharVarcharUtils.getRawTypeString(((Attribute) e).metadata());
    return type.isDefined() && ((String) type.get()).startsWith("char(");
  }
}
