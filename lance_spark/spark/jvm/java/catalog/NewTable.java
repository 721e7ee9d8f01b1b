package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.noop.NoopTable$;
import org.apache.spark.sql.execution.datasources.noop.NoopWriterFactory$;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that a statement creates or replaces together with its rows. Python's writer commits both
 * as one version. After that, the name is registered in the namespace.
 */
public class NewTable implements StagedTable, SupportsWrite, BlobLocators.Target {
  private final LanceCatalog catalog;
  private final TableName identifier;
  private final StructType schema;
  private final Map properties;
  private final Map staged;
  private final BlobLocators locators = new BlobLocators();
  private boolean written;

  /**
   * Whether the statement leaves a table that exists as it is. Spark makes this object while it runs
   * the statement, and writes the rows by a query of its own.
   */
  private final boolean ignoresExisting = ignoresExisting();

  /** Whether another client created the table first, and the statement ignores that. */
  private boolean isOvertaken;

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

  /**
   * Returns a table for a statement whose table another client has created since Spark looked for
   * it: a write to it does nothing, if the statement says IF NOT EXISTS.
   */
  static NewTable overtaken(
      TableAlreadyExistsException error,
      LanceCatalog catalog,
      TableName identifier,
      StructType schema,
      Map properties)
      throws TableAlreadyExistsException {
    NewTable table = new NewTable(catalog, identifier, schema, properties, null);
    if (!table.ignoresExisting) {
      throw error;
    }
    table.isOvertaken = true;
    return table;
  }

  private static boolean ignoresExisting() {
    QueryExecution execution = RowChangeRule.running();
    LogicalPlan plan = execution == null ? null : execution.analyzed();
    return plan instanceof CreateTableAsSelect
        && Boolean.TRUE.equals(SparkField.IGNORE_IF_EXISTS.of(plan));
  }

  /** Raises the error of a write, unless another client was faster and that is to be ignored. */
  private void raise(Exception error) {
    if (!"TableExistsError".equals(Errors.classFromPython(error))) {
      throw Errors.raiseFromPython(error);
    }
    if (!ignoresExisting) {
      throw Errors.rethrow(new TableAlreadyExistsException(shown()));
    }
    isOvertaken = true;
  }

  /** Returns the name that errors show. */
  Identifier shown() {
    return identifier;
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

  public BlobLocators locators() {
    return locators;
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (isOvertaken) {
      return NoopTable$.MODULE$.newWriteBuilder(info);
    }
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
    return new Builder(this, python.newWriteBuilder(locators.with(complete))).truncate();
  }

  /** Makes the write of the rows, whose errors say that the table exists as those of Spark. */
  static class Builder extends PathWriteBuilder {
    private final NewTable table;

    Builder(NewTable table, WriteBuilder python) {
      super(python, false);
      named(table.name());
      this.table = table;
    }

    BatchWrite batch(BatchWrite python, WriteCounts counts) {
      return new Batch(table, super.batch(python, counts));
    }
  }

  public static class Batch implements BatchWrite {
    private final NewTable table;
    private final BatchWrite rows;

    Batch(NewTable table, BatchWrite rows) {
      this.table = table;
      this.rows = rows;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      try {
        return rows.createBatchWriterFactory(info);
      } catch (Exception e) {
        table.raise(e);
        return NoopWriterFactory$.MODULE$;
      }
    }

    public boolean useCommitCoordinator() {
      return rows.useCommitCoordinator();
    }

    public void onDataWriterCommit(WriterCommitMessage message) {
      if (!table.isOvertaken) {
        rows.onDataWriterCommit(message);
      }
    }

    public void commit(WriterCommitMessage[] messages) {
      if (table.isOvertaken) {
        return;
      }
      try {
        rows.commit(messages);
      } catch (Exception e) {
        table.raise(e);
        // The rows are those of the other client.
        rows.abort(messages);
      }
    }

    public void abort(WriterCommitMessage[] messages) {
      if (!table.isOvertaken) {
        rows.abort(messages);
      }
    }
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
    if (isOvertaken) {
      return;
    }
    try {
      catalog.endStaged("commit_staged", identifier, staged, schema, written);
    } catch (Exception e) {
      if (!(e instanceof TableAlreadyExistsException && ignoresExisting)) {
        throw Errors.rethrow(e);
      }
    }
  }

  public void abortStagedChanges() {
    if (isOvertaken) {
      return;
    }
    catalog.endStaged("abort_staged", identifier, staged, schema, written);
  }

  public String toString() {
    return name();
  }
}
