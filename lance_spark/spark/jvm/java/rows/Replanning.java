package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Runs a statement again on the newest version of its table, after another client has changed the
 * same rows. The plan is that which Spark has analysed, so that it means the same.
 */
final class Replanning {
  private Replanning() {}

  /** Returns false if the statement cannot be planned again: the columns of the table differ. */
  static boolean run(RowChange change) {
    NamedTable newest = change.table.newest();
    if (!newest.schema().equals(change.table.schema())) {
      return false;
    }
    RowChange next =
        new RowChange(newest, change.command(), change.attempt + 1, change.counts);
    newest.replanned = change;
    QueryExecution execution = RowChangeRule.running();
    LogicalPlan plan = (LogicalPlan) execution.analyzed().transform(new Replacement(change, next));
    plan = (LogicalPlan) plan.transform(new KeyedInserts.Replacement(change.table, newest));
    SparkShims.execute(execution.sparkSession(), plan);
    return true;
  }

  static class Replacement extends Replacing {
    private final RowChange change;
    private final RowChange next;

    Replacement(RowChange change, RowChange next) {
      this.change = change;
      this.next = next;
    }

    public boolean isDefinedAt(Object node) {
      Object table = node instanceof WriteDelta ? SparkField.TABLE.of(node) : node;
      return RowChangeRule.changeOf(table) == change;
    }

    Object replaced(Object node) {
      Table operated = new RowLevelOperationTable(next.table, next);
      try {
        if (node instanceof WriteDelta) {
          WriteDelta delta = (WriteDelta) node;
          Object table = SparkField.TABLE.of(delta);
          Object original = SparkField.ORIGINAL_TABLE.of(delta);
          return SparkShims.copy(
              delta,
              new SparkField[] {SparkField.TABLE, SparkField.ORIGINAL_TABLE},
              new Object[] {
                SparkShims.relationOver((DataSourceV2Relation) table, operated),
                SparkShims.relationOver((DataSourceV2Relation) original, next.table)
              });
        }
        return SparkShims.relationOver((DataSourceV2Relation) node, operated);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
