package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Makes writes to a table: an append, or an overwrite of all rows, of those that meet a condition,
 * or of the partitions of the new rows. Python's writer gets an option for each.
 */
public class OverwriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  /** What the write replaces: "all", "where" or "partitions". */
  static final String REPLACES = "replaces";

  /** Whether the table must exist when the write is planned; it would be created otherwise. */
  static final String MUST_EXIST = "must_exist";

  /** The condition, as forms. */
  static final String CONDITION = "replace_where_forms";

  private final String name;
  private final PythonTable python;
  private final LogicalWriteInfo info;
  private final StructType table;
  private final Map place;
  private final Map added = new HashMap();
  private boolean overwrites;

  /**
   * Makes a builder.
   *
   * @param place the options of the table, without those of the write
   */
  OverwriteBuilder(
      String name, PythonTable python, LogicalWriteInfo info, StructType table, Map place) {
    this.name = name;
    this.python = python;
    this.info = info;
    this.table = table;
    this.place = place;
  }

  public WriteBuilder truncate() {
    overwrites = true;
    added.put(REPLACES, "all");
    return this;
  }

  public WriteBuilder overwriteDynamicPartitions() {
    overwrites = true;
    added.put(REPLACES, "partitions");
    return this;
  }

  /** Raises an error for other conditions: Spark's own is one without a condition. */
  public boolean canOverwrite(Predicate[] predicates) {
    if (Predicates.all(predicates, table) == null) {
      throw Errors.unchecked(
          name
              + ": the condition of the rows to replace must compare columns with constants, and"
              + " has another expression; use the procedure replace_where");
    }
    return true;
  }

  public WriteBuilder overwrite(Predicate[] predicates) {
    overwrites = true;
    added.put(REPLACES, "where");
    added.put(CONDITION, Forms.json(Predicates.all(predicates, table)));
    return this;
  }

  public Write build() {
    added.put(MUST_EXIST, "true");
    if (overwrites) {
      added.put(Settings.OVERWRITE_MODE, Settings.overwriteMode());
      Snapshot.addReadBy(added, place);
    }
    Map options = new HashMap(info.options().asCaseSensitiveMap());
    options.putAll(added);
    LogicalWriteInfo complete =
        new NamedWriteInfo(info, new CaseInsensitiveStringMap(options), info.schema());
    PathWriteBuilder writer = new PathWriteBuilder(python.newWriteBuilder(complete), true);
    writer.named(name);
    return overwrites ? writer.truncate().build() : writer.build();
  }
}
