package org.lancespark;

import java.util.Map;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Stands for a search by the vectors of another table, which LateralSearchRule plans. */
public class LateralTable extends SearchTable {
  /** The arguments of the join. */
  final Map join;

  LateralTable(String name, Map reply, Map join) {
    super(name, reply);
    this.join = join;
  }

  /** Raises an error: Spark reads it only if the rule has left it in the plan. */
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    throw LateralSearchRule.refused();
  }
}
