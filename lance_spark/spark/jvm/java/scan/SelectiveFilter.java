package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * A filter that is always true, above a scan that has taken all filters.
 *
 * <p>Spark filters a scan by the keys of the other side of a join only if it sees a selective
 * filter on that other side. This filter stands for those that the scan applies. It is removed when
 * Spark makes the physical plan, and with it the filters by keys that would nest.
 */
public class SelectiveFilter extends ScanStrategy {
  private static final UTF8String TEXT = UTF8String.fromString("pushed");

  SelectiveFilter() {
    super("filters of joins");
  }

  /** Returns whether Spark takes a filter to be selective, as for partition pruning. */
  static boolean isSelective(Expression filter) {
    return PartitionPruning$.MODULE$.isLikelySelective(filter);
  }

  /** Returns the filter. Spark would simplify a comparison of two equal values at once. */
  static Expression make() {
    return new LessThan(
        new Literal(UTF8String.EMPTY_UTF8, DataTypes.StringType),
        new Literal(TEXT, DataTypes.StringType));
  }

  /** Returns whether an expression is such a filter, which Spark may have simplified to true. */
  private static boolean isMade(Object expression) {
    return expression.equals(Literal.TrueLiteral())
        || (expression instanceof LessThan
            && isText(left(expression), UTF8String.EMPTY_UTF8)
            && isText(right(expression), TEXT));
  }

  /**
   * Returns whether an expression is a filter by the keys of a plan whose scans have such filters
   * themselves. Spark would plan that plan once more for each filter, with all that it has below:
   * twice as much for each join of a chain.
   */
  private static boolean isNested(Object expression) {
    return expression instanceof DynamicPruningSubquery
        && ((DynamicPruningSubquery) expression)
            .buildQuery()
            .containsPattern(TreePattern.DYNAMIC_PRUNING_SUBQUERY());
  }

  private static boolean isText(Expression e, UTF8String text) {
    return e instanceof Literal && text.equals(((Literal) e).value());
  }

  private static Expression left(Object e) {
    return (Expression) ((BinaryExpression) e).left();
  }

  private static Expression right(Object e) {
    return (Expression) ((BinaryExpression) e).right();
  }

  /**
   * Returns the leaves of a plan whose rows are joined, but for those below an aggregate without
   * groups or a limit, which may be pushed into the scan.
   */
  static Set joinedLeaves(LogicalPlan plan) {
    Set leaves = Collections.newSetFromMap(new IdentityHashMap());
    plan.foreach(new Joins(leaves));
    return leaves;
  }

  static class Joins extends AbstractFunction1 {
    private final Set leaves;

    Joins(Set leaves) {
      this.leaves = leaves;
    }

    public Object apply(Object node) {
      if (node instanceof Join) {
        addLeaves((LogicalPlan) node, leaves);
      }
      return BoxedUnit.UNIT;
    }
  }

  private static void addLeaves(LogicalPlan node, Set leaves) {
    boolean mayBePushed =
        node instanceof GlobalLimit
            || node instanceof LocalLimit
            || (node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty());
    if (mayBePushed) {
      return;
    }
    if (node.children().isEmpty()) {
      leaves.add(node);
    }
    for (int i = 0; i < node.children().size(); i++) {
      addLeaves((LogicalPlan) node.children().apply(i), leaves);
    }
  }

  /**
   * Returns the plan with such filters in its subqueries. Spark has planned their scans, has removed
   * filters that are always true, and makes joins of some subqueries later.
   */
  static LogicalPlan inSubqueries(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUpWithSubqueries(new Addition());
  }

  static class Addition extends Replacing {
    public boolean isDefinedAt(Object node) {
      return isSelective(node) || isRepeated(node);
    }

    private static boolean isSelective(Object node) {
      if (!(node instanceof DataSourceV2ScanRelation)) {
        return false;
      }
      Object scan = ((DataSourceV2ScanRelation) node).scan();
      return scan instanceof Selective && ((Selective) scan).isSelective();
    }

    /** Returns whether a filter is above another one: the plan has had the filters already. */
    private static boolean isRepeated(Object node) {
      return isFilter(node) && isFilter(((Filter) node).child());
    }

    private static boolean isFilter(Object node) {
      return node instanceof Filter && isMade(((Filter) node).condition());
    }

    Object replaced(Object node) {
      return isSelective(node) ? new Filter(make(), (LogicalPlan) node) : ((Filter) node).child();
    }
  }

  /** A scan that may have taken a filter that Spark takes to be selective. */
  interface Selective {
    boolean isSelective();
  }

  LogicalPlan changed(LogicalPlan plan) {
    return replaced(plan, new Removal());
  }

  /** Returns the other parts of a condition, or null if it has no such filter. */
  private static List without(Object condition) {
    List parts = new ArrayList(Arrays.asList(new Object[] {condition}));
    List others = new ArrayList();
    boolean found = false;
    while (!parts.isEmpty()) {
      Object part = parts.remove(0);
      if (part instanceof And) {
        parts.add(0, right(part));
        parts.add(0, left(part));
      } else if (isMade(part) || isNested(part)) {
        found = true;
      } else {
        others.add(part);
      }
    }
    return found ? others : null;
  }

  static class Removal extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof Filter && without(((Filter) node).condition()) != null;
    }

    Object replaced(Object node) {
      LogicalPlan plan = (LogicalPlan) node;
      List others = without(((Filter) node).condition());
      LogicalPlan child = (LogicalPlan) ((Filter) node).child();
      if (others.isEmpty()) {
        return child;
      }
      Expression condition = (Expression) others.get(0);
      for (int i = 1; i < others.size(); i++) {
        condition = new And(condition, (Expression) others.get(i));
      }
      return new Filter(condition, child);
    }
  }
}
