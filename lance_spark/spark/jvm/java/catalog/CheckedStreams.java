package org.lancespark;

/* since 4.1
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;

// Checks the rows of streams against the conditions of the tables to which they are written. Spark
// checks those of other writes only.
public class CheckedStreams extends Rule {
  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof WriteToStream
          && (((WriteToStream) node).sink() instanceof NamedTable
              || ((WriteToStream) node).sink() instanceof PathTable);
    }

    Object replaced(Object node) {
      WriteToStream write = (WriteToStream) node;
      if (!write.inputQuery().resolved()) {
        return node;
      }
      Table table = write.sink();
      LogicalPlan checked = Constraints.checked(write.inputQuery(), table);
      if (checked == null) {
        return node;
      }
      Map conditions = Constraints.conditions(table);
      if (table instanceof NamedTable) {
        ((NamedTable) table).checkedByStream = conditions;
      } else {
        ((PathTable) table).checkedByStream = conditions;
      }
      try {
        return SparkShims.copy(
            node, new SparkField[] {SparkField.INPUT_QUERY}, new Object[] {checked});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
since 4.1 */
