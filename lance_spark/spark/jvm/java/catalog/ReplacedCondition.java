package org.lancespark;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.NullType;
import scala.Product;

/**
 * The condition of the rows that REPLACE WHERE replaces. No row meets null. Spark's optimizer makes
 * null false in the conditions of filters and DELETE, but not here, and then finds no predicate for
 * it.
 */
final class ReplacedCondition {
  private static final SparkField CONDITION = SparkField.DELETE_EXPR;

  private ReplacedCondition() {}

  /** Returns whether a node is an overwrite of ours whose condition has to be rewritten. */
  static boolean isDefined(Object node) {
    if (!(node instanceof OverwriteByExpression) || name(node) == null) {
      return false;
    }
    Expression condition = condition(node);
    return !(condition.dataType() instanceof BooleanType) || met(condition) != condition;
  }

  static Object replaced(Object node) {
    Expression condition = condition(node);
    if (!(condition.dataType() instanceof BooleanType)
        && !(condition.dataType() instanceof NullType)) {
      throw Errors.unchecked(
          name(node)
              + ": the condition of the rows to replace must be boolean, but "
              + condition.sql()
              + " is of type "
              + condition.dataType().simpleString());
    }
    try {
      return SparkShims.copy(
          node, new SparkField[] {CONDITION}, new Object[] {met(condition)});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static String name(Object node) {
    Object relation = SparkField.TABLE.of(node);
    return relation instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) relation).table() instanceof NamedTable
        ? ((DataSourceV2Relation) relation).table().name()
        : null;
  }

  private static Expression condition(Object node) {
    return (Expression) CONDITION.of(node);
  }

  /** Returns a condition that the same rows meet, without nulls that are not below a function. */
  private static Expression met(Expression e) {
    if (e instanceof Literal && ((Literal) e).value() == null) {
      return Literal.FalseLiteral();
    }
    if (!(e instanceof And) && !(e instanceof Or)) {
      return e;
    }
    Expression given = (Expression) e.children().apply(0);
    Expression other = (Expression) e.children().apply(1);
    Expression left = met(given);
    Expression right = met(other);
    if (left == given && right == other) {
      return e;
    }
    if (e instanceof And) {
      return isFalse(left) || isFalse(right) ? Literal.FalseLiteral() : new And(left, right);
    }
    return isFalse(left) ? right : isFalse(right) ? left : new Or(left, right);
  }

  private static boolean isFalse(Expression e) {
    return e instanceof Literal && Boolean.FALSE.equals(((Literal) e).value());
  }
}
