package org.lancespark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType$;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Entries of the metastore. */
final class Entries {
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
