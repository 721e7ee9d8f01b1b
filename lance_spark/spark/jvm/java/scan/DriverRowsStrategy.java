package org.lancespark;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans rows that came with a reply, so that EXPLAIN shows what was read. Renames and reorders their
 * columns: Spark would start a job for it, which takes longer than a count.
 */
public class DriverRowsStrategy extends ScanStrategy {
  DriverRowsStrategy() {
    super("columns");
  }

  public Seq apply(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
      if (relation.scan() instanceof DriverRowsScan) {
        DriverRowsScan scan = (DriverRowsScan) relation.scan();
        Seq rows = AssignedColumns.seq(Arrays.asList(scan.rows()));
        try {
          Object node = DriverRowsExec.of(relation.output().toList(), rows, scan.description());
          return AssignedColumns.seq(Arrays.asList(new Object[] {node}));
        } catch (LinkageError e) {
          Log.leftToSpark("texts of EXPLAIN", e);
        }
      }
    }
    return super.apply(plan);
  }

  LogicalPlan changed(LogicalPlan plan) throws ReflectiveOperationException {
    if (plan instanceof Project && ((Project) plan).child() instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) ((Project) plan).child();
      if (relation.scan() instanceof DriverRowsScan) {
        return projected((Project) plan, relation);
      }
    }
    return null;
  }

  private static LogicalPlan projected(Project project, DataSourceV2ScanRelation relation)
      throws ReflectiveOperationException {
    Attribute[] output = new Attribute[project.projectList().size()];
    int[] indexes = new int[output.length];
    for (int i = 0; i < output.length; i++) {
      NamedExpression wanted = (NamedExpression) project.projectList().apply(i);
      indexes[i] = indexOf((Expression) wanted, relation);
      if (indexes[i] < 0) {
        return null;
      }
      output[i] = wanted.toAttribute();
    }
    InternalRow[] rows = ((DriverRowsScan) relation.scan()).rows();
    InternalRow[] projected = new InternalRow[rows.length];
    for (int r = 0; r < rows.length; r++) {
      Object[] values = new Object[output.length];
      for (int i = 0; i < output.length; i++) {
        values[i] =
            rows[r].isNullAt(indexes[i]) ? null : rows[r].get(indexes[i], output[i].dataType());
      }
      projected[r] = new GenericInternalRow(values);
    }
    Object scan = ((DriverRowsScan) relation.scan()).with(projected);
    Seq columns = CollectionConverters.asScala(Arrays.asList(output)).toSeq();
    return (LogicalPlan)
        Versions.copy(relation, new String[] {"scan", "output"}, new Object[] {scan, columns});
  }

  /** Returns the index of the column that an expression returns, or -1 if it is not a column. */
  private static int indexOf(Expression wanted, DataSourceV2ScanRelation relation) {
    Expression inner = wanted;
    while (inner instanceof Alias) {
      inner = ((Alias) inner).child();
    }
    if (inner instanceof AttributeReference) {
      for (int i = 0; i < relation.output().size(); i++) {
        Attribute column = (Attribute) relation.output().apply(i);
        if (column.exprId().equals(((AttributeReference) inner).exprId())) {
          return i;
        }
      }
    }
    return -1;
  }
}
