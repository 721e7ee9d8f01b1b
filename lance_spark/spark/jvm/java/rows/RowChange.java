package org.lancespark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A DELETE, UPDATE or MERGE. Spark plans it as a query for the changed rows, which names old rows
 * by their addresses in the version that was loaded.
 */
public class RowChange implements SupportsDelta, RowLevelOperationBuilder {
  static final String ADDRESS = "_rowaddr";

  final NamedTable table;
  private final Command command;

  /** Whether each task of the scan reads whole fragments. */
  boolean scansWholeFragments;

  /** How often the statement was planned before. */
  final int attempt;

  /** What the last attempt has written. */
  final WriteCounts counts;

  RowChange(NamedTable table, Command command, int attempt, WriteCounts counts) {
    this.table = table;
    this.command = command;
    this.attempt = attempt;
    this.counts = counts;
  }

  public RowLevelOperation build() {
    return this;
  }

  public Command command() {
    return command;
  }

  public String description() {
    return "lance " + command;
  }

  /** Returns what the web interface shows of the Spark jobs. */
  String jobDescription() {
    return "lance " + command.toString().toLowerCase(Locale.ROOT) + " " + table.name();
  }

  public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column(ADDRESS)};
  }

  /** Scans the version that was loaded: in another one, addresses may name other rows. */
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    Map all = new HashMap(query.asCaseSensitiveMap());
    all.put("version", table.version);
    if (scansWholeFragments) {
      all.put("whole_fragments", "true");
    }
    return table.scan(table.with(all));
  }

  /** Not called: RowChangeRule replaces the write. */
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw new UnsupportedOperationException(
        "the session lacks the rules of lance_spark: call lance_spark.enable(spark)");
  }
}
