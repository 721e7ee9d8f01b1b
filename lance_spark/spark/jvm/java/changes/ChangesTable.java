package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The changes of a table between two versions. The options that find the table stay here, and do
 * not become part of plans.
 */
public class ChangesTable implements SupportsRead {
  private final String name;
  protected final StructType schema;
  protected final Map options;

  /**
   * Makes a table.
   *
   * @param reply what Python says of the changes: "schema" and "options"
   */
  ChangesTable(String name, Map reply) {
    this.name = name;
    this.schema = (StructType) DataType.fromJson((String) reply.get("schema"));
    this.options = (Map) reply.get("options");
  }

  public String name() {
    return name;
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_READ}));
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    Map all = new HashMap(options);
    all.putAll(query.asCaseSensitiveMap());
    PythonTable python = new PythonTable(PythonCall.source(), PythonCall.FORMAT, schema);
    return python.newScanBuilder(new CaseInsensitiveStringMap(all));
  }

  public String toString() {
    return name;
  }
}
