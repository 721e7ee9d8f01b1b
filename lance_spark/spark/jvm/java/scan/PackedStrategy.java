package org.lancespark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

/**
 * Replaces scans of arrays of numbers by scans that return them packed, and unpacks them above.
 *
 * <p>A scan that the strategy does not find returns plain arrays.
 */
public class PackedStrategy extends ScanStrategy {
  PackedStrategy() {
    super("arrays");
  }

  LogicalPlan changed(LogicalPlan plan) {
    return replaced(plan, new Replacement());
  }

  static boolean isPacked(Object node) {
    if (!(node instanceof DataSourceV2ScanRelation)) {
      return false;
    }
    Object scan = ((DataSourceV2ScanRelation) node).scan();
    return scan instanceof RequestScan && ((RequestScan) scan).packed() != null;
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      return isPacked(node);
    }

    Object replaced(Object node) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      try {
        return Packing.unpacked(relation, ((RequestScan) relation.scan()).packed());
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
