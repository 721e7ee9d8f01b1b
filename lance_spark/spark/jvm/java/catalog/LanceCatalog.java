package org.lancespark;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Lance tables by name: the class that spark.sql.catalog.NAME names. Each method is one call of
 * Python (lance_spark/spark/catalog), which decides; this class translates.
 */
public class LanceCatalog extends NamespaceCatalog
    implements StagingTableCatalog, ProcedureCatalog {
  static final List NO_CONSTRAINTS = Collections.EMPTY_LIST;

  public Set capabilities() {
    Set capabilities = new HashSet();
    capabilities.add(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    Constraints.addCapability(capabilities);
    return capabilities;
  }

  // Tables

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List names = (List) call("list_tables", ofNamespace(namespace), namespace).get("names");
    Identifier[] tables = new Identifier[names.size()];
    for (int i = 0; i < tables.length; i++) {
      tables[i] = new TableName(namespace, (String) names.get(i));
    }
    return tables;
  }

  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    return load(identifier, new LinkedHashMap());
  }

  public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
    Map given = new LinkedHashMap();
    given.put("version", version);
    return load(identifier, given);
  }

  /** Loads the version that was the newest at a time, in microseconds since 1970. */
  public Table loadTable(Identifier identifier, long timestamp) throws NoSuchTableException {
    Map given = new LinkedHashMap();
    given.put("timestamp", Long.valueOf(timestamp));
    return load(identifier, given);
  }

  /** Loads a table that is written to: some columns have other types than for reads. */
  public Table loadTable(Identifier identifier, Set privileges) throws NoSuchTableException {
    return loadForWrite(identifier, new LinkedHashMap());
  }

  public boolean tableExists(Identifier identifier) {
    try {
      load(identifier, new LinkedHashMap());
      return true;
    } catch (Exception e) {
      if (e instanceof NoSuchTableException) {
        return false;
      }
      throw Errors.rethrow(e);
    }
  }

  NamedTable loadForWrite(Identifier identifier) {
    return loadForWrite(identifier, new LinkedHashMap());
  }

  private NamedTable loadForWrite(Identifier identifier, Map given) {
    given.put("for_write", Boolean.TRUE);
    return load(identifier, given);
  }

  private NamedTable load(Identifier identifier, Map given) {
    Map arguments = ofTable(identifier);
    arguments.putAll(given);
    Map reply = call("load_table", arguments, identifier);
    return table(identifier, reply);
  }

  private NamedTable table(Identifier identifier, Map reply) {
    if (identifier instanceof TableName) {
      ((TableName) identifier).describe((Map) reply.get("properties"));
    }
    return SparkRelease.namedTable(this, identifier, reply);
  }

  /* since 4.2
  public org.apache.spark.sql.connector.catalog.Changelog loadChangelog(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.ChangelogContext context,
      CaseInsensitiveStringMap query) throws NoSuchTableException {
    Map arguments = ofTable(identifier);
    Changes.addBounds(context.range(), arguments);
    arguments.put("deduplication", context.deduplicationMode().name());
    Map reply = call("load_changes", arguments, identifier);
    return new Changes(new ChangesTable(display(identifier), reply));
  }
  since 4.2 */

  /* since 4.3
  public Set tableStateOptionKeys() {
    return Constants.STATE_OPTIONS;
  }

  public Table loadTable(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.TableContext context,
      CaseInsensitiveStringMap query) throws NoSuchTableException {
    Map given = new LinkedHashMap();
    given.put("query", NamedTable.unanswered(query.asCaseSensitiveMap()));
    given.put(TimeZones.OPTION, TimeZones.ofSession());
    Object travel = context.timeTravel().isPresent() ? context.timeTravel().get() : null;
    if (travel instanceof org.apache.spark.sql.connector.catalog.TimeTravel.AsOfVersion) {
      given.put(
          "version",
          ((org.apache.spark.sql.connector.catalog.TimeTravel.AsOfVersion) travel).version());
    } else if (travel != null) {
      long micros =
          ((org.apache.spark.sql.connector.catalog.TimeTravel.AsOfTimestamp) travel).micros();
      given.put("timestamp", Long.valueOf(micros));
    } else if (!context.writePrivileges().isEmpty()) {
      return loadForWrite(identifier, given);
    }
    return load(identifier, given);
  }
  since 4.3 */

  public Table createTable(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
    return createTable(identifier, schema, partitions, properties);
  }

  public Table createTable(
      Identifier identifier, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(identifier, schema, partitions, properties, NO_CONSTRAINTS);
  }

  /**
   * Creates a table.
   *
   * @param constraints as Python reads them
   */
  Table createTable(
      Identifier identifier,
      StructType schema,
      Transform[] partitions,
      Map properties,
      List constraints)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map arguments = ofNewTable(identifier, schema, partitions, properties, constraints);
    Map reply = call("create_table", arguments, identifier);
    return table(identifier, reply);
  }

  /* since 4.1
  public Table createTable(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(
        identifier,
        CatalogV2Util.v2ColumnsToStructType(info.columns()),
        info.partitions(),
        info.properties(),
        Constraints.described(info.constraints()));
  }
  since 4.1 */

  /* since 4.2
  public Table createTableLike(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.TableInfo info,
      Table source) throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map properties = likeProperties(info, source, false);
    return createTable(
        identifier,
        CatalogV2Util.v2ColumnsToStructType(info.columns()),
        info.partitions(),
        properties,
        Constraints.described(info.constraints()));
  }

  Map likeProperties(
      org.apache.spark.sql.connector.catalog.TableInfo info, Table source, boolean keepsFormat) {
    Map arguments = new LinkedHashMap();
    arguments.put("properties", info.properties());
    arguments.put("source", source.properties());
    arguments.put("keeps_format", Boolean.valueOf(keepsFormat));
    arguments.put("columns", CatalogV2Util.v2ColumnsToStructType(info.columns()).fieldNames());
    return (Map) call("like_properties", arguments, new String[0]).get("properties");
  }
  since 4.2 */

  private Map ofNewTable(
      Identifier identifier,
      StructType schema,
      Transform[] partitions,
      Map properties,
      List constraints) {
    Map arguments = ofTable(identifier);
    arguments.put("constraints", constraints);
    arguments.put("schema", TableChanges.json(schema));
    arguments.put("properties", properties);
    String[] described = new String[partitions.length];
    for (int i = 0; i < described.length; i++) {
      described[i] = partitions[i].describe();
    }
    arguments.put("partitions", Arrays.asList(described));
    arguments.put("default_provider", SQLConf.get().defaultDataSourceName());
    return arguments;
  }

  public Table alterTable(Identifier identifier, TableChange... changes)
      throws NoSuchTableException {
    Table altered = alter(identifier, changes);
    CachedTables.refresh(name, identifier);
    return altered;
  }

  Table alter(Identifier identifier, TableChange[] changes) {
    Map arguments = ofTable(identifier);
    arguments.put("changes", TableChanges.write(changes));
    Map reply = call("alter_table", arguments, identifier);
    return table(identifier, reply);
  }

  /** Deletes a table with its files. */
  public boolean dropTable(Identifier identifier) {
    Map reply = call("drop_table", ofTable(identifier), identifier);
    return Boolean.TRUE.equals(reply.get("dropped"));
  }

  public boolean purgeTable(Identifier identifier) {
    return dropTable(identifier);
  }

  public void renameTable(Identifier from, Identifier to)
      throws NoSuchTableException, TableAlreadyExistsException {
    Map arguments = ofTable(from);
    arguments.put("new_namespace", Arrays.asList(to.namespace()));
    arguments.put("new_name", to.name());
    Map reply = PythonCall.reply("rename_table", arguments);
    if (reply.containsKey("error")) {
      Map error = (Map) reply.get("error");
      Errors.raise(error, "table_exists".equals(error.get("kind")) ? to : from, to.namespace());
    }
  }

  // Tables that are created together with their rows

  public StagedTable stageCreate(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stage("create", identifier, columns, partitions, properties, NO_CONSTRAINTS);
  }

  public StagedTable stageReplace(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    return stage("replace", identifier, columns, partitions, properties, NO_CONSTRAINTS);
  }

  public StagedTable stageCreateOrReplace(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    return stage("create_or_replace", identifier, columns, partitions, properties, NO_CONSTRAINTS);
  }

  /* since 4.1
  public StagedTable stageCreate(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stage("create", identifier, info);
  }

  public StagedTable stageReplace(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws NoSuchNamespaceException, NoSuchTableException {
    return stage("replace", identifier, info);
  }

  public StagedTable stageCreateOrReplace(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws NoSuchNamespaceException {
    return stage("create_or_replace", identifier, info);
  }

  private StagedTable stage(
      String mode, Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info) {
    return stage(
        mode,
        identifier,
        info.columns(),
        info.partitions(),
        info.properties(),
        Constraints.described(info.constraints()));
  }
  since 4.1 */

  private StagedTable stage(
      String mode,
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map properties,
      List constraints) {
    StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
    TableName table = new TableName(identifier.namespace(), identifier.name());
    try {
      Map staged = stageAt(mode, table, schema, partitions, properties, constraints);
      return new NewTable(this, table, schema, properties, staged);
    } catch (Exception e) {
      if (e instanceof TableAlreadyExistsException) {
        return overtaken((TableAlreadyExistsException) e, table, schema, properties);
      }
      throw Errors.rethrow(e);
    }
  }

  private StagedTable overtaken(
      TableAlreadyExistsException error, TableName table, StructType schema, Map properties) {
    try {
      return NewTable.overtaken(error, this, table, schema, properties);
    } catch (TableAlreadyExistsException e) {
      throw Errors.rethrow(e);
    }
  }

  Map stageAt(
      String mode,
      TableName table,
      StructType schema,
      Transform[] partitions,
      Map properties,
      List constraints) {
    Map arguments = ofNewTable(table, schema, partitions, properties, constraints);
    arguments.put("mode", mode);
    return call("stage_table", arguments, table);
  }

  void endStaged(
      String function, TableName identifier, Map staged, StructType schema, boolean written) {
    Map arguments = ofTable(identifier);
    arguments.put("state", staged.get("state"));
    arguments.put("schema", TableChanges.json(schema));
    arguments.put("written", Boolean.valueOf(written));
    call(function, arguments, identifier);
  }

  // Procedures

  public UnboundProcedure loadProcedure(Identifier identifier) {
    return Procedures.load(this, identifier);
  }

  public Identifier[] listProcedures(String[] namespace) {
    return Procedures.list(this, namespace);
  }

  /** Returns the entry of a metastore that a text names, or null: Python knows all names here. */
  Identifier entry(String text) {
    return null;
  }

  /** Returns the path of the table of an entry. */
  TableName path(Identifier entry) {
    throw new UnsupportedOperationException();
  }

  /** Makes Spark read a table again after a procedure. */
  void refresh(Identifier entry, List table) {
    CachedTables.refresh(name, table);
  }
}
