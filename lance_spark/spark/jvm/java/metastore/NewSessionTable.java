package org.lancespark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructType;

/** A new table of the session's catalog. Its name is removed again if the statement fails. */
public class NewSessionTable extends NewTable {
  private final LanceSessionCatalog created;
  private final Identifier entry;
  private final TableName path;

  /**
   * Makes a table.
   *
   * @param created the catalog that has a new entry for the table, or null if it had the entry
   */
  NewSessionTable(
      LanceCatalog paths,
      TableName path,
      StructType schema,
      Map properties,
      Map staged,
      LanceSessionCatalog created,
      Identifier entry) {
    super(paths, path, schema, properties, staged);
    this.created = created;
    this.entry = entry;
    this.path = path;
  }

  Identifier shown() {
    return entry;
  }

  public void abortStagedChanges() {
    super.abortStagedChanges();
    if (created != null) {
      created.forget(entry, path);
    }
  }
}
