package org.lancespark;

import java.util.Collections;
import org.apache.spark.sql.catalyst.expressions.V2ExpressionUtils;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gives scans that are partitioned by buckets the function of the buckets. Spark looks for it in
 * the catalog of the table, and tables by path have no catalog.
 */
public class KeysStrategy extends ScanStrategy {
  private static final SparkField PARTITIONING = SparkField.KEY_GROUPED_PARTITIONING;

  KeysStrategy() {
    super("partitions");
  }

  LogicalPlan changed(LogicalPlan plan) {
    return replaced(plan, new Replacement());
  }

  /** Returns the expression of the only key, or null if the relation needs none. */
  private static Object bucket(Object node) {
    if (!(node instanceof DataSourceV2ScanRelation)) {
      return null;
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
    if (!(relation.scan() instanceof RequestScan) || relation.keyGroupedPartitioning().isDefined()) {
      return null;
    }
    Expression[] keys = ((RequestScan) relation.scan()).reply().keys.keys();
    if (keys.length != 1) {
      return null;
    }
    Option found =
        V2ExpressionUtils.toCatalystOpt(
            keys[0], relation.relation(), Option.apply(new BucketFunction.Functions()));
    return found.isDefined() ? found.get() : null;
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return bucket(node) != null;
    }

    Object replaced(Object node) {
      Seq keys = CollectionConverters.asScala(Collections.singletonList(bucket(node))).toSeq();
      try {
        return SparkShims.copy(
            (DataSourceV2ScanRelation) node,
            new SparkField[] {PARTITIONING},
            new Object[] {Option.apply(keys)});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
