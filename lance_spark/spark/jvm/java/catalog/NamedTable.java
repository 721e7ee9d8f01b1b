package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of the catalog. Spark's own Python table reads and writes it, with the options that find
 * the table; they stay here, and do not become part of plans.
 */
public class NamedTable
    implements SupportsRead,
        SupportsWrite,
        SupportsMetadataColumns,
        SupportsRowLevelOperations,
        SupportsDeleteV2,
        BlobLocators.Target {
  /**
   * Options of a query that Spark has answered by the choice of the table: Spark's settings of their
   * names, and the names by default.
   */
  private static final String[][] ANSWERED = {
    {"spark.sql.timeTravelVersionKey", "versionAsOf"},
    {"spark.sql.timeTravelTimestampKey", "timestampAsOf"}
  };

  private static final String PATH = "path";

  /** Option of tables whose credentials a namespace renews. */
  private static final String CREDENTIAL_SOURCE = "storage.credential_source";

  /** Options of a store with credentials, or with the time until which they are valid. */
  private static final Pattern CREDENTIAL =
      Pattern.compile(
          "storage[.].*(credential|expires|key|pass|sas|secret|signature|token).*",
          Pattern.CASE_INSENSITIVE);

  /** Spark does not load a table again before it runs a query, if it was loaded just before. */
  private static final long FRESH_NANOS = 10L * 1000 * 1000 * 1000;

  final LanceCatalog catalog;
  final String version;

  /** What differs from the version of the same number of a table that is created again. */
  final String identity;

  /** Whether the table has so many rows that Spark searches for the keys of a source of a MERGE. */
  final boolean isLarge;

  /** Whether the table has a primary key. */
  private final boolean hasKey;

  /** The change that could not be committed, so that its statement reads the table again, or null. */
  volatile RowChange replanned;

  /** Whether the statement for which the table was loaded has committed its change of rows. */
  volatile boolean isChanged;

  /** The columns of partitions that the property of a table that is written to names. */
  private final Transform[] partitions;

  private final Identifier identifier;
  private final String name;
  private final StructType declared;
  private final StructType schema;
  private final Map properties;
  private final Map options;
  private final MetadataColumn[] rowColumns;
  private final long loaded = System.nanoTime();
  private final BlobLocators locators;

  /** The constraints, as Python describes them. */
  private final List constraints;

  /** Conditions that the plan of a stream to the table checks, which Spark does not do itself. */
  volatile Map checkedByStream = new HashMap();

  /**
   * Makes a table.
   *
   * @param reply what Python says of the table: "schema", "options", "properties", "version",
   *     "identity", "row_columns", "constraints" and, if the table is loaded to be written, "large"
   *     and "has_key"
   */
  NamedTable(LanceCatalog catalog, Identifier identifier, Map reply) {
    this.catalog = catalog;
    this.identifier = identifier;
    this.name = catalog.display(identifier);
    // Spark's JSON of char(n) lacks its collation. The metadata of a string has both.
    StructType given = (StructType) DataType.fromJson((String) reply.get("schema"));
    this.declared = CharVarcharUtils.getRawSchema(given);
    // Scans and writes have strings for char(n) and varchar(n), as all of Spark's plans.
    this.schema = CharVarcharUtils.replaceCharVarcharWithStringInSchema(declared);
    this.properties = (Map) reply.get("properties");
    this.options = (Map) reply.get("options");
    this.version = String.valueOf(reply.get("version"));
    this.identity = (String) reply.get("identity");
    this.rowColumns = RowColumn.of((List) reply.get("row_columns"));
    this.isLarge = Boolean.TRUE.equals(reply.get("large"));
    this.hasKey = Boolean.TRUE.equals(reply.get("has_key"));
    this.partitions = identities((List) reply.get("partition_by"));
    this.locators = new BlobLocators();
    this.constraints = (List) reply.get("constraints");
  }

  /** Makes a table that equals another one. */
  NamedTable(NamedTable other) {
    this.catalog = other.catalog;
    this.identifier = other.identifier;
    this.name = other.name;
    this.declared = other.declared;
    this.schema = other.schema;
    this.properties = other.properties;
    this.options = other.options;
    this.version = other.version;
    this.identity = other.identity;
    this.rowColumns = other.rowColumns;
    this.isLarge = other.isLarge;
    this.hasKey = other.hasKey;
    this.partitions = other.partitions;
    this.replanned = other.replanned;
    this.locators = other.locators;
    this.constraints = other.constraints;
  }

  private static Transform[] identities(List columns) {
    Transform[] identities = new Transform[columns == null ? 0 : columns.size()];
    for (int i = 0; i < identities.length; i++) {
      String name = ((String) columns.get(i)).replace("`", "``");
      // The package has a class Expressions of its own.
      identities[i] =
          org.apache.spark.sql.connector.expressions.Expressions.identity("`" + name + "`");
    }
    return identities;
  }

  public String name() {
    return name;
  }

  public Transform[] partitioning() {
    return partitions;
  }

  public StructType schema() {
    return declared;
  }

  public Map properties() {
    return properties;
  }

  /**
   * Returns null for a table that was loaded a few seconds ago. Spark 4.1 and later ask before they
   * run a query, and load a table that has a version again, to compare its columns. The version
   * that is read does not depend on it: Python names the newest when it plans the scan, and checks
   * the columns.
   */
  public String version() {
    return System.nanoTime() - loaded < FRESH_NANOS ? null : version;
  }

  /* since 4.1
  public org.apache.spark.sql.connector.catalog.constraints.Constraint[] constraints() {
    return Constraints.of(constraints, keyName());
  }
  since 4.1 */

  /** Returns the name of a primary key that has none: Spark would have chosen it. */
  String keyName() {
    return name.substring(name.lastIndexOf('.') + 1).replace("`", "") + "_pk";
  }

  public Set capabilities() {
    Set capabilities =
        new HashSet(
            Arrays.asList(
                new Object[] {
                  TableCapability.BATCH_READ,
                  TableCapability.BATCH_WRITE,
                  TableCapability.TRUNCATE,
                  TableCapability.OVERWRITE_BY_FILTER,
                  TableCapability.OVERWRITE_DYNAMIC,
                  TableCapability.MICRO_BATCH_READ,
                  TableCapability.STREAMING_WRITE
                }));
    SparkRelease.addSchemaEvolution(capabilities);
    return capabilities;
  }

  public MetadataColumn[] metadataColumns() {
    return rowColumns;
  }

  /** Returns the options of the table and of a query. */
  CaseInsensitiveStringMap with(Map others) {
    Map all = new HashMap(options);
    all.putAll(withoutPath(unanswered(others), (String) options.get(PATH), name));
    return new CaseInsensitiveStringMap(TimeZones.added(all));
  }

  /**
   * Returns the options of a query or a write without a path, which the table has already. Refuses
   * the path of another table, which the query would read, or the write change, instead.
   *
   * @param table the path of the table
   */
  static Map withoutPath(Map others, String table, String name) {
    Map all = new HashMap(others);
    String given = removed(all, PATH);
    if (given != null && !place(given).equals(place(table))) {
      throw Errors.unchecked(
          "table " + name + " is at " + place(table) + ", and the option path names " + given
              + ": remove the option, or use format('lance') with load or save for a path");
    }
    return all;
  }

  /** Returns a path in one of the forms that mean the same. */
  private static String place(String path) {
    return path.replaceFirst("^file:/+", "/").replaceFirst("(?<=[^/])/+$", "");
  }

  /** Returns the options of a query without those that the choice of the table has answered. */
  static Map unanswered(Map others) {
    Map all = new HashMap(others);
    for (int n = 0; n < ANSWERED.length; n++) {
      removed(all, SQLConf.get().getConfString(ANSWERED[n][0], ANSWERED[n][1]));
    }
    return all;
  }

  /** Removes an option, in any case, and returns its value or null. */
  private static String removed(Map options, String name) {
    String value = null;
    Object[] names = options.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      if (name.equalsIgnoreCase((String) names[i])) {
        value = (String) options.remove(names[i]);
      }
    }
    return value;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    Map given = unanswered(query.asCaseSensitiveMap());
    if (changesState(given)) {
      Map arguments = new LinkedHashMap();
      arguments.put("options", options);
      arguments.put(
          "query",
          ScanMarks.without(new CaseInsensitiveStringMap(given)).asCaseSensitiveMap());
      arguments.put(TimeZones.OPTION, TimeZones.ofSession());
      arguments.put("schema", TableChanges.json(declared));
      arguments.put("name", name);
      PythonCall.result("check_query_options", arguments);
    }
    return scan(with(given));
  }

  /** Returns whether a query has an option that the load of the table did not take into account. */
  private boolean changesState(Map query) {
    CaseInsensitiveStringMap known = new CaseInsensitiveStringMap(options);
    Object[] names = query.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      String name = (String) names[i];
      if (Constants.STATE_OPTIONS.contains(name.toLowerCase(Locale.ROOT))
          && !query.get(name).equals(known.get(name))) {
        return true;
      }
    }
    return false;
  }

  /** Returns whether a query reads a change feed, whose reader takes no requests. */
  boolean readsChanges(CaseInsensitiveStringMap query) {
    return PushDownRule.readsChanges(with(query.asCaseSensitiveMap()));
  }

  ScanBuilder scan(CaseInsensitiveStringMap all) {
    if (PushDownRule.readsChanges(all)) {
      return python().newScanBuilder(all);
    }
    RequestTable table = RequestTable.named(schema, Snapshot.ofQuery());
    RequestScanBuilder builder = RequestScanBuilder.of(table, all);
    return PushDownRule.isEnabled() ? (ScanBuilder) builder : new ColumnScanBuilder(builder);
  }

  public BlobLocators locators() {
    return locators;
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    LogicalWriteInfo complete =
        new NamedWriteInfo(info, with(info.options().asCaseSensitiveMap()), info.schema());
    Map conditions = checkedByStream.isEmpty() ? Constraints.checked() : checkedByStream;
    complete = locators.with(Constraints.checked(complete, conditions));
    return new OverwriteBuilder(name(), python(), complete, schema, options);
  }

  PythonTable python() {
    return new PythonTable(PythonCall.source(), PythonCall.FORMAT, schema);
  }

  // Changes of rows

  /** Returns the newest version of the table, as statements that write load it. */
  NamedTable newest() {
    return catalog.loadForWrite(identifier);
  }

  /** Returns whether a change of rows can record the primary keys that it inserts. */
  boolean canRecordKeys() {
    return hasKey && hasAddresses();
  }

  /** Returns whether a column has char(n) or varchar(n), also inside of its type. */
  boolean hasLimitedTexts() {
    return CharVarcharUtils.hasCharVarchar(declared);
  }

  /** Returns the names of columns of char(n), whose values Spark pads. */
  Set paddedColumns() {
    Set names = new HashSet();
    StructField[] fields = declared.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].dataType() instanceof CharType) {
        names.add(fields[i].name());
      }
    }
    return names;
  }

  /** Returns whether the table has no column of its own with the name of the addresses. */
  private boolean hasAddresses() {
    for (int i = 0; i < rowColumns.length; i++) {
      if (rowColumns[i].name().equals(RowChange.ADDRESS)) {
        return true;
      }
    }
    return false;
  }

  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    if (hasAddresses()) {
      return new RowChange(this, info.command(), 0, new WriteCounts());
    }
    throw new UnsupportedOperationException(
        name + " has a column " + RowChange.ADDRESS + " of its own: rename it to change rows by SQL");
  }

  /** Returns whether Python deletes rows itself, without a job. */
  public boolean canDeleteWhere(Predicate[] predicates) {
    List forms = Predicates.all(predicates, schema);
    return forms != null && Boolean.TRUE.equals(delete("can_delete", forms).get("can"));
  }

  public void deleteWhere(Predicate[] predicates) {
    delete("delete_where", Predicates.all(predicates, schema));
  }

  public boolean truncateTable() {
    delete("delete_where", new ArrayList());
    return true;
  }

  private Map delete(String function, List forms) {
    Map arguments = new LinkedHashMap();
    arguments.put("options", options);
    arguments.put("forms", forms);
    Map reply = PythonCall.result(function, arguments);
    isChanged |= "delete_where".equals(function);
    return reply;
  }

  /**
   * Spark 4.0 finds the cached plans of a table that a statement has changed by equal tables. Plans
   * of other columns are not equal. The table of a statement that is planned again is not equal to
   * the table of before: Spark keeps a plan in place of one that is equal.
   */
  public boolean equals(Object other) {
    return other instanceof NamedTable
        && ((NamedTable) other).name.equals(name)
        && ((NamedTable) other).replanned == replanned
        && identity(((NamedTable) other).options).equals(identity(options));
  }

  /**
   * Returns whether a scan reads the table, in no version that it names.
   *
   * @param identity of the options of the scan
   */
  boolean isReadBy(Map identity) {
    return identity.equals(identity(options));
  }

  /**
   * Returns the options that say which version of which table is read: without searches, conditions
   * and columns, and without credentials of a namespace, which can differ each time that the table
   * is loaded.
   */
  static Map identity(Map options) {
    Map others = new HashMap();
    boolean isRenewed = options.containsKey(CREDENTIAL_SOURCE);
    Iterator entries = options.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      String option = (String) entry.getKey();
      if (!Constants.VIEW_OPTIONS.contains(option.toLowerCase(Locale.ROOT))
          && !(isRenewed && CREDENTIAL.matcher(option).matches())) {
        others.put(option, entry.getValue());
      }
    }
    return others;
  }

  public int hashCode() {
    return name.hashCode();
  }

  public String toString() {
    return name;
  }
}
