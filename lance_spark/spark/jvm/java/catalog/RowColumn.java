package org.lancespark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;

/** A hidden column, which every table has: a query reads it if it names it. */
public class RowColumn implements MetadataColumn {
  private final String name;
  private final DataType type;
  private final boolean nullable;
  private final String comment;

  private RowColumn(Map column) {
    this.name = (String) column.get("name");
    this.type = DataType.fromJson(Forms.json(column.get("type")));
    this.nullable = ((Boolean) column.get("nullable")).booleanValue();
    this.comment = (String) column.get("comment");
  }

  static MetadataColumn[] of(List columns) {
    MetadataColumn[] results = new MetadataColumn[columns.size()];
    for (int i = 0; i < results.length; i++) {
      results[i] = new RowColumn((Map) columns.get(i));
    }
    return results;
  }

  public String name() {
    return name;
  }

  public DataType dataType() {
    return type;
  }

  public boolean isNullable() {
    return nullable;
  }

  public String comment() {
    return comment;
  }
}
