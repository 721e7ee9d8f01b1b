package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.sql.catalyst.expressions.Abs;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Which expressions raise no error, whatever the values of a row: an overflow, a division by zero,
 * a failed cast and others.
 *
 * <p>Spark evaluates the parts of a condition in their order. A part that the reader takes away is
 * evaluated before all others: rows that it leaves out raise no errors any more. So do rows that
 * are not among the first of an order.
 */
final class Failures {
  private Failures() {}

  /**
   * Returns the leaves of a plan for whose rows Spark computes an expression that may raise an error
   * before it orders them. It would compute the expression for the first rows only, if the scan
   * returned only these.
   */
  static Set computedLeaves(LogicalPlan plan) {
    Set leaves = Collections.newSetFromMap(new IdentityHashMap());
    plan.foreach(new Orders(leaves));
    return leaves;
  }

  static class Orders extends AbstractFunction1 {
    private final Set leaves;

    Orders(Set leaves) {
      this.leaves = leaves;
    }

    public Object apply(Object node) {
      if (node instanceof Sort) {
        LogicalPlan below = ((Sort) node).child();
        boolean mayRaise = false;
        while (below instanceof Project || below instanceof Filter) {
          mayRaise |= below instanceof Project && mayRaise(((Project) below).projectList());
          below = (LogicalPlan) below.children().apply(0);
        }
        if (mayRaise) {
          leaves.add(below);
        }
      }
      return BoxedUnit.UNIT;
    }
  }

  private static boolean mayRaise(Seq expressions) {
    for (int i = 0; i < expressions.size(); i++) {
      if (mayRaise((Expression) expressions.apply(i))) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the position of the first part of a condition that may raise an error for a row, or -1.
   * Spark evaluates functions in Python after all other parts.
   */
  static int first(List parts) {
    for (int i = 0; i < parts.size(); i++) {
      Expression part = (Expression) parts.get(i);
      if (mayRaise(part) && !hasPython(part)) {
        return i;
      }
    }
    return -1;
  }

  /**
   * Returns whether Spark evaluates a part of a condition before the first one that may raise an
   * error, or together with it: generated code tests a column for null before its first use.
   *
   * @param first the result of `first`
   */
  static boolean isBefore(int part, int first, List parts) {
    Expression e = (Expression) parts.get(part);
    if (first < 0 || !(e instanceof IsNotNull)) {
      return first < 0 || part < first;
    }
    if (!(((IsNotNull) e).child() instanceof AttributeReference)) {
      return false;
    }
    for (int i = 0; i <= first; i++) {
      Expression other = (Expression) parts.get(i);
      if (!(other instanceof IsNotNull) && e.references().subsetOf(other.references())) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the plan with parts of conditions that Spark 4.0 does not translate for a scan: it
   * translates each part by itself, and forgets their order.
   */
  static LogicalPlan keptInOrder(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new Untranslated());
  }

  static class Untranslated extends Replacing {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof Filter) || !NullConditions.readsOurs((LogicalPlan) node)) {
        return false;
      }
      List parts = new ArrayList();
      addParts(((Filter) node).condition(), parts);
      int first = first(parts);
      return first >= 0 && !(parts.get(first) instanceof KnownNullable);
    }

    Object replaced(Object node) {
      List parts = new ArrayList();
      addParts(((Filter) node).condition(), parts);
      int first = first(parts);
      Expression condition = null;
      for (int i = 0; i < parts.size(); i++) {
        Expression part = (Expression) parts.get(i);
        part = isBefore(i, first, parts) ? part : new KnownNullable(part);
        condition = condition == null ? part : new And(condition, part);
      }
      return new Filter(condition, ((Filter) node).child());
    }

    private static void addParts(Expression condition, List parts) {
      if (condition instanceof And) {
        addParts((Expression) condition.children().apply(0), parts);
        addParts((Expression) condition.children().apply(1), parts);
      } else {
        parts.add(condition);
      }
    }
  }

  /** Returns whether an expression may raise an error for a row. */
  static boolean mayRaise(Expression e) {
    if (!isSafe(e, SparkClasses.of(e))) {
      return true;
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      if (mayRaise((Expression) i.next())) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether an expression raises no error of its own. */
  private static boolean isSafe(Expression e, String name) {
    if (SparkClasses.SAFE_EXPRESSIONS.contains(name) || VectorFunctions.hasOneLength(e)) {
      return true;
    }
    boolean isFloat = e.dataType() instanceof DoubleType || e.dataType() instanceof FloatType;
    if (e instanceof Cast) {
      Cast cast = (Cast) e;
      return !isAnsi(e) || Cast.canUpCast(cast.child().dataType(), cast.dataType());
    }
    if (SparkClasses.ARITHMETIC.contains(name)) {
      return e.dataType() instanceof NumericType && (!isAnsi(e) || isInRange(e, name, isFloat));
    }
    if (name.equals("Abs") || name.equals("UnaryMinus")) {
      return e.dataType() instanceof NumericType && (isFloat || !failsOnError(e));
    }
    if (name.equals("GetArrayItem")) {
      return !failsOnError(e);
    }
    if (name.equals("Concat")) {
      return e.dataType() instanceof StringType;
    }
    if (name.equals("RLike")) {
      return isPattern((Expression) e.children().apply(1));
    }
    return false;
  }

  /** Returns whether arithmetic of floats, or a division by a constant, has a result. */
  private static boolean isInRange(Expression e, String name, boolean isFloat) {
    if (!SparkClasses.DIVISIONS.contains(name)) {
      return isFloat;
    }
    Expression divisor = (Expression) e.children().apply(1);
    if (!(divisor instanceof Literal) || !(((Literal) divisor).value() instanceof Number)) {
      return false;
    }
    double value = ((Number) ((Literal) divisor).value()).doubleValue();
    return value != 0 && (isFloat || (value != -1 && !name.equals("Divide")));
  }

  private static boolean isPattern(Expression pattern) {
    if (!(pattern instanceof Literal) || ((Literal) pattern).value() == null) {
      return false;
    }
    try {
      Pattern.compile(((Literal) pattern).value().toString());
      return true;
    } catch (PatternSyntaxException e) {
      return false;
    }
  }

  private static boolean isAnsi(Expression e) {
    return SparkShims.isAnsi(e);
  }

  private static boolean failsOnError(Expression e) {
    return e instanceof Abs
        ? ((Abs) e).failOnError()
        : e instanceof UnaryMinus
            ? ((UnaryMinus) e).failOnError()
            : ((GetArrayItem) e).failOnError();
  }

  private static boolean hasPython(Expression e) {
    if (e instanceof PythonUDF) {
      return true;
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      if (hasPython((Expression) i.next())) {
        return true;
      }
    }
    return false;
  }
}
