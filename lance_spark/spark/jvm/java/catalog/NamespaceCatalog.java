package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The namespaces of a catalog of Lance tables, and how its classes call Python. Each method is one
 * call (lance_spark/spark/catalog), which decides; this class translates.
 */
public abstract class NamespaceCatalog implements SupportsNamespaces {
  String name;
  private Map options;
  private String warehouse;
  private String[] defaultNamespace = new String[0];

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.options = new HashMap(options.asCaseSensitiveMap());
    // Spark resolves a view with the settings of the session that made the view.
    warehouse = SparkSession.active().sessionState().conf().warehousePath();
    // A session that has the catalog has the rules that its tables need.
    new Extension().apply(SparkSession.active().extensions());
    Extension.addTo(SparkSession.active());
    if (Boolean.parseBoolean((String) this.options.get("single_level_ns"))) {
      defaultNamespace = new String[] {"default"};
    }
  }

  public String name() {
    return name;
  }

  public String[] defaultNamespace() {
    return defaultNamespace;
  }

  // Calls

  Map arguments() {
    Map arguments = new LinkedHashMap();
    arguments.put("catalog", options);
    arguments.put("warehouse", warehouse);
    return arguments;
  }

  Map ofTable(Identifier identifier) {
    Map arguments = arguments();
    arguments.put("namespace", Arrays.asList(identifier.namespace()));
    arguments.put("name", identifier.name());
    return arguments;
  }

  Map ofNamespace(String[] namespace) {
    Map arguments = arguments();
    arguments.put("namespace", Arrays.asList(namespace));
    return arguments;
  }

  static Map call(String function, Map arguments, Identifier table) {
    return call(function, arguments, table, table.namespace());
  }

  static Map call(String function, Map arguments, String[] namespace) {
    return call(function, arguments, null, namespace);
  }

  static Map call(String function, Map arguments, Identifier table, String[] namespace) {
    Map reply = PythonCall.reply(function, arguments);
    if (reply.containsKey("error")) {
      Errors.raise((Map) reply.get("error"), table, namespace);
    }
    return reply;
  }

  String display(Identifier identifier) {
    boolean isShown = identifier instanceof TableName;
    return name
        + "."
        + (isShown ? identifier : new TableName(identifier.namespace(), identifier.name()));
  }

  // Namespaces

  public String[][] listNamespaces() {
    return children(new String[0]);
  }

  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    return children(parent);
  }

  private String[][] children(String[] parent) {
    List names = (List) call("list_namespaces", ofNamespace(parent), parent).get("names");
    String[][] namespaces = new String[names.size()][];
    for (int i = 0; i < namespaces.length; i++) {
      namespaces[i] = (String[]) Arrays.copyOf(parent, parent.length + 1);
      namespaces[i][parent.length] = (String) names.get(i);
    }
    return namespaces;
  }

  public boolean namespaceExists(String[] namespace) {
    Map reply = call("namespace_exists", ofNamespace(namespace), namespace);
    return Boolean.TRUE.equals(reply.get("exists"));
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return (Map) call("load_namespace", ofNamespace(namespace), namespace).get("properties");
  }

  public void createNamespace(String[] namespace, Map properties)
      throws NamespaceAlreadyExistsException {
    Map arguments = ofNamespace(namespace);
    arguments.put("properties", properties);
    call("create_namespace", arguments, namespace);
  }

  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    call("alter_namespace", ofNamespace(namespace), namespace);
  }

  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    Map arguments = ofNamespace(namespace);
    arguments.put("cascade", Boolean.valueOf(cascade));
    return Boolean.TRUE.equals(call("drop_namespace", arguments, namespace).get("dropped"));
  }

  // Arguments of procedures and statements

  /** Returns the arguments of the call of a procedure, without the values of its parameters. */
  Map ofProcedure(String procedure) {
    CatalogManager manager = SparkSession.active().sessionState().catalogManager();
    boolean isCurrent = name.equals(manager.currentCatalog().name());
    Map arguments = ofStatement(isCurrent ? manager.currentNamespace() : defaultNamespace);
    arguments.put("procedure", procedure);
    return arguments;
  }

  /** Returns the arguments of a call about names that a statement has. */
  Map ofStatement(String[] currentNamespace) {
    Map arguments = arguments();
    arguments.put("catalog_name", name);
    arguments.put("current_namespace", Arrays.asList(currentNamespace));
    return arguments;
  }
}
