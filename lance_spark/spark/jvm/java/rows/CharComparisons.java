package org.lancespark;

import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.StringTrimRight;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
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
  private final Set ids;

  /** Compares columns by their ids. Spark 4.0 has no metadata of columns that it pads. */
  CharComparisons(Set ids) {
    this.ids = ids;
  }

  /**
   * Returns the rows of a join, as a frame, with such comparisons.
   *
   * @param given a map of the frame "rows", of the "names" of columns of char(n), and of the "mark",
   *     the name of a column of the side that has them
   */
  public static Object ofJoin(Object given) {
    Dataset frame = (Dataset) ((Map) given).get("rows");
    LogicalPlan plan = frame.queryExecution().analyzed();
    if (!(plan instanceof Join)) {
      return frame;
    }
    Set ids = new HashSet();
    for (int i = 0; i < 2; i++) {
      LogicalPlan side = (LogicalPlan) plan.children().apply(i);
      if (ids(side, Collections.singleton(((Map) given).get("mark"))).size() == 1) {
        ids.addAll(ids(side, (Collection) ((Map) given).get("names")));
      }
    }
    CharComparisons joins = new CharComparisons(ids);
    return joins.isDefinedAt(plan)
        ? Dataset$.MODULE$.ofRows(frame.sparkSession(), (LogicalPlan) joins.replaced(plan))
        : frame;
  }

  /** Returns the ids of the columns of a plan that have one of some names. */
  static Set ids(LogicalPlan plan, Collection names) {
    Set ids = new HashSet();
    for (int i = 0; i < plan.output().size(); i++) {
      Attribute attribute = (Attribute) plan.output().apply(i);
      if (names.contains(attribute.name())) {
        ids.add(attribute.exprId());
      }
    }
    return ids;
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Join
        && ((Join) node).condition().isDefined()
        && ((Expression) ((Join) node).condition().get()).find(new IsDefined(ids)).isDefined();
  }

  Object replaced(Object node) {
    Join join = (Join) node;
    Expression condition = (Expression) join.condition().get();
    return new Join(
        (LogicalPlan) SparkField.LEFT.of(join),
        (LogicalPlan) SparkField.RIGHT.of(join),
        join.joinType(),
        Option.apply(condition.transform(new Trimming(ids))),
        join.hint());
  }

  static class IsDefined extends AbstractFunction1 {
    private final Set ids;

    IsDefined(Set ids) {
      this.ids = ids;
    }

    public Object apply(Object node) {
      return Boolean.valueOf(isComparison(node, ids));
    }
  }

  static class Trimming extends Replacing {
    private final Set ids;

    Trimming(Set ids) {
      this.ids = ids;
    }

    public boolean isDefinedAt(Object e) {
      return isComparison(e, ids);
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
  private static boolean isComparison(Object e, Set ids) {
    if ((!(e instanceof EqualTo) && !(e instanceof EqualNullSafe))
        || !((Expression) e).resolved()) {
      return false;
    }
    Expression left = (Expression) ((Expression) e).children().apply(0);
    Expression right = (Expression) ((Expression) e).children().apply(1);
    return left.dataType() instanceof StringType
        && right.dataType() instanceof StringType
        && (isChar(left, ids) || isChar(right, ids));
  }

  private static boolean isChar(Expression e, Set ids) {
    // A column keeps its type under spark.sql.preserveCharVarcharTypeInfo, and is cast to strings.
    Expression column = e instanceof Cast ? ((Cast) e).child() : e;
    return column instanceof Attribute && ids.contains(((Attribute) column).exprId());
  }
}
