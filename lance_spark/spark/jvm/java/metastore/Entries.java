package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType$;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Entries of the metastore. */
final class Entries {
  private static final Class[] DELETE = {String[].class, Boolean.class};
  private static final Class[] ADD = {
    String[].class,
    DataType.class,
    boolean.class,
    String.class,
    TableChange.ColumnPosition.class,
    ColumnDefaultValue.class
  };
  private static final Class[] SET = {String.class, String.class};

  private Entries() {}

  /** Returns the entry of a table of Spark's own catalog, or null. */
  static CatalogTable of(Table table) {
    return table instanceof V1Table ? ((V1Table) table).v1Table() : null;
  }

  static TableIdentifier name(Identifier identifier) {
    return new TableIdentifier(identifier.name(), Option.apply(identifier.namespace()[0]));
  }

  /**
   * Returns whether an entry is a Lance table. One that was created with options, such as a version,
   * stays with Spark, which passes the options on.
   */
  static boolean isLance(CatalogTable entry) {
    if (entry == null
        || entry.provider().isEmpty()
        || !PythonCall.FORMAT.equalsIgnoreCase((String) entry.provider().get())
        || entry.storage().locationUri().isEmpty()) {
      return false;
    }
    Map options = new HashMap(CollectionConverters.asJava(entry.storage().properties()));
    options.remove("path");
    options.remove("serialization.format");
    return options.isEmpty();
  }

  /** Returns the changes by which an entry gets the columns and the comment of its table. */
  static List changes(CatalogTable entry, Table table) {
    List changes = new ArrayList();
    Column[] columns = table.columns();
    if (!CatalogV2Util.v2ColumnsToStructType(columns).equals(entry.schema())) {
      String[] former = entry.schema().fieldNames();
      for (int i = 0; i < former.length; i++) {
        String[] name = {former[i]};
        changes.add(change("deleteColumn", DELETE, new Object[] {name, Boolean.FALSE}));
      }
      for (int i = 0; i < columns.length; i++) {
        Column column = columns[i];
        String[] name = {column.name()};
        changes.add(added(name, column.dataType(), column.nullable(), column.comment(), null));
      }
    }
    Object comment = table.properties().get(TableCatalog.PROP_COMMENT);
    boolean isNew = comment != null && !Option.apply(comment).equals(entry.comment());
    return isNew ? with(changes, comment) : withComment(entry, changes);
  }

  /**
   * Returns those of the changes of a table that its entry follows: of columns and the comment. Spark
   * refuses defaults in entries of other formats than its own.
   */
  static List followed(CatalogTable entry, TableChange[] changes) {
    boolean setsComment = false;
    List followed = new ArrayList();
    for (int i = 0; i < changes.length; i++) {
      if (changes[i] instanceof TableChange.AddColumn) {
        TableChange.AddColumn add = (TableChange.AddColumn) changes[i];
        followed.add(
            added(
                add.fieldNames(), add.dataType(), add.isNullable(), add.comment(), add.position()));
      } else if (changes[i] instanceof TableChange.ColumnChange
          && !(changes[i] instanceof TableChange.UpdateColumnDefaultValue)) {
        followed.add(changes[i]);
      } else if (isOfComment(changes[i])) {
        followed.add(changes[i]);
        setsComment = true;
      }
    }
    return setsComment ? followed : withComment(entry, followed);
  }

  /** Spark 4.0 drops the comment of an entry whose columns change. */
  private static List withComment(CatalogTable entry, List changes) {
    boolean isKept = changes.isEmpty() || entry.comment().isEmpty();
    return isKept ? changes : with(changes, entry.comment().get());
  }

  private static List with(List changes, Object comment) {
    changes.add(change("setProperty", SET, new Object[] {TableCatalog.PROP_COMMENT, comment}));
    return changes;
  }

  private static boolean isOfComment(TableChange change) {
    if (change instanceof TableChange.SetProperty) {
      return TableCatalog.PROP_COMMENT.equals(((TableChange.SetProperty) change).property());
    }
    return change instanceof TableChange.RemoveProperty
        && TableCatalog.PROP_COMMENT.equals(((TableChange.RemoveProperty) change).property());
  }

  private static Object added(
      String[] name, DataType type, boolean isNullable, String comment, Object position) {
    Object[] values = {name, type, Boolean.valueOf(isNullable), comment, position, null};
    return change("addColumn", ADD, values);
  }

  /** Janino cannot call the static methods of an interface. */
  private static Object change(String name, Class[] types, Object[] values) {
    try {
      return TableChange.class.getMethod(name, types).invoke(null, values);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * Returns a table of another format as Spark's own catalog returns it if it is not extended. The
   * extended one leaves the data source to this class.
   */
  static Table resolved(Table table, CatalogTable entry) {
    if (entry == null
        || entry.provider().isEmpty()
        || entry.tableType().equals(CatalogTableType$.MODULE$.VIEW())
        || entry.bucketSpec().isDefined()) {
      return table;
    }
    String format = (String) entry.provider().get();
    Option found = DataSourceV2Utils$.MODULE$.getTableProvider(format, SQLConf.get());
    if (found.isEmpty()) {
      return table;
    }
    TableProvider provider = (TableProvider) found.get();
    Map options = new HashMap(CollectionConverters.asJava(entry.properties()));
    if (entry.storage().locationUri().isDefined()) {
      options.put("path", CatalogUtils$.MODULE$.URIToString(entry.location()));
    }
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    if (!provider.supportsExternalMetadata()) {
      return provider.getTable(
          provider.inferSchema(given),
          provider.inferPartitioning(given),
          given.asCaseSensitiveMap());
    }
    List names = CollectionConverters.asJava(entry.partitionColumnNames());
    Transform[] partitions = new Transform[names.size()];
    for (int i = 0; i < partitions.length; i++) {
      partitions[i] = Expressions.identity((String) names.get(i));
    }
    return provider.getTable(entry.schema(), partitions, given.asCaseSensitiveMap());
  }
}
