package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/* since 4.1
import java.util.Arrays;
import org.apache.spark.sql.catalyst.analysis.ResolveTableConstraints;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.CheckInvariant;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.constraints.Check;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.catalog.constraints.Unique;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
since 4.1 */

/**
 * Constraints of tables, which Spark has since 4.1: as Python describes them, and as Spark has them.
 * Spark checks the rows of a write against the conditions that Table.constraints returns. Python's
 * commit is told which ones the plan checks, and refuses rows that were not checked.
 */
final class Constraints {
  /** The option of a write that has the conditions which its plan checks. */
  private static final String OPTION = "checked_constraints";

  private Constraints() {}

  /** Returns a write with an option for the conditions that the plan of the statement checks. */
  static LogicalWriteInfo checked(LogicalWriteInfo info) {
    return checked(info, checked());
  }

  /**
   * Returns a write with an option for conditions that are checked.
   *
   * @param conditions the texts of the conditions by the names of the constraints
   */
  static LogicalWriteInfo checked(LogicalWriteInfo info, Map conditions) {
    if (conditions.isEmpty() && !info.options().containsKey(OPTION)) {
      return info;
    }
    Map options = new HashMap(info.options().asCaseSensitiveMap());
    options.put(OPTION, Forms.json(conditions));
    return new NamedWriteInfo(info, new CaseInsensitiveStringMap(options), info.schema());
  }

  /**
   * Returns the conditions that the statement which this thread runs checks: their texts by the
   * names of the constraints. The plan says it, because the constraints of the table can be others
   * by now.
   */
  static Map checked() {
    Map conditions = new LinkedHashMap();
    /* since 4.1
    QueryExecution execution = RowChangeRule.running();
    if (execution != null) {
      addChecked(execution.analyzed(), conditions);
    }
    since 4.1 */
    return conditions;
  }

  /**
   * Returns the same, and the conditions that a query checks: a thread that explains a statement
   * does not run it.
   */
  static Map checkedBy(LogicalPlan query) {
    Map conditions = checked();
    /* since 4.1
    addChecked(query, conditions);
    since 4.1 */
    return conditions;
  }

