package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.jdk.javaapi.CollectionConverters;

/** The tables of the session's catalog by their paths: the metastore knows the names. */
public class SessionPaths extends LanceCatalog {
  private final LanceSessionCatalog names;

  SessionPaths(LanceSessionCatalog names) {
    this.names = names;
  }

  /** Returns the name that a text means, or null for a path. */
  Identifier entry(String text) {
    if (text == null || text.indexOf('/') >= 0 && text.indexOf('`') < 0) {
      return null;
    }
    List parts = new ArrayList();
    try {
      ParserInterface parser = SparkSession.active().sessionState().sqlParser();
      parts.addAll(CollectionConverters.asJava(parser.parseMultipartIdentifier(text)));
    } catch (ParseException e) {
      if (text.indexOf('`') >= 0) {
        throw Errors.unchecked("table => '" + text + "' is not the name of a table, and not a path");
      }
      // As in other catalogs of this package, such a name needs no backticks.
      parts.addAll(Arrays.asList(text.trim().split("\\s*\\.\\s*")));
    }
    return named(parts);
  }

  /** Returns the name that parts mean, or null for a path. */
  Identifier named(List parts) {
    boolean hasCatalog = parts.size() > 1 && name().equals(parts.get(0));
    List given = hasCatalog ? parts.subList(1, parts.size()) : parts;
    String last = (String) given.get(given.size() - 1);
    if (given.size() > 1) {
      List namespace = given.subList(0, given.size() - 1);
      return new TableName((String[]) namespace.toArray(new String[0]), last);
    }
    if (last.indexOf('/') >= 0) {
      return null;
    }
    CatalogManager manager = SparkSession.active().sessionState().catalogManager();
    boolean isCurrent = name().equals(manager.currentCatalog().name());
    return new TableName(isCurrent ? manager.currentNamespace() : names.defaultNamespace(), last);
  }

  TableName path(Identifier entry) {
    return names.pathOf(entry);
  }

  /** Makes Spark read a table again; it holds no table by its path. */
  void refresh(Identifier entry, List table) {
    if (entry != null) {
      CachedTables.refresh(name(), entry);
    }
  }
}
