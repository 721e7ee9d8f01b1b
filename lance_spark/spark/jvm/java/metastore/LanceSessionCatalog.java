package org.lancespark;

import java.net.URI;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType$;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The catalog of the session, with Lance tables among its tables: the class that
 * spark.sql.catalog.spark_catalog names. The metastore has the name, the path and the columns of a
 * Lance table; all else is at the path. Spark's own catalog has the tables of other formats.
 */
public class LanceSessionCatalog extends DelegatingCatalogExtension
    implements StagingTableCatalog, ProcedureCatalog {
  /** Properties that the metastore gets. Others may be secrets, and are in the table. */
  private static final String[] KEPT = {
    TableCatalog.PROP_PROVIDER,
    TableCatalog.PROP_LOCATION,
    TableCatalog.PROP_EXTERNAL,
    TableCatalog.PROP_IS_MANAGED_LOCATION,
    TableCatalog.PROP_COMMENT,
    TableCatalog.PROP_OWNER
  };

  private final SessionPaths paths = new SessionPaths(this);

  public void initialize(String name, CaseInsensitiveStringMap options) {
    paths.initialize(name, options);
  }

  public Set capabilities() {
    Set capabilities = new HashSet(super.capabilities());
    Constraints.addCapability(capabilities);
    return capabilities;
  }

  // Tables

  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    Identifier reference = reference(identifier);
    if (reference != null) {
      return paths.loadTable(reference);
    }
    Table table = super.loadTable(identifier);
    CatalogTable entry = Entries.of(table);
    return Entries.isLance(entry)
        ? atPath(identifier, entry, null, null)
        : Entries.resolved(table, entry);
  }

  public Table loadTable(Identifier identifier, Set privileges) throws NoSuchTableException {
    Identifier reference = reference(identifier);
    if (reference != null) {
      return paths.loadTable(reference, privileges);
    }
    Table table = super.loadTable(identifier);
    CatalogTable entry = Entries.of(table);
    return Entries.isLance(entry)
        ? atPath(identifier, entry, null, privileges)
        : Entries.resolved(table, entry);
  }

  public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
    Identifier reference = reference(identifier);
    if (reference != null) {
      return paths.loadTable(reference, version);
    }
    CatalogTable entry = Entries.of(super.loadTable(identifier));
    return Entries.isLance(entry)
        ? atPath(identifier, entry, version, null)
        : super.loadTable(identifier, version);
  }

  public Table loadTable(Identifier identifier, long timestamp) throws NoSuchTableException {
    Identifier reference = reference(identifier);
    if (reference != null) {
      return paths.loadTable(reference, timestamp);
    }
    CatalogTable entry = Entries.of(super.loadTable(identifier));
    return Entries.isLance(entry)
        ? atPath(identifier, entry, Long.valueOf(timestamp), null)
        : super.loadTable(identifier, timestamp);
  }

  /**
   * Returns the name by which Python finds a tag or branch of a Lance table: db.t.tag_x is the tag
   * x of the table db.t. Namespaces of this catalog have one part, so that no table has such a name.
   * Returns null for other names.
   */
  private Identifier reference(Identifier identifier) {
    String[] namespace = identifier.namespace();
    String name = identifier.name().toLowerCase(java.util.Locale.ROOT);
    if (namespace.length != 2 || !name.startsWith("tag_") && !name.startsWith("branch_")) {
      return null;
    }
    TableName table = new TableName(new String[] {namespace[0]}, namespace[1]);
    try {
      CatalogTable entry = Entries.of(super.loadTable(table));
      if (!Entries.isLance(entry)) {
        return null;
      }
      String[] path = {path(table, entry).name()};
      return new PathName(path, identifier.name(), identifier, false);
    } catch (NoSuchTableException e) {
      return null;
    }
  }

  /* since 4.2
  public org.apache.spark.sql.connector.catalog.Changelog loadChangelog(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.ChangelogContext context,
      CaseInsensitiveStringMap query) throws NoSuchTableException {
    return paths.loadChangelog(pathOf(identifier), context, query);
  }
  since 4.2 */

  private Table atPath(Identifier identifier, CatalogTable entry, Object version, Set privileges) {
    TableName path = path(identifier, entry);
    try {
      if (privileges != null) {
        return paths.loadTable(path, privileges);
      }
      if (version instanceof Long) {
        return paths.loadTable(path, ((Long) version).longValue());
      }
      return version == null ? paths.loadTable(path) : paths.loadTable(path, (String) version);
    } catch (NoSuchTableException e) {
      throw Errors.unchecked(
          "table " + identifier + ": no Lance table was found at " + path.name()
              + "; drop the table, or restore its files");
    }
  }

  public Table createTable(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(identifier, columns, partitions, properties, LanceCatalog.NO_CONSTRAINTS);
  }

  /* since 4.1
  public Table createTable(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    checkConstraints(identifier, info);
    return createTable(
        identifier,
        info.columns(),
        info.partitions(),
        info.properties(),
        Constraints.described(info.constraints()));
  }

  // Raises Spark's error for constraints of tables of other formats, and of names for existing ones.
  private void checkConstraints(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info) {
    boolean isNew = isLance(info.properties()) && info.columns().length > 0;
    if (info.constraints().length > 0 && !isNew) {
      throw SparkShims.noConstraints(this, identifier);
    }
  }
  since 4.1 */

  private Table createTable(
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map properties,
      List constraints)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isLance(properties) || (columns.length == 0 && hasOptions(properties))) {
      return super.createTable(identifier, columns, partitions, properties);
    }
    TableName path = newPath(identifier, properties);
    try {
      if (columns.length == 0) {
        return register(identifier, paths.loadTable(path).columns(), properties);
      }
    } catch (NoSuchTableException e) {
      throw Errors.unchecked(
          "table " + identifier + ": no Lance table was found at " + path.name()
              + "; name the columns, or correct LOCATION");
    }
    if (paths.tableExists(path)) {
      throw exists(identifier, path);
    }
    Table registered = register(identifier, columns, properties);
    try {
      StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
      paths.createTable(path, schema, partitions, properties, constraints);
    } catch (Exception e) {
      forget(identifier, path);
      throw Errors.rethrow(e);
    }
    return registered;
  }

  /* since 4.2
  public Table createTableLike(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.TableInfo info,
      Table source) throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map properties = paths.likeProperties(info, source, true);
    List constraints = Constraints.described(info.constraints());
    return createTable(
        identifier, info.columns(), info.partitions(), properties, constraints);
  }
  since 4.2 */

  public Table alterTable(Identifier identifier, TableChange... changes)
      throws NoSuchTableException {
    CatalogTable entry = Entries.of(super.loadTable(identifier));
    if (!Entries.isLance(entry)) {
      return super.alterTable(identifier, changes);
    }
    Table altered = paths.alter(path(identifier, entry), changes);
    try {
      alterEntry(identifier, Entries.followed(entry, changes));
    } catch (Exception e) {
      logFormer(identifier, e);
    }
    CachedTables.refresh(name(), identifier);
    return altered;
  }

  private void alterEntry(Identifier identifier, List changes) throws NoSuchTableException {
    if (!changes.isEmpty()) {
      TableChange[] same = new TableChange[changes.size()];
      super.alterTable(identifier, (TableChange[]) changes.toArray(same));
    }
  }

  /** Gives the entry of a table that was replaced the columns and the comment of the table. */
  void updateEntry(Identifier identifier, TableName path) {
    try {
      CatalogTable entry = Entries.of(super.loadTable(identifier));
      alterEntry(identifier, Entries.changes(entry, paths.loadTable(path)));
    } catch (Exception e) {
      logFormer(identifier, e);
    }
  }

  /** Says that the entry of a table that has changed did not follow. The table is right. */
  private static void logFormer(Identifier identifier, Exception e) {
    Log.once("The metastore keeps the former columns of " + identifier + ": " + e);
  }

  // Tables that are created together with their rows

  public StagedTable stageCreate(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return stageNew(identifier, columns, partitions, properties, LanceCatalog.NO_CONSTRAINTS);
  }

  private StagedTable stageNew(
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map properties,
      List constraints)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    try {
      if (tableExists(identifier)) {
        throw new TableAlreadyExistsException(identifier);
      }
      return stage(identifier, columns, partitions, properties, constraints, false);
    } catch (Exception e) {
      if (e instanceof TableAlreadyExistsException) {
        StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
        TableName shown = new TableName(identifier.namespace(), identifier.name());
        return NewTable.overtaken(
            (TableAlreadyExistsException) e, paths, shown, schema, properties);
      }
      throw Errors.rethrow(e);
    }
  }

  /** Returns the error of a new table whose path has one, or whose name another client just took. */
  private RuntimeException exists(Identifier identifier, TableName path) {
    if (tableExists(identifier)) {
      return Errors.rethrow(new TableAlreadyExistsException(identifier));
    }
    Errors.raisePathExists(path.name());
    return null;
  }

  public StagedTable stageReplace(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    checkExists(identifier);
    return stage(
        identifier, columns, partitions, properties, LanceCatalog.NO_CONSTRAINTS, true);
  }

  private void checkExists(Identifier identifier) throws NoSuchTableException {
    if (!tableExists(identifier)) {
      throw new NoSuchTableException(identifier);
    }
  }

  public StagedTable stageCreateOrReplace(
      Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    return stage(
        identifier,
        columns,
        partitions,
        properties,
        LanceCatalog.NO_CONSTRAINTS,
        tableExists(identifier));
  }

  /* since 4.1
  public StagedTable stageCreate(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    checkConstraints(identifier, info);
    List constraints = Constraints.described(info.constraints());
    return stageNew(
        identifier, info.columns(), info.partitions(), info.properties(), constraints);
  }

  public StagedTable stageReplace(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws NoSuchNamespaceException, NoSuchTableException {
    checkExists(identifier);
    return stage(identifier, info, true);
  }

  public StagedTable stageCreateOrReplace(
      Identifier identifier, org.apache.spark.sql.connector.catalog.TableInfo info)
      throws NoSuchNamespaceException {
    return stage(identifier, info, tableExists(identifier));
  }

  private StagedTable stage(
      Identifier identifier,
      org.apache.spark.sql.connector.catalog.TableInfo info,
      boolean replaces) {
    checkConstraints(identifier, info);
    List constraints = Constraints.described(info.constraints());
    return stage(
        identifier, info.columns(), info.partitions(), info.properties(), constraints, replaces);
  }
  since 4.1 */

  private StagedTable stage(
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map properties,
      List constraints,
      boolean replaces) {
    try {
      CatalogTable entry = replaces ? Entries.of(super.loadTable(identifier)) : null;
      if (!isLance(properties)) {
        return stageOther(identifier, columns, partitions, properties, entry);
      }
      if (replaces && !Entries.isLance(entry)) {
        throw Errors.unchecked(
            "table " + identifier + " is a table of another format: drop it before it becomes a"
                + " Lance table");
      }
      TableName path = replaces ? path(identifier, entry) : newPath(identifier, properties);
      if (!replaces) {
        if (paths.tableExists(path)) {
          throw exists(identifier, path);
        }
        register(identifier, columns, properties);
      }
      try {
        StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
        String mode = replaces ? "create_or_replace" : "create";
        Map staged = paths.stageAt(mode, path, schema, partitions, properties, constraints);
        return new NewSessionTable(
            paths, path, schema, properties, staged, this, identifier, !replaces);
      } catch (Exception e) {
        if (!replaces) {
          forget(identifier, path);
        }
        throw Errors.rethrow(e);
      }
    } catch (Exception e) {
      throw Errors.rethrow(e);
    }
  }

  /**
   * Removes the name of a table that was not created. Spark deletes the folder of a managed table
   * with its name: both stay if the folder has a table, of another client, or by a commit whose
   * answer was lost.
   */
  void forget(Identifier identifier, TableName path) {
    if (!paths.tableExists(path)) {
      super.dropTable(identifier);
    }
  }

  /** Does at once what Spark does one after the other in a catalog that stages no tables. */
  private StagedTable stageOther(
      Identifier identifier,
      Column[] columns,
      Transform[] partitions,
      Map properties,
      CatalogTable entry)
      throws Exception {
    if (entry != null) {
      if (Entries.isLance(entry)) {
        throw Errors.unchecked(
            "table " + identifier + " is a Lance table: drop it before it becomes a table of"
                + " another format");
      }
      super.dropTable(identifier);
    }
    super.createTable(identifier, columns, partitions, properties);
    return new OtherNewTable(this, identifier, loadTable(identifier));
  }

  // Procedures and statements that Spark does not know

  public UnboundProcedure loadProcedure(Identifier identifier) {
    return Procedures.load(paths, identifier);
  }

  public Identifier[] listProcedures(String[] namespace) {
    return Procedures.list(paths, namespace);
  }

  /** Returns the arguments of a call about names that a statement has. */
  Map ofStatement(String[] currentNamespace) {
    return paths.ofStatement(currentNamespace);
  }

  /** Returns the arguments of a call about a table, which must be a Lance table. */
  Map ofTable(Identifier identifier) {
    return paths.ofTable(pathOf(identifier));
  }

  /** Returns whether a name is one of a table of another format, which Spark's parser gets. */
  boolean isOther(List parts) {
    Identifier named = paths.named(parts);
    return named != null && tableExists(named) && !isLanceEntry(named);
  }

  private boolean isLanceEntry(Identifier identifier) {
    try {
      return Entries.isLance(Entries.of(super.loadTable(identifier)));
    } catch (NoSuchTableException e) {
      return false;
    }
  }

  /** Returns whether a name is one of a Lance table. */
  boolean isLance(List parts) {
    Identifier named = paths.named(parts);
    return named != null && isLanceEntry(named);
  }

  /** Returns the catalog of a session that has this class. */
  static LanceSessionCatalog of(CatalogManager manager) {
    return (LanceSessionCatalog) manager.v2SessionCatalog();
  }

  TableName pathOf(Identifier identifier) {
    try {
      CatalogTable entry = Entries.of(super.loadTable(identifier));
      if (Entries.isLance(entry)) {
        return path(identifier, entry);
      }
    } catch (NoSuchTableException e) {
      throw Errors.rethrow(e);
    }
    throw Errors.unchecked(
        "table " + new TableName(identifier.namespace(), identifier.name())
            + " is not a Lance table, or has OPTIONS: name a Lance table without options, or its"
            + " path");
  }

  // Names and paths

  private Table register(Identifier identifier, Column[] columns, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map kept = new HashMap();
    for (int i = 0; i < KEPT.length; i++) {
      if (properties.containsKey(KEPT[i])) {
        kept.put(KEPT[i], properties.get(KEPT[i]));
      }
    }
    kept.put(TableCatalog.PROP_PROVIDER, PythonCall.FORMAT);
    return super.createTable(identifier, columns, new Transform[0], kept);
  }

  private static boolean isLance(Map properties) {
    Object provider = properties.get(TableCatalog.PROP_PROVIDER);
    String format = provider == null ? SQLConf.get().defaultDataSourceName() : provider.toString();
    return PythonCall.FORMAT.equalsIgnoreCase(format);
  }

  /** Returns whether a statement has OPTIONS, such as a version, beside the path. */
  private static boolean hasOptions(Map properties) {
    Object[] names = properties.keySet().toArray();
    for (int i = 0; i < names.length; i++) {
      String name = names[i].toString();
      if (name.startsWith(TableCatalog.OPTION_PREFIX)
          && !name.equalsIgnoreCase(TableCatalog.OPTION_PREFIX + "path")) {
        return true;
      }
    }
    return false;
  }

  private static TableName path(Identifier identifier, CatalogTable entry) {
    boolean isManaged = CatalogTableType$.MODULE$.MANAGED().equals(entry.tableType());
    String path = CatalogUtils$.MODULE$.URIToString(entry.location());
    return new PathName(path, identifier, isManaged);
  }

  /** Returns the path of a new table: its LOCATION, or its folder in the warehouse. */
  private static TableName newPath(Identifier identifier, Map properties) {
    Object location = properties.get(TableCatalog.PROP_LOCATION);
    if (location != null) {
      return new PathName(location.toString(), identifier, false);
    }
    URI folder =
        SparkSession.active().sessionState().catalog().defaultTablePath(Entries.name(identifier));
    return new PathName(CatalogUtils$.MODULE$.URIToString(folder), identifier, true);
  }

  /** The path of a table as the name of a table, with the name that plans and errors show. */
  static class PathName extends TableName {
    private final Identifier shown;
    private final boolean isManaged;

    PathName(String path, Identifier shown, boolean isManaged) {
      this(new String[0], path, shown, isManaged);
    }

    PathName(String[] namespace, String name, Identifier shown, boolean isManaged) {
      super(namespace, name);
      this.shown = shown;
      this.isManaged = isManaged;
    }

    /** Python takes a table that is named by its path for an external one. */
    void describe(Map properties) {
      if (isManaged) {
        properties.remove(TableCatalog.PROP_EXTERNAL);
        properties.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
      }
    }

    public String toString() {
      return new TableName(shown.namespace(), shown.name()).toString();
    }
  }
}
