package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The table that the changed rows of one statement are written to. It equals the table itself, by
 * which Spark 4.0 finds cached plans to refresh.
 */
public class RowChangeSink extends NamedTable {
  private final RowChange change;
  private final Map write;

  /**
   * Makes a sink. Python checks whether it can write the rows.
   *
   * @param write what the columns of the query are
   */
  RowChangeSink(RowChange change, Map write) {
    super(change.table);
    this.change = change;
    Map arguments = new LinkedHashMap();
    arguments.put("options", change.table.with(new HashMap()).asCaseSensitiveMap());
    arguments.put("write", write);
    this.write = new LinkedHashMap(write);
    this.write.putAll(PythonCall.result("plan_row_changes", arguments));
  }

  /** Returns what the statement writes: rows, columns or overlays. */
  String mode() {
    return (String) write.get("mode");
  }

  /** Lets the tasks of a scan write its rows. */
  void takeRowsOf(WritingScan scan) {
    write.put("in_scan_order", Boolean.TRUE);
    write.put("tasks", Integer.valueOf(scan.tasks));
  }

  public Set capabilities() {
    return new HashSet(
        Arrays.asList(
            new Object[] {TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA}));
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map options = new HashMap(change.table.with(new HashMap()).asCaseSensitiveMap());
    options.put("row_changes", Forms.json(write));
    LogicalWriteInfo complete =
        new NamedWriteInfo(info, new CaseInsensitiveStringMap(options), info.schema());
    return new RowChangeWrite(
        python().newWriteBuilder(locators().with(complete)).build(), change, write);
  }
}
