package org.lancespark;

import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InterpretedOrdering;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plans rows that came with a reply, so that EXPLAIN shows what was read. Orders the rows, takes the
 * first of them, and renames and reorders their columns. Spark would start a job for it, which takes
 * longer than a small search or a count.
 */
public class DriverRowsStrategy extends ScanStrategy {
  DriverRowsStrategy() {
    super("rows of the driver");
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
    // Spark takes a limit below this node together with the order below the limit.
    LogicalPlan node = plan instanceof ReturnAnswer ? ((ReturnAnswer) plan).child() : plan;
    return node instanceof DataSourceV2ScanRelation ? null : evaluated(node);
  }

  /** Returns the scan whose rows are those of a plan, or null if Spark has to evaluate the plan. */
  private static DataSourceV2ScanRelation evaluated(LogicalPlan plan)
      throws ReflectiveOperationException {
    if (plan instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
      return relation.scan() instanceof DriverRowsScan ? relation : null;
    }
    if (plan instanceof Project) {
      DataSourceV2ScanRelation below = evaluated(((Project) plan).child());
      return below == null ? null : projected((Project) plan, below);
    }
    if (plan instanceof Sort) {
      DataSourceV2ScanRelation below = evaluated(((Sort) plan).child());
      return below == null ? null : sorted((Sort) plan, below);
    }
    if (plan instanceof GlobalLimit) {
      DataSourceV2ScanRelation below = evaluated(((GlobalLimit) plan).child());
      return below == null ? null : limited(((GlobalLimit) plan).limitExpr(), below);
    }
    if (plan instanceof LocalLimit) {
      DataSourceV2ScanRelation below = evaluated(((LocalLimit) plan).child());
      return below == null ? null : limited(((LocalLimit) plan).limitExpr(), below);
    }
    return null;
  }

  private static InternalRow[] rowsOf(DataSourceV2ScanRelation relation) {
    return ((DriverRowsScan) relation.scan()).rows();
  }

  /** Returns a scan of the same columns with other rows. */
  private static DataSourceV2ScanRelation with(
      InternalRow[] rows, DataSourceV2ScanRelation relation, Seq output)
      throws ReflectiveOperationException {
    Object scan = ((DriverRowsScan) relation.scan()).with(rows);
    return (DataSourceV2ScanRelation)
        SparkShims.copy(relation, new SparkField[] {SparkField.SCAN, SparkField.OUTPUT}, new Object[] {scan, output});
  }

  private static DataSourceV2ScanRelation limited(
      Expression limit, DataSourceV2ScanRelation relation) throws ReflectiveOperationException {
    if (!(limit instanceof Literal) || !(((Literal) limit).value() instanceof Integer)) {
      return null;
    }
    InternalRow[] rows = rowsOf(relation);
    int count = Math.max(0, ((Integer) ((Literal) limit).value()).intValue());
    if (count >= rows.length) {
      return relation;
    }
    return with((InternalRow[]) Arrays.copyOf(rows, count), relation, relation.output());
  }

  private static DataSourceV2ScanRelation sorted(Sort sort, DataSourceV2ScanRelation relation)
      throws ReflectiveOperationException {
    for (int i = 0; i < sort.order().size(); i++) {
      Expression key = ((SortOrder) sort.order().apply(i)).child();
      if (!(key instanceof AttributeReference) || indexOf(key, relation) < 0) {
        return null;
      }
    }
    InternalRow[] rows = (InternalRow[]) rowsOf(relation).clone();
    Arrays.sort(rows, (Comparator) new InterpretedOrdering(sort.order(), (Seq) relation.output()));
    return with(rows, relation, relation.output());
  }

  private static DataSourceV2ScanRelation projected(
      Project project, DataSourceV2ScanRelation relation) throws ReflectiveOperationException {
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
    InternalRow[] rows = rowsOf(relation);
    InternalRow[] projected = new InternalRow[rows.length];
    for (int r = 0; r < rows.length; r++) {
      Object[] values = new Object[output.length];
      for (int i = 0; i < output.length; i++) {
        values[i] =
            rows[r].isNullAt(indexes[i]) ? null : rows[r].get(indexes[i], output[i].dataType());
      }
      projected[r] = new GenericInternalRow(values);
    }
    Seq columns = CollectionConverters.asScala(Arrays.asList(output)).toSeq();
    return with(projected, relation, columns);
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
