package org.lancespark;

import java.util.Collections;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.Utils;
import scala.Option;
import scala.collection.immutable.Seq;

/** Rows that came with the reply to a request. EXPLAIN shows the request and what was read. */
public class DriverRowsExec extends LocalTableScanExec {
  private static final long serialVersionUID = 1L;

  private final String description;

  /** Makes a node, also as Spark copies one. */
  public DriverRowsExec(
      Seq output,
      Seq rows,
      Option stream,
      /* since 4.3
      boolean usesOneTask,
      since 4.3 */
      String description) {
    super(
        output,
        rows,
        stream
        /* since 4.3
        , usesOneTask
        since 4.3 */
        );
    this.description = description;
  }

  /** Returns a node for the rows of a scan. */
  static DriverRowsExec of(Seq output, Seq rows, String description) {
    return new DriverRowsExec(
        output,
        rows,
        Option.empty(),
        /* since 4.3
        false,
        since 4.3 */
        Utils.redact(SQLConf.get().stringRedactionPattern(), description));
  }

  public String nodeName() {
    return "LocalTableScan";
  }

  public Seq otherCopyArgs() {
    return AssignedColumns.seq(Collections.singletonList(description));
  }

  public String simpleString(int maxFields) {
    return super.simpleString(maxFields) + " " + description;
  }
}
