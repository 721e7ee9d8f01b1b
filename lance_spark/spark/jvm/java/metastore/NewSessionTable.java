package org.lancespark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructType;

/**
 * A table of the session's catalog that a statement creates or replaces. The name of a new one is
 * removed again if the statement fails. That of a replaced one gets its columns.
 */
public class NewSessionTable extends NewTable {
  private final LanceSessionCatalog catalog;
  private final Identifier entry;
  private final boolean isNew;
  private final TableName path;

  /**
   * Makes a table.
   *
   * @param isNew whether the catalog has a new entry for the table
   */
  NewSessionTable(
      LanceCatalog paths,
      TableName path,
      StructType schema,
      Map properties,
      Map staged,
      LanceSessionCatalog catalog,
      Identifier entry,
      boolean isNew) {
    super(paths, path, schema, properties, staged);
    this.catalog = catalog;
    this.entry = entry;
    this.isNew = isNew;
    this.path = path;
  }

  Identifier shown() {
    return entry;
  }

  public void commitStagedChanges() {
    super.commitStagedChanges();
    if (!isNew) {
      catalog.updateEntry(entry, path);
    }
  }

  public void abortStagedChanges() {
    super.abortStagedChanges();
    if (isNew) {
      catalog.forget(entry, path);
    }
  }
}
