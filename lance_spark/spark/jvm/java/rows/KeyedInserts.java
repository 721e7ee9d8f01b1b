package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The inserts of a MERGE that only inserts, into a table with a primary key. Spark plans it as an
 * append, which fits whatever other clients commit meanwhile. Here it becomes a change of rows, which
 * records the keys that it inserts, and is planned again after other clients have inserted rows.
 */
final class KeyedInserts {
  private static final int INSERT = 3;
  private static final String OPERATION = "__row_operation";

  private KeyedInserts() {}

  /** Returns whether a plan is such a statement. */
  static boolean isDefined(Object plan) {
    DataSourceV2Relation target = target(plan);
    return target != null && ((NamedTable) target.table()).canRecordKeys() && isRead(plan, target);
  }

  /** Returns the relation of the catalog that an append writes, or null. */
  private static DataSourceV2Relation target(Object plan) {
    boolean isAppend =
        plan instanceof AppendData
            // Spark 4.3 has a class for such statements.
            || SparkRelease.isInsertOnlyMerge(plan);
    if (!isAppend) {
      return null;
    }
    Object relation = SparkField.TABLE.of(plan);
    boolean isNamed =
        relation instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) relation).table() instanceof NamedTable
            && !(((DataSourceV2Relation) relation).table() instanceof RowChangeSink);
    return isNamed ? (DataSourceV2Relation) relation : null;
  }

  /**
   * Returns whether the query of an append reads the relation that it writes, as that of a MERGE
   * does. An INSERT from the same table reads another relation, whose columns have other ids.
   */
  private static boolean isRead(Object plan, DataSourceV2Relation target) {
    LogicalPlan query = (LogicalPlan) SparkField.QUERY.of(plan);
    for (Iterator i = query.collectLeaves().iterator(); i.hasNext(); ) {
      if (isSame(i.next(), target)) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether a node reads a relation, or some of its columns. */
  private static boolean isSame(Object node, DataSourceV2Relation relation) {
    if (!(node instanceof DataSourceV2Relation)) {
      return false;
    }
    List ids = ids((DataSourceV2Relation) node);
    return !ids.isEmpty() && ids(relation).containsAll(ids);
  }

  private static List ids(DataSourceV2Relation relation) {
    List ids = new ArrayList();
    for (Iterator i = relation.output().iterator(); i.hasNext(); ) {
      ids.add(((Attribute) i.next()).exprId());
    }
    return ids;
  }

  /** Returns the plan that writes the rows of such a statement as a change of rows. */
  static Object replaced(Object plan) throws ReflectiveOperationException {
    DataSourceV2Relation target = target(plan);
    NamedTable table = (NamedTable) target.table();
    RowChange before = table.replanned;
    RowChange change =
        new RowChange(
            table,
            RowLevelOperation.Command.MERGE,
            before == null ? 0 : before.attempt + 1,
            before == null ? new WriteCounts() : before.counts);
    LogicalPlan query = (LogicalPlan) SparkField.QUERY.of(plan);
    List output = new ArrayList();
    output.add(AssignedColumns.alias(new Literal(Integer.valueOf(INSERT), DataTypes.IntegerType), OPERATION));
    List columns = new ArrayList();
    List ordinals = new ArrayList();
    String[] names = table.schema().fieldNames();
    for (int i = 0; i < names.length; i++) {
      output.add(query.output().apply(i));
      columns.add(names[i]);
      ordinals.add(Integer.valueOf(i + 1));
    }
    int address = output.size();
    output.add(AssignedColumns.alias(new Literal(null, DataTypes.LongType), RowChange.ADDRESS));
    Map write = RowChangeRule.write(change, query, address, columns, ordinals);
    write.put("given", Collections.EMPTY_LIST);
    write.put("row_columns", Collections.EMPTY_LIST);
    write.put("all_rows", Boolean.FALSE);
    return SparkRelease.append(
        SparkShims.relationOver(target, new RowChangeSink(change, write)),
        Clustering.of(new Project(AssignedColumns.seq(output), query), address, ordinals));
  }

  /** Puts another version of the table in its place, in the analysed plan of such a statement. */
  static final class Replacement extends Replacing {
    private final NamedTable table;
    private final NamedTable next;

    Replacement(NamedTable table, NamedTable next) {
      this.table = table;
      this.next = next;
    }

    public boolean isDefinedAt(Object node) {
      DataSourceV2Relation target = target(node);
      return target != null && target.table().equals(table) && isRead(node, target);
    }

    Object replaced(Object node) {
      DataSourceV2Relation target = target(node);
      LogicalPlan query = (LogicalPlan) SparkField.QUERY.of(node);
      try {
        return SparkShims.copy(
            node,
            new SparkField[] {SparkField.TABLE, SparkField.QUERY},
            new Object[] {
              SparkShims.relationOver(target, next), query.transform(new Relations(target, next))
            });
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  static final class Relations extends Replacing {
    private final DataSourceV2Relation target;
    private final NamedTable next;

    Relations(DataSourceV2Relation target, NamedTable next) {
      this.target = target;
      this.next = next;
    }

    public boolean isDefinedAt(Object node) {
      return isSame(node, target);
    }

    Object replaced(Object node) {
      try {
        return SparkShims.relationOver((DataSourceV2Relation) node, next);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
