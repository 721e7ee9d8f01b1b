package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;

/** The tables that Spark holds in its cache. */
final class CachedTables {
  private CachedTables() {}

  /**
   * Makes Spark read a table again that it holds in its cache, after a change that Spark does not
   * follow by itself: a procedure, and ALTER TABLE on Spark 4.1.
   *
   * @param parts the namespace and the name of the table
   */
  static void refresh(String catalog, List parts) {
    SparkSession session = SparkSession.active();
    if (session.sharedState().cacheManager().isEmpty()) {
      return;
    }
    StringBuilder name = new StringBuilder("`" + catalog + "`");
    for (int i = 0; i < parts.size(); i++) {
      name.append(".`").append(((String) parts.get(i)).replace("`", "``")).append('`');
    }
    try {
      session.catalog().refreshTable(name.toString());
    } catch (RuntimeException e) {
      // The change is made: it must not look as if it had failed.
      Log.once("The cache may have old rows of " + name + ", run REFRESH TABLE: " + e);
    }
  }

  static void refresh(String catalog, Identifier table) {
    List parts = new ArrayList(Arrays.asList(table.namespace()));
    parts.add(table.name());
    refresh(catalog, parts);
  }
}
