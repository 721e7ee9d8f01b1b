package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.Iterator;

/**
 * Has Python workers write the changed rows of a DELETE, UPDATE or MERGE, as they write the rows of
 * an append: Spark's own writers of changed rows run in the JVM of executors.
 */
public class RowChangeRule extends Rule {
  /** What an UPDATE writes; the Python function plan_row_changes checks the value. */
  private static final String MODE = "spark.lance.update.mode";

  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).transform(new Replacement());
  }

  /** Returns the operation of a relation that Spark has made for one; null for other relations. */
  static RowChange changeOf(Object relation) {
    if (!(relation instanceof DataSourceV2Relation)
        || !(((DataSourceV2Relation) relation).table() instanceof RowLevelOperationTable)) {
      return null;
    }
    Object operation =
        ((RowLevelOperationTable) ((DataSourceV2Relation) relation).table()).operation();
    return operation instanceof RowChange ? (RowChange) operation : null;
  }

  /** Returns the query that this thread runs; null if it runs none. */
  static QueryExecution running() {
    String id = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
  }

  /**
   * Returns the table whose rows are changed by the statement that this thread runs, or null. After
   * its commit, Spark reads the table again for its cache, and has to get the new rows.
   */
  static NamedTable changedTable() {
    QueryExecution execution = running();
    if (execution != null) {
      for (Iterator i = execution.analyzed().collectLeaves().iterator(); i.hasNext(); ) {
        RowChange change = changeOf(i.next());
        if (change != null) {
          return change.table.isChanged ? null : change.table;
        }
      }
    }
    return null;
  }

  /** Returns what a statement writes, as Python gets it, without what its query assigns. */
  static Map write(
      RowChange change, LogicalPlan query, int address, List columns, List ordinals) {
    Map write = new LinkedHashMap();
    write.put("command", change.command().toString());
    write.put("version", change.table.version);
    write.put("identity", change.table.identity);
    write.put("address", Integer.valueOf(address));
    write.put("columns", columns);
    write.put("ordinals", ordinals);
    write.put("requested_mode", SQLConf.get().getConfString(MODE, "auto"));
    write.put("attempt", Integer.valueOf(change.attempt));
    write.put("checked", Constraints.checkedBy(query));
    return write;
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return ReplacedCondition.isDefined(node)
          || paddedTable(node) != null
          || viewedTable(node) != null
          || SourceKeys.isInsertOnly(node)
          || node instanceof WriteDelta
              && changeOf(SparkField.TABLE.of(node)) != null;
    }

    Object replaced(Object node) {
      if (ReplacedCondition.isDefined(node)) {
        return ReplacedCondition.replaced(node);
      }
      if (paddedTable(node) != null) {
        try {
          return SparkShims.copy(
              node, new SparkField[] {SparkField.TABLE}, new Object[] {paddedTable(node)});
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
      String viewed = viewedTable(node);
      if (viewed != null) {
        throw Errors.unchecked(
            viewed
                + ": rows cannot be deleted from a query or view of the table; name the table, with"
                + " the condition of the view");
      }
      if (SourceKeys.isInsertOnly(node)) {
        boolean recordsKeys = KeyedInserts.isDefined(node);
        Object filtered = SourceKeys.insertOnly(node);
        try {
          return recordsKeys ? KeyedInserts.replaced(filtered) : filtered;
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
      WriteDelta delta = (WriteDelta) node;
      RowChange change = changeOf(SparkField.TABLE.of(delta));
      LogicalPlan query = (LogicalPlan) SparkField.QUERY.of(delta);
      SourceKeys keys = new SourceKeys(change.table);
      if (change.command() == RowLevelOperation.Command.MERGE) {
        query = keys.filtered(query);
      }
      List address = ordinals((ProjectingInternalRow) delta.projections().rowIdProjection());
      List columns = new ArrayList();
      List ordinals = new ArrayList();
      if (delta.projections().rowProjection().isDefined()) {
        ProjectingInternalRow row =
            (ProjectingInternalRow) delta.projections().rowProjection().get();
        List positions = ordinals(row);
        String[] names = row.schema().fieldNames();
        for (int i = 0; i < names.length; i++) {
          // Spark adds the row columns if a condition names one of them.
          if (change.table.schema().getFieldIndex(names[i]).isDefined()) {
            columns.add(names[i]);
            ordinals.add(positions.get(i));
          }
        }
      }
      try {
        AssignedColumns assigned = AssignedColumns.of(query, change, columns, ordinals);
        Map write =
            write(change, query, ((Integer) address.get(0)).intValue(), columns, ordinals);
        write.put("given", assigned.given);
        write.put("row_columns", assigned.rowColumns());
        write.put("all_rows", Boolean.valueOf(isTrue(SparkField.CONDITION.of(delta))));
        LogicalPlan joined = CandidateRows.joined(assigned.query, keys, change);
        write.put("in_one_task", Boolean.valueOf(joined != assigned.query));
        RowChangeSink sink = new RowChangeSink(change, write);
        WritingScan scan = WritingScan.of(joined, change, sink.mode());
        LogicalPlan rows = scan == null ? joined : scan.query;
        if (scan != null && scan.isWriting) {
          sink.takeRowsOf(scan);
        } else {
          rows = Clustering.of(rows, ((Integer) address.get(0)).intValue(), ordinals);
        }
        DataSourceV2Relation relation =
            (DataSourceV2Relation) SparkField.ORIGINAL_TABLE.of(delta);
        return SparkRelease.append((NamedRelation) SparkShims.relationOver(relation, sink), rows);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    /**
     * Returns the table of a DELETE of all rows, if Spark has put a projection on it that pads its
     * columns of char(n); otherwise null.
     */
    private static DataSourceV2Relation paddedTable(Object node) {
      if (!(node instanceof DeleteFromTable)
          || !isTrue(SparkField.CONDITION.of(node))) {
        return null;
      }
      Object target = SparkField.TABLE.of(node);
      Object below = target instanceof Project ? SparkField.CHILD.of(target) : null;
      if (!(below instanceof DataSourceV2Relation)
          || !(((DataSourceV2Relation) below).table() instanceof NamedTable)) {
        return null;
      }
      DataSourceV2Relation relation = (DataSourceV2Relation) below;
      String[] all = relation.schema().fieldNames();
      boolean isWhole = Arrays.equals(all, ((LogicalPlan) target).schema().fieldNames());
      boolean isPadded = ((NamedTable) relation.table()).hasLimitedTexts();
      return isWhole && isPadded ? relation : null;
    }

    /**
     * Returns the name of the table below a view from which a statement deletes, or null. Spark
     * would forget the conditions of the view that a scan evaluates, and delete other rows.
     */
    private static String viewedTable(Object node) {
      if (!(node instanceof DeleteFromTable)) {
        return null;
      }
      LogicalPlan target = (LogicalPlan) SparkField.TABLE.of(node);
      if (target instanceof DataSourceV2Relation) {
        return null;
      }
      for (Iterator i = target.collectLeaves().iterator(); i.hasNext(); ) {
        Object leaf = i.next();
        if (leaf instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) leaf).table() instanceof NamedTable) {
          return ((DataSourceV2Relation) leaf).table().name();
        }
      }
      return null;
    }

    private static boolean isTrue(Object condition) {
      return condition instanceof Literal
          && Boolean.TRUE.equals(((Literal) condition).value());
    }

    private static List ordinals(ProjectingInternalRow row) {
      List results = new ArrayList();
      for (Iterator i = row.colOrdinals().iterator(); i.hasNext(); ) {
        results.add(i.next());
      }
      return results;
    }
  }
}
