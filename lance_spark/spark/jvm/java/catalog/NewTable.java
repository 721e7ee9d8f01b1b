package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that a statement creates or replaces together with its rows. Python's writer commits both
 * as one version. After that, the name is registered in the namespace.
 */
public class NewTable implements StagedTable, SupportsWrite {
  private final LanceCatalog catalog;
  private final TableName identifier;
  private final StructType schema;
  private final Map properties;
  private final Map staged;
  private boolean written;

  /**
   * Makes a table.
   *
   * @param staged what Python says of the table: "options" of the write, "place", those of them that
   *     find the table, and "state" for the calls that end the statement
   */
  NewTable(
      LanceCatalog catalog, TableName identifier, StructType schema, Map properties, Map staged) {
    this.catalog = catalog;
    this.identifier = identifier;
    this.schema = schema;
    this.properties = properties;
    this.staged = staged;
  }

  public String name() {
    return catalog.name() + "." + identifier;
  }

  public StructType schema() {
    return schema;
  }

  public Map properties() {
    return properties;
  }

  public Set capabilities() {
    return new HashSet(
        Arrays.asList(new Object[] {TableCapability.BATCH_WRITE, TableCapability.TRUNCATE}));
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    written = true;
    Map options = new HashMap((Map) staged.get("options"));
    String path = (String) options.get("path");
    options.putAll(NamedTable.withoutPath(info.options().asCaseSensitiveMap(), path, name()));
    if (replacesPartitions(info.options())) {
      options.put(Settings.OVERWRITE_MODE, Settings.overwriteMode());
    }
    Snapshot.addReadBy(options, (Map) staged.get("place"));
    PythonTable python = new PythonTable(PythonCall.source(), PythonCall.FORMAT, schema);
    LogicalWriteInfo complete =
        new NamedWriteInfo(info, new CaseInsensitiveStringMap(options), schema);
    return new PathWriteBuilder(python.newWriteBuilder(complete), true).truncate();
  }

  /**
   * Returns whether the session may choose that partitions of an existing table are replaced: for
   * saveAsTable, and for writes that name columns of partitions. CREATE OR REPLACE TABLE means the
   * whole table. Spark plans all of them in the same way.
   */
  private static boolean replacesPartitions(CaseInsensitiveStringMap options) {
    if (options.containsKey("partitionBy") || options.containsKey("partition_by")) {
      return true;
    }
    StackTraceElement[] calls = Thread.currentThread().getStackTrace();
    for (int i = 0; i < calls.length; i++) {
      if (calls[i].getMethodName().equals("saveAsTable")
          && calls[i].getClassName().startsWith("org.apache.spark.sql.")) {
        return true;
      }
    }
    return false;
  }

  public void commitStagedChanges() {
    catalog.endStaged("commit_staged", identifier, staged, schema, written);
  }

  public void abortStagedChanges() {
    catalog.endStaged("abort_staged", identifier, staged, schema, written);
  }

  public String toString() {
    return name();
  }
}
