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

  static class Replacement extends StreamedQueries {
    LogicalPlan changed(LogicalPlan query, WriteToStream write) {
      Table table = write.sink();
      LogicalPlan checked = Constraints.checked(query, table);
      if (checked == null) {
        return query;
      }
      Map conditions = Constraints.conditions(table);
      if (table instanceof NamedTable) {
        ((NamedTable) table).checkedByStream = conditions;
      } else {
        ((PathTable) table).checkedByStream = conditions;
      }
      return checked;
    }
  }
}
since 4.1 */
