package org.lancespark;

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Refuses new Lance tables in a catalog of the session that is not extended by this package. Spark
 * would make a name, and all later statements on the table would fail. A name for an existing table,
 * which can be read, needs no columns.
 */
public class NewTableRule extends Rule {
  private static final String SESSION_CATALOG = "spark_catalog";
  private static final String SETTING = "spark.sql.catalog.spark_catalog";

  public TreeNode apply(TreeNode plan) {
    if (plan instanceof CreateTable) {
      CreateTable create = (CreateTable) plan;
      boolean isNew = !create.columns().isEmpty() || !hasLocation(create.tableSpec());
      check(create.name(), create.tableSpec(), isNew);
    } else if (plan instanceof ReplaceTable) {
      check(((ReplaceTable) plan).name(), ((ReplaceTable) plan).tableSpec(), true);
    } else if (plan instanceof CreateTableAsSelect) {
      CreateTableAsSelect create = (CreateTableAsSelect) plan;
      check(create.name(), create.tableSpec(), true);
    } else if (plan instanceof ReplaceTableAsSelect) {
      ReplaceTableAsSelect replace = (ReplaceTableAsSelect) plan;
      check(replace.name(), replace.tableSpec(), true);
    }
    return plan;
  }

  private static void check(LogicalPlan name, Object specification, boolean isNew) {
    if (!isNew || !isLance(specification) || !(name instanceof ResolvedIdentifier)) {
      return;
    }
    CatalogPlugin catalog = ((ResolvedIdentifier) name).catalog();
    if (!SESSION_CATALOG.equals(catalog.name()) || catalog instanceof LanceSessionCatalog) {
      return;
    }
    Identifier table = ((ResolvedIdentifier) name).identifier();
    String extended = SQLConf.get().getConfString(SETTING, "builtin");
    throw Errors.unchecked(
        "table "
            + new TableName(table.namespace(), table.name())
            + ": the catalog of the session cannot have Lance tables, because "
            + ("builtin".equals(extended)
                ? "it is not extended: call lance_spark.enable(spark, session_catalog=True), or set "
                    + SETTING + "=" + LanceSessionCatalog.class.getName()
                : extended + " extends it")
            + (", or name a table of a catalog of Lance tables, such as lance." + table.name()));
  }

  private static boolean isLance(Object specification) {
    if (!(specification instanceof TableSpec)) {
      return false;
    }
    scala.Option provider = ((TableSpec) specification).provider();
    String format =
        provider.isEmpty() ? SQLConf.get().defaultDataSourceName() : (String) provider.get();
    return PythonCall.FORMAT.equalsIgnoreCase(format);
  }

  private static boolean hasLocation(Object specification) {
    TableSpec table = (TableSpec) specification;
    return table.location().isDefined() || table.options().contains("path");
  }
}