  /* since 4.1
  private static void addChecked(LogicalPlan plan, Map conditions) {
    if (plan instanceof Filter) {
      addChecked(((Filter) plan).condition(), conditions);
    }
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      addChecked((LogicalPlan) i.next(), conditions);
    }
  }

  private static void addChecked(Expression e, Map conditions) {
    if (e instanceof CheckInvariant) {
      conditions.put(((CheckInvariant) e).constraintName(), ((CheckInvariant) e).predicateSql());
      return;
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      addChecked((Expression) i.next(), conditions);
    }
  }

  // Returns the rows of a query that is written to a table, checked as Spark checks those of an
  // INSERT; null if the table has no conditions. The analyzer resolves the columns.
  static LogicalPlan checked(LogicalPlan query, Table table) {
    if (table.constraints() == null || table.constraints().length == 0) {
      return null;
    }
    Map known = new LinkedHashMap();
    addChecked(query, known);
    if (!known.isEmpty()) {
      return null;
    }
    try {
      Option none = Option.empty();
      Object relation =
          SparkShims.copy(
              DataSourceV2Relation.create(table, none, none),
              new SparkField[] {SparkField.OUTPUT},
              new Object[] {query.output()});
      LogicalPlan write = SparkRelease.append(relation, query);
      Object checks =
          new ResolveTableConstraints(SparkSession.active().sessionState().catalogManager())
              .apply(write);
      return (LogicalPlan) SparkField.QUERY.of(checks);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  // Returns the conditions of a table: their texts by the names of the constraints.
  static Map conditions(Table table) {
    Map conditions = new LinkedHashMap();
    Constraint[] all = table.constraints();
    for (int i = 0; all != null && i < all.length; i++) {
      if (all[i] instanceof Check) {
        conditions.put(all[i].name(), ((Check) all[i]).predicateSql());
      }
    }
    return conditions;
  }

  // Returns the constraints that Python describes. A primary key can lack a name.
  static Constraint[] of(List described, String keyName) {
    List constraints = new ArrayList();
    for (int i = 0; described != null && i < described.size(); i++) {
      Map one = (Map) described.get(i);
      constraints.add(
          one.get("check") != null
              ? SparkShims.check(
                  (String) one.get("name"),
                  (String) one.get("check"),
                  Boolean.TRUE.equals(one.get("rely")))
              : SparkShims.primaryKey(
                  one.get("name") == null ? keyName : (String) one.get("name"),
                  (List) one.get("columns")));
    }
    return (Constraint[]) constraints.toArray(new Constraint[0]);
  }

  // Returns constraints of a statement as Python reads them.
  static List described(Constraint[] constraints) {
    List described = new ArrayList();
    for (int i = 0; i < constraints.length; i++) {
      described.add(described(constraints[i]));
    }
    return described;
  }

  private static Map described(Constraint constraint) {
    Map described = new LinkedHashMap();
    described.put("name", constraint.name());
    described.put("kind", kind(constraint));
    described.put("rely", Boolean.valueOf(constraint.rely()));
    List columns = new ArrayList();
    if (constraint instanceof Check) {
      String condition = ((Check) constraint).predicateSql();
      described.put("check", condition);
      try {
        addNames(SparkSession.active().sessionState().sqlParser().parseExpression(condition), columns);
      } catch (Exception e) {
        throw Errors.rethrow(e);
      }
    } else if (constraint instanceof PrimaryKey) {
      NamedReference[] references = ((PrimaryKey) constraint).columns();
      for (int i = 0; i < references.length; i++) {
        columns.add(Arrays.asList(references[i].fieldNames()));
      }
    }
    described.put("columns", columns);
    return described;
  }

  private static String kind(Constraint constraint) {
    if (constraint instanceof Check) {
      return "Check";
    }
    if (constraint instanceof PrimaryKey) {
      return "PrimaryKey";
    }
    return constraint instanceof Unique ? "Unique" : "ForeignKey";
  }

  // Adds the names of columns in a condition, each with its parts.
  private static void addNames(Expression e, List names) {
    if (e instanceof UnresolvedAttribute) {
      names.add(new ArrayList(CollectionConverters.asJava(((UnresolvedAttribute) e).nameParts())));
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      addNames((Expression) i.next(), names);
    }
  }

  // Adds a change of the constraints of a table to its form.
  static void addChange(Map form, TableChange change) {
    if (change instanceof TableChange.AddConstraint) {
      form.put("constraint", described(((TableChange.AddConstraint) change).constraint()));
      NamedTable table = checkedTable();
      if (table != null) {
        form.put("version", table.version);
        form.put("identity", table.identity);
      }
    } else if (change instanceof TableChange.DropConstraint) {
      form.put("name", ((TableChange.DropConstraint) change).name());
      form.put("if_exists", Boolean.valueOf(((TableChange.DropConstraint) change).ifExists()));
      NamedTable table = checkedTable();
      form.put("key_name", table == null ? "" : table.keyName());
    }
  }

  // Returns the table that the statement of this thread has loaded, and whose rows it has checked.
  private static NamedTable checkedTable() {
    QueryExecution execution = RowChangeRule.running();
    for (Iterator i =
            execution == null ? null : execution.analyzed().collectLeaves().iterator();
        i != null && i.hasNext(); ) {
      Object leaf = i.next();
      Object table = null;
      if (leaf instanceof ResolvedTable) {
        table = ((ResolvedTable) leaf).table();
      } else if (leaf instanceof DataSourceV2Relation) {
        table = ((DataSourceV2Relation) leaf).table();
      }
      if (table instanceof NamedTable) {
        return (NamedTable) table;
      }
    }
    return null;
  }
  since 4.1 */

  /** Adds the capability of catalogs to have constraints. */
  static void addCapability(Set capabilities) {
    /* since 4.1
    capabilities.add(TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
    since 4.1 */
  }
}
