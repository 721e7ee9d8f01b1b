package org.lancespark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.RewriteMergeIntoTable$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets a MERGE have values that differ each time they are computed, such as uuid() and rand(), in
 * its source and in the values that its clauses assign. Spark refuses them because of two parts of
 * its plan:
 *
 * <ul>
 *   <li>a subquery that reads the source once more, to filter the files of the table. It is left
 *       out: the source has other values the second time;
 *   <li>the operator that chooses the clause of each row. It gets such values as columns, which a
 *       projection of the joined rows computes once for each row.
 * </ul>
 *
 * <p>Conditions with such values stay refused, as in Delta.
 */
public class RandomValuesRule extends Rule {
  private static final SparkField GROUP_FILTER = SparkField.GROUP_FILTER_CONDITION;
  private static final SparkField SOURCE = SparkField.IS_SOURCE_ROW_PRESENT;
  private static final SparkField TARGET = SparkField.IS_TARGET_ROW_PRESENT;

  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  /** Makes Spark's plan of a MERGE, which Spark 4.0 does after the rules of extensions. */
  private static Object planned(MergeIntoTable merge) {
    for (Iterator i = merge.targetTable().collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (leaf instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
        return RewriteMergeIntoTable$.MODULE$.apply((LogicalPlan) merge);
      }
    }
    return merge;
  }

  private static boolean isDelta(Object node) {
    return node instanceof WriteDelta
        && RowChangeRule.changeOf(SparkField.TABLE.of(node)) != null
        && (readsSourceAgain((WriteDelta) node) || isRandom(query(node)));
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return isDelta(node) || node instanceof MergeIntoTable && isRandom(node);
    }

    Object replaced(Object node) {
      if (node instanceof MergeIntoTable) {
        node = planned((MergeIntoTable) node);
        if (!isDelta(node)) {
          return node;
        }
      }
      WriteDelta delta = (WriteDelta) node;
      try {
        Object query = isRandom(query(delta)) ? computed((MergeRows) query(delta)) : query(delta);
        return readsSourceAgain(delta)
            ? SparkShims.copy(
                delta,
                new SparkField[] {SparkField.QUERY, GROUP_FILTER},
                new Object[] {query, Option.empty()})
            : SparkShims.copy(delta, new SparkField[] {SparkField.QUERY}, new Object[] {query});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private static Object query(Object delta) {
    return SparkField.QUERY.of(delta);
  }

  private static boolean readsSourceAgain(WriteDelta delta) {
    if (!GROUP_FILTER.isOf(delta)) {
      return false;
    }
    Option filter = (Option) GROUP_FILTER.of(delta);
    return filter.isDefined() && !((Expression) filter.get()).deterministic();
  }

  private static boolean isRandom(Object plan) {
    if (plan instanceof MergeRows || plan instanceof MergeIntoTable) {
      for (Iterator i = ((LogicalPlan) plan).expressions().iterator(); i.hasNext(); ) {
        if (!((Expression) i.next()).deterministic()) {
          return true;
        }
      }
    }
    return false;
  }

  /** Returns the operator over a projection that computes such values. */
  private static Object computed(MergeRows merge) throws ReflectiveOperationException {
    LogicalPlan child = (LogicalPlan) SparkField.CHILD.of(merge);
    Expression source = (Expression) SOURCE.of(merge);
    Expression target = (Expression) TARGET.of(merge);
    List output = new ArrayList(CollectionConverters.asJava(child.output()));
    SparkField[] names = {
      SparkField.MATCHED_INSTRUCTIONS,
      SparkField.NOT_MATCHED_INSTRUCTIONS,
      SparkField.NOT_MATCHED_BY_SOURCE_INSTRUCTIONS,
      SparkField.CHILD
    };
    // A value is computed only for the rows of the clause: the others lack what it is made of.
    Expression[] rows = {
      new And(source, target), new And(source, new Not(target)), new And(new Not(source), target)
    };
    Object[] replaced = new Object[names.length];
    for (int n = 0; n < rows.length; n++) {
      List instructions = new ArrayList();
      for (Iterator i = ((Seq) names[n].of(merge)).iterator(); i.hasNext(); ) {
        instructions.add(withColumns((Product) i.next(), rows[n], output));
      }
      replaced[n] = AssignedColumns.seq(instructions);
    }
    replaced[names.length - 1] = new Project(AssignedColumns.seq(output), child);
    return SparkShims.copy(merge, names, replaced);
  }

  /** Returns an instruction whose values, not its condition, name columns of the projection. */
  private static Object withColumns(Product instruction, Expression rows, List output)
      throws ReflectiveOperationException {
    Object changed = instruction;
    SparkField[] lists = {SparkField.OUTPUT, SparkField.OTHER_OUTPUT};
    for (int n = 0; n < lists.length; n++) {
      if (lists[n].isOf(instruction)) {
        List values = new ArrayList();
        for (Iterator i = ((Seq) lists[n].of(instruction)).iterator(); i.hasNext(); ) {
          values.add(((Expression) i.next()).transformUp(new Columns(rows, output)));
        }
        changed =
            SparkShims.copy(
                changed,
                new SparkField[] {lists[n]},
                new Object[] {AssignedColumns.seq(values)});
      }
    }
    return changed;
  }

  /** Replaces the innermost values that are not deterministic by columns that it adds. */
  static class Columns extends Replacing {
    private final Expression rows;
    private final List output;

    Columns(Expression rows, List output) {
      this.rows = rows;
      this.output = output;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof Expression && !((Expression) node).deterministic();
    }

    Object replaced(Object node) {
      Expression value = (Expression) node;
      if (value instanceof Alias) {
        return value;
      }
      Alias column =
          new Alias(
              new If(rows, value, new Literal(null, value.dataType())),
              "__lance_value_" + output.size(),
              NamedExpression$.MODULE$.newExprId(),
              (Seq) Nil$.MODULE$,
              Option.empty(),
              (Seq) Nil$.MODULE$);
      output.add(column);
      return column.toAttribute();
    }
  }
}
