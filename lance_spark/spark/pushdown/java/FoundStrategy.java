package org.lancespark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Has rows that came with an answer renamed and reordered where they are. Spark would start a job for it, which takes
 * longer than a count does.
 */
public class FoundStrategy extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    try {
      if (plan instanceof Project && ((Project) plan).child() instanceof DataSourceV2ScanRelation) {
        DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) ((Project) plan).child();
        if (relation.scan() instanceof FoundScan) {
          return renamed((Project) plan, relation);
        }
      }
    } catch (Exception e) {
      Log.leftToSpark("columns", e);
    } catch (LinkageError e) {
      Log.leftToSpark("columns", e);
    }
    return (Seq) Nil$.MODULE$;
  }

  private static Seq renamed(Project project, DataSourceV2ScanRelation relation) throws ReflectiveOperationException {
    Attribute[] output = new Attribute[project.projectList().size()];
    int[] places = new int[output.length];
    for (int i = 0; i < output.length; i++) {
      NamedExpression wanted = (NamedExpression) project.projectList().apply(i);
      places[i] = placeOf((Expression) wanted, relation);
      if (places[i] < 0) {
        return (Seq) Nil$.MODULE$;
      }
      output[i] = wanted.toAttribute();
    }
    InternalRow[] rows = ((FoundScan) relation.scan()).rows();
    InternalRow[] renamed = new InternalRow[rows.length];
    for (int r = 0; r < rows.length; r++) {
      Object[] values = new Object[output.length];
      for (int i = 0; i < output.length; i++) {
        values[i] = rows[r].isNullAt(places[i]) ? null : rows[r].get(places[i], output[i].dataType());
      }
      renamed[r] = new GenericInternalRow(values);
    }
    Object scan = ((FoundScan) relation.scan()).with(renamed);
    Seq columns = CollectionConverters.asScala(java.util.Arrays.asList(output)).toSeq();
    Object copy = Versions.copy(relation, new String[] {"scan", "output"}, new Object[] {scan, columns});
    return CollectionConverters.asScala(java.util.Collections.singletonList(new PlanLater((LogicalPlan) copy))).toSeq();
  }

  /** Returns which column an expression gives, under whatever name; -1 if it gives another value. */
  private static int placeOf(Expression wanted, DataSourceV2ScanRelation relation) {
    Expression inner = wanted;
    while (inner instanceof Alias) {
      inner = ((Alias) inner).child();
    }
    if (inner instanceof AttributeReference) {
      for (int i = 0; i < relation.output().size(); i++) {
        if (((Attribute) relation.output().apply(i)).exprId().equals(((AttributeReference) inner).exprId())) {
          return i;
        }
      }
    }
    return -1;
  }
}
