package org.lancespark;

import java.util.Collections;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.PartialFunction;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Changes a plan just before Spark makes the physical plan of a scan. A plan that cannot be changed
 * is left to Spark.
 */
abstract class ScanStrategy extends SparkStrategy {
  private final String subject;

  /** Makes a strategy. A warning names its subject. */
  ScanStrategy(String subject) {
    this.subject = subject;
  }

  /** Returns the changed plan, or null if Spark plans the plan as it is. */
  abstract LogicalPlan changed(LogicalPlan plan) throws ReflectiveOperationException;

  public Seq apply(LogicalPlan plan) {
    try {
      LogicalPlan changed = changed(plan);
      if (changed != null) {
        Object later = new PlanLater(changed);
        return CollectionConverters.asScala(Collections.singletonList(later)).toSeq();
      }
    } catch (Exception e) {
      Log.leftToSpark(subject, e);
    } catch (LinkageError e) {
      Log.leftToSpark(subject, e);
    }
    return (Seq) Nil$.MODULE$;
  }

  /**
   * Applies a replacement to a plan if it is for the scan, or for a projection or filter above it:
   * Spark plans a scan together with these. Returns null if it is not.
   */
  static LogicalPlan replaced(LogicalPlan plan, PartialFunction replacement) {
    LogicalPlan node = plan;
    while (!replacement.isDefinedAt(node)) {
      if (!(node instanceof Project) && !(node instanceof Filter)) {
        return null;
      }
      node = (LogicalPlan) ((UnaryNode) node).child();
    }
    return (LogicalPlan) plan.transform(replacement);
  }
}
