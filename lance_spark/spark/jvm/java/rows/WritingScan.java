package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2ScanRelationPushDown$;

/**
 * Lets the tasks that scan the rows of an UPDATE or DELETE write them, without a shuffle: one job in
 * place of two. This needs a query that only chooses rows of the table and computes their values, as
 * its rows are then in the order of their addresses in each fragment.
 *
 * <p>Each such task writes a fragment of the rows that move. If there are many tasks, the rows are
 * shuffled to fewer. A task gives few bytes of rows to the commit, which writes those of all tasks to
 * one fragment.
 */
final class WritingScan {
  /** Most tasks that write fragments of rows that move. */
  private static final int MAX_TASKS = 16;

  /** The query, whose scan is planned. */
  final LogicalPlan query;

  /** Whether the tasks of the scan write; otherwise there are too many. */
  final boolean isWriting;

  /** How many tasks write. */
  final int tasks;

  private WritingScan(LogicalPlan query, boolean isWriting, int tasks) {
    this.query = query;
    this.isWriting = isWriting;
    this.tasks = tasks;
  }

  /**
   * Plans the scan of a query.
   *
   * @param mode what the statement writes, as the Python function plan_row_changes says
   * @return null if the query has no such scan
   */
  static WritingScan of(LogicalPlan query, RowChange change, String mode) {
    if (change.command() == RowLevelOperation.Command.MERGE
        || RowChangeRule.changeOf(leaf(query)) != change) {
      return null;
    }
    // A file of changed columns has all rows of a fragment.
    change.scansWholeFragments = !mode.equals("rows");
    // A second run of the rules would put these filters on the scan.
    LogicalPlan planned =
        SelectiveFilter.inSubqueries(V2ScanRelationPushDown$.MODULE$.apply(query));
    LogicalPlan leaf = leaf(planned);
    if (!(leaf instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    Object scan = ((DataSourceV2ScanRelation) leaf).scan();
    if (scan instanceof DriverRowsScan) {
      return new WritingScan(new Repartition(1, false, planned), true, 1);
    }
    if (!(scan instanceof RequestScan)) {
      return null;
    }
    int tasks = ((RequestScan) scan).planInputPartitions().length;
    return new WritingScan(planned, !mode.equals("rows") || tasks <= MAX_TASKS, tasks);
  }

  /** Returns the relation of a query that chooses and computes columns of its rows, or null. */
  private static LogicalPlan leaf(LogicalPlan query) {
    LogicalPlan inner = query;
    while (inner instanceof Project || inner instanceof Filter) {
      inner = (LogicalPlan) inner.children().apply(0);
    }
    return inner instanceof DataSourceV2Relation || inner instanceof DataSourceV2ScanRelation
        ? inner
        : null;
  }
}
