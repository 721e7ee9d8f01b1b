package org.lancespark;

/* since 4.2
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

class Changes implements Changelog {
  private final ChangesTable table;

  Changes(ChangesTable table) {
    this.table = table;
  }

  public String name() {
    return table.name();
  }

  public Column[] columns() {
    return table.columns();
  }

  public boolean containsCarryoverRows() {
    return false;
  }

  // Python refuses queries for which it matters.
  public boolean containsIntermediateChanges() {
    return false;
  }

  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return table.newScanBuilder(options);
  }

  static void addBounds(ChangelogRange range, Map arguments) {
    if (range instanceof ChangelogRange.VersionRange) {
      ChangelogRange.VersionRange versions = (ChangelogRange.VersionRange) range;
      add("starting", "version", versions.startingVersion(), range.startingBoundInclusive(), arguments);
      add("ending", "version", valueOf(versions.endingVersion()), range.endingBoundInclusive(), arguments);
    } else if (range instanceof ChangelogRange.TimestampRange) {
      ChangelogRange.TimestampRange times = (ChangelogRange.TimestampRange) range;
      Object start = Long.valueOf(times.startingTimestamp());
      add("starting", "timestamp", start, range.startingBoundInclusive(), arguments);
      add("ending", "timestamp", valueOf(times.endingTimestamp()), range.endingBoundInclusive(), arguments);
    }
  }

  private static Object valueOf(Optional value) {
    return value.isPresent() ? value.get() : null;
  }

  private static void add(
      String end, String unit, Object value, boolean inclusive, Map arguments) {
    if (value != null) {
      Map bound = new LinkedHashMap();
      bound.put(unit, value);
      bound.put("inclusive", Boolean.valueOf(inclusive));
      arguments.put(end, bound);
    }
  }
}
since 4.2 */
