package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;

/** The procedures of every catalog, as Python describes them: CALL lance.system.NAME(...). */
final class Procedures {
  private static final String[] NAMESPACE = new String[] {"system"};

  /** The descriptions. They are the same for all catalogs and sessions. */
  private static volatile List descriptions;

  private Procedures() {}

  static LanceProcedure load(LanceCatalog catalog, Identifier identifier) {
    String[] namespace = identifier.namespace();
    if (namespace.length == 1 && NAMESPACE[0].equals(namespace[0])) {
      for (Iterator i = all().iterator(); i.hasNext(); ) {
        Map description = (Map) i.next();
        if (isNamed(description, identifier.name())) {
          return new LanceProcedure(catalog, description);
        }
      }
    }
    throw Errors.unchecked(
        "procedure "
            + new TableName(namespace, identifier.name())
            + " was not found; the procedures of catalog "
            + catalog.name()
            + " are in its namespace system: "
            + String.join(", ", names(catalog)));
  }

  private static boolean isNamed(Map description, String name) {
    List names = new ArrayList((List) description.get("aliases"));
    names.add(description.get("name"));
    for (int i = 0; i < names.size(); i++) {
      if (name.equalsIgnoreCase((String) names.get(i))) {
        return true;
      }
    }
    return false;
  }

  static Identifier[] list(LanceCatalog catalog, String[] namespace) {
    if (namespace.length > 1 || namespace.length == 1 && !NAMESPACE[0].equals(namespace[0])) {
      return new Identifier[0];
    }
    List names = names(catalog);
    Identifier[] identifiers = new Identifier[names.size()];
    for (int i = 0; i < identifiers.length; i++) {
      identifiers[i] = new TableName(NAMESPACE, (String) names.get(i));
    }
    return identifiers;
  }

  /** Returns the names of what works: no procedure names tables that a metastore names. */
  private static List names(LanceCatalog catalog) {
    List names = new ArrayList();
    for (Iterator i = all().iterator(); i.hasNext(); ) {
      Map description = (Map) i.next();
      if (Boolean.TRUE.equals(description.get("opens")) || !(catalog instanceof SessionPaths)) {
        names.add(description.get("name"));
      }
    }
    return names;
  }

  private static List all() {
    if (descriptions == null) {
      descriptions =
          (List) PythonCall.result("list_procedures", Collections.EMPTY_MAP).get("procedures");
    }
    return descriptions;
  }
}
