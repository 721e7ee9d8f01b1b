package org.lancespark;

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
 * Has arrays of numbers read as bytes. Spark takes the projections and filters above a scan together with it, so they are
 * looked through; a scan that is not found here gives arrays.
 */
public class PackedStrategy extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    try {
      LogicalPlan at = plan;
      while (at instanceof Project || at instanceof Filter) {
        at = (LogicalPlan) ((UnaryNode) at).child();
      }
      if (isPacked(at)) {
        Object replaced = plan.transform(new Replacement());
        return CollectionConverters.asScala(java.util.Collections.singletonList(new PlanLater((LogicalPlan) replaced)))
            .toSeq();
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
