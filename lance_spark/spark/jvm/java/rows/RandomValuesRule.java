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
import org.apache.spark.sql.classic.SparkSession;
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
  private static final String GROUP_FILTER = "groupFilterCondition";
  private static final String SOURCE = "isSourceRowPresent";
  private static final String TARGET = "isTargetRowPresent";

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
        && RowChangeRule.changeOf(Versions.field((WriteDelta) node, "table")) != null
        && (readsSourceAgain((WriteDelta) node) || isRandom(query(node)));
  }

  static void addTo(SparkSession session) {
    Extension.addRule(session, "postHocResolutionRules", new RandomValuesRule());
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
            ? Versions.copy(
                delta,
                new String[] {"query", GROUP_FILTER},
                new Object[] {query, Option.empty()})
            : Versions.copy(delta, new String[] {"query"}, new Object[] {query});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private static Object query(Object delta) {
    return Versions.field((WriteDelta) delta, "query");
  }

  private static boolean readsSourceAgain(WriteDelta delta) {
    if (!Versions.hasField(delta, GROUP_FILTER)) {
      return false;
    }
    Option filter = (Option) Versions.field(delta, GROUP_FILTER);
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
    LogicalPlan child = (LogicalPlan) Versions.field(merge, "child");
    Expression source = (Expression) Versions.field(merge, SOURCE);
    Expression target = (Expression) Versions.field(merge, TARGET);
    List output = new ArrayList(CollectionConverters.asJava(child.output()));
    String[] names = {
      "matchedInstructions", "notMatchedInstructions", "notMatchedBySourceInstructions", "child"
    };
    // A value is computed only for the rows of the clause: the others lack what it is made of.
    Expression[] rows = {
      new And(source, target), new And(source, new Not(target)), new And(new Not(source), target)
    };
    Object[] replaced = new Object[names.length];
    for (int n = 0; n < rows.length; n++) {
      List instructions = new ArrayList();
      for (Iterator i = ((Seq) Versions.field(merge, names[n])).iterator(); i.hasNext(); ) {
        instructions.add(withColumns((Product) i.next(), rows[n], output));
      }
      replaced[n] = AssignedColumns.seq(instructions);
    }
    replaced[names.length - 1] = new Project(AssignedColumns.seq(output), child);
    return Versions.copy(merge, names, replaced);
  }

  /** Returns an instruction whose values, not its condition, name columns of the projection. */
  private static Object withColumns(Product instruction, Expression rows, List output)
      throws ReflectiveOperationException {
    Object changed = instruction;
    String[] lists = {"output", "otherOutput"};
    for (int n = 0; n < lists.length; n++) {
      if (Versions.hasField(instruction, lists[n])) {
        List values = new ArrayList();
        for (Iterator i = ((Seq) Versions.field(instruction, lists[n])).iterator(); i.hasNext(); ) {
          values.add(((Expression) i.next()).transformUp(new Columns(rows, output)));
        }
        changed =
            Versions.copy(
                (Product) changed,
                new String[] {lists[n]},
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
