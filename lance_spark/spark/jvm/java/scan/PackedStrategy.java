package org.lancespark;

import java.util.Collections;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Function1;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Replaces scans of arrays of numbers by scans that return them packed, and unpacks them above.
 *
 * <p>Spark plans a scan together with the projections and filters above it, so the strategy looks
 * for the scan below them. A scan that it does not find returns plain arrays.
 */
public class PackedStrategy extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    try {
      LogicalPlan node = plan;
      while (node instanceof Project || node instanceof Filter) {
        node = (LogicalPlan) ((UnaryNode) node).child();
      }
      if (isPacked(node)) {
        Object replaced = new PlanLater((LogicalPlan) plan.transform(new Replacement()));
        return CollectionConverters.asScala(Collections.singletonList(replaced)).toSeq();
      }
    } catch (Exception e) {
      Log.leftToSpark("arrays", e);
    } catch (LinkageError e) {
      Log.leftToSpark("arrays", e);
    }
    return (Seq) Nil$.MODULE$;
  }

  static boolean isPacked(Object node) {
    if (!(node instanceof DataSourceV2ScanRelation)) {
      return false;
    }
    Object scan = ((DataSourceV2ScanRelation) node).scan();
    return scan instanceof RequestScan && ((RequestScan) scan).packed() != null;
  }

  static class Replacement extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return isPacked(node);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isPacked(node)) {
        return otherwise.apply(node);
      }
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      try {
        return Packing.unpacked(relation, ((RequestScan) relation.scan()).packed());
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
