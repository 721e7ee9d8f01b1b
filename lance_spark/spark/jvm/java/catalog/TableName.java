package org.lancespark;

import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;

/** An identifier. The compiler cannot call Identifier.of, a static method of an interface. */
public class TableName implements Identifier {
  private final String[] namespace;
  private final String name;

  TableName(String[] namespace, String name) {
    this.namespace = namespace;
    this.name = name;
  }

  public String[] namespace() {
    return namespace;
  }

  public String name() {
    return name;
  }

  /** Adds to the properties of a table what the catalog of its name knows of it. */
  void describe(Map properties) {}

  public boolean equals(Object other) {
    return other instanceof Identifier
        && Arrays.equals(((Identifier) other).namespace(), namespace)
        && ((Identifier) other).name().equals(name);
  }

  public int hashCode() {
    return Arrays.hashCode(namespace) * 31 + name.hashCode();
  }

  public String toString() {
    return namespace.length == 0 ? name : String.join(".", namespace) + "." + name;
  }
}
