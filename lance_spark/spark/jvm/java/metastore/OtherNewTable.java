package org.lancespark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** A table of another format that exists before its rows are written, and is dropped if they fail. */
public class OtherNewTable implements StagedTable, SupportsWrite {
  private final LanceSessionCatalog catalog;
  private final Identifier identifier;
  private final Table table;

  OtherNewTable(LanceSessionCatalog catalog, Identifier identifier, Table table) {
    this.catalog = catalog;
    this.identifier = identifier;
    this.table = table;
  }

  public String name() {
    return table.name();
  }

  public StructType schema() {
    return table.schema();
  }

  public Column[] columns() {
    return table.columns();
  }

  public Map properties() {
    return table.properties();
  }

  public Set capabilities() {
    return table.capabilities();
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) table).newWriteBuilder(info);
  }

  public void commitStagedChanges() {}

  public void abortStagedChanges() {
    catalog.dropTable(identifier);
  }
}
