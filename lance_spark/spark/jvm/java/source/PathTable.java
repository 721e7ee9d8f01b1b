package org.lancespark;

import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of format("lance"): Spark's own Python table, whose writes have errors of one sentence,
 * and whose streams return columns.
 */
public class PathTable extends PythonTable implements BlobLocators.Target {
  private final PythonDataSourceV2 source;
  private final boolean isStarted;
  private final boolean isOfCatalog;
  private final Map properties;
  private final BlobLocators locators = new BlobLocators();
  private Object firstQuestion;
  private StructType leftOut;

  /** The constraints, as Python describes them; null before Python is asked. */
  private List constraints;

  /** Conditions that the plan of a stream to the table checks, which Spark does not do itself. */
  volatile Map checkedByStream = new HashMap();

  /**
   * Makes a table.
   *
   * @param properties the options, or the properties of a table of Spark's own catalog
   * @param constraints of the table to which LanceSource.createRelation has started the write, as
   *     Python describes them; null for other tables
   */
  PathTable(PythonDataSourceV2 source, StructType schema, Map properties, List constraints) {
    super(source, PythonCall.FORMAT, schema);
    this.source = source;
    this.properties = properties;
    this.isStarted = constraints != null;
    this.constraints = constraints;
    this.isOfCatalog = properties.containsKey("provider");
  }

  public Set capabilities() {
    return new Capabilities(this, super.capabilities());
  }

  /** Returns the scan of a stream. Other scans go through PushDownRule, except change feeds. */
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    ScanBuilder python = super.newScanBuilder(options);
    boolean isPlain = !PushDownRule.isEnabled() || PushDownRule.readsChanges(options);
    return isPlain ? python : new PathScan(python.build(), source, options);
  }

  /* since 4.1
  public org.apache.spark.sql.connector.catalog.constraints.Constraint[] constraints() {
    if (constraints == null) {
      Map arguments = new LinkedHashMap();
      arguments.put("options", properties);
      constraints = (List) PythonCall.result("path_constraints", arguments).get("constraints");
    }
    return Constraints.of(constraints, name() + "_pk");
  }
  since 4.1 */

  public BlobLocators locators() {
    return locators;
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map conditions = checkedByStream.isEmpty() ? Constraints.checked() : checkedByStream;
    LogicalWriteInfo complete = locators.with(Constraints.checked(info, conditions));
    WriteBuilder python = super.newWriteBuilder(complete);
    // createRelation looks at the errors itself.
    return isStarted
        ? new PathWriteBuilder(python, false)
        : new InsertBuilder(this, python, complete);
  }

  /** Returns the columns with defaults that a stream to the table leaves out. */
  StructType leftOut(StructType query) {
    if (leftOut == null) {
      leftOut = DefaultColumns.leftOut(properties, query, false);
    }
    return leftOut;
  }

  private WriteBuilder partitionsWriter(LogicalWriteInfo info) {
    Map options = new HashMap(info.options().asCaseSensitiveMap());
    options.put(OverwriteBuilder.REPLACES, "partitions");
    options.put(Settings.OVERWRITE_MODE, Settings.overwriteMode());
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
    return super.newWriteBuilder(new NamedWriteInfo(info, all, info.schema()));
  }

  /** Makes the write of an INSERT into a view or a table of Spark's own catalog. */
  public static class InsertBuilder extends PathWriteBuilder implements SupportsDynamicOverwrite {
    private final PathTable table;
    private final LogicalWriteInfo info;

    InsertBuilder(PathTable table, WriteBuilder python, LogicalWriteInfo info) {
      super(python, true);
      this.table = table;
      this.info = info;
    }

    public WriteBuilder overwriteDynamicPartitions() {
      return new PathWriteBuilder(table.partitionsWriter(info), true).truncate();
    }
  }

  /**
   * The capabilities, without batch writes if Spark asks for them before all others. Only
   * `df.write.save()` does so. A read of the table asks for reads first; INSERT, which asks for
   * batch writes, uses a table that was read.
   */
  static class Capabilities extends HashSet {
    private static final long serialVersionUID = 1L;

    private final PathTable table;

    Capabilities(PathTable table, Set all) {
      super(all);
      add(TableCapability.OVERWRITE_DYNAMIC);
      this.table = table;
    }

    public boolean contains(Object capability) {
      if (table.firstQuestion == null) {
        table.firstQuestion = capability;
      }
      boolean takesBatches =
          table.isStarted
              || table.isOfCatalog
              || table.firstQuestion != TableCapability.BATCH_WRITE;
      return super.contains(capability)
          && (takesBatches || capability != TableCapability.BATCH_WRITE);
    }
  }
}
