package org.lancespark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * DELETE, UPDATE and MERGE statements that name hidden columns, such as _rowid.
 *
 * <p>Those that assign them are refused: Spark drops these assignments without a word while it
 * analyses a statement.
 *
 * <p>Others get one more condition, 1 = 1L. Spark adds the hidden columns to the output of a table in
 * the pass of its analyzer after the one in which it finds their names. It rewrites the statement as
 * soon as all types fit, which may be before that, and then fails. Here the types do not fit in the
 * first pass.
 */
final class HiddenColumns {
  private static final Pattern NAMES = Pattern.compile("_row|_fragid", Pattern.CASE_INSENSITIVE);

  private final String statement;
  private final CatalogManager manager;

  private HiddenColumns(String statement, CatalogManager manager) {
    this.statement = statement;
    this.manager = manager;
  }

  /**
   * Checks a statement as it was parsed. A parser can only raise the error of a syntax.
   *
   * @param statement its text
   */
  static void check(String statement, LogicalPlan plan, CatalogManager manager) {
    new HiddenColumns(statement, manager).check(plan);
  }

  /** Returns a statement that Spark does not rewrite before the hidden columns are there. */
  static LogicalPlan readable(String statement, LogicalPlan plan, CatalogManager manager) {
    return NAMES.matcher(statement).find()
        ? (LogicalPlan) plan.transform(new Replacement(new HiddenColumns(statement, manager)))
        : plan;
  }

  static class Replacement extends Replacing {
    private final HiddenColumns columns;

    Replacement(HiddenColumns columns) {
      this.columns = columns;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof DeleteFromTable
          || node instanceof UpdateTable
          || node instanceof MergeIntoTable;
    }

    Object replaced(Object node) {
      Product statement = (Product) node;
      boolean isMerge = node instanceof MergeIntoTable;
      SparkField field = isMerge ? SparkField.MERGE_CONDITION : SparkField.CONDITION;
      SparkField target = isMerge ? SparkField.TARGET_TABLE : SparkField.TABLE;
      if (columns.tableOf((LogicalPlan) target.of(statement)) == null) {
        return node;
      }
      Object given = field.of(statement);
      try {
        return SparkShims.copy(
            statement, new SparkField[] {field}, new Object[] {withOneMore(given)});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    private static Object withOneMore(Object given) {
      Expression one = new Literal(Integer.valueOf(1), DataTypes.IntegerType);
      Expression more = new EqualTo(one, new Literal(Long.valueOf(1), DataTypes.LongType));
      if (!(given instanceof Option)) {
        return new And((Expression) given, more);
      }
      Option condition = (Option) given;
      return Option.apply(
          condition.isEmpty() ? more : new And((Expression) condition.get(), more));
    }
  }

  private void check(LogicalPlan plan) {
    if (plan instanceof UpdateTable) {
      checkAll(((UpdateTable) plan).assignments(), ((UpdateTable) plan).table());
    } else if (plan instanceof MergeIntoTable) {
      MergeIntoTable merge = (MergeIntoTable) plan;
      checkActions(merge.matchedActions(), merge.targetTable());
      checkActions(merge.notMatchedActions(), merge.targetTable());
      checkActions(merge.notMatchedBySourceActions(), merge.targetTable());
    } else {
      // The statement may stand after WITH.
      for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
        check((LogicalPlan) i.next());
      }
    }
  }

  private void checkActions(Seq actions, LogicalPlan target) {
    for (Iterator i = actions.iterator(); i.hasNext(); ) {
      Product action = (Product) i.next();
      if (SparkField.ASSIGNMENTS.isOf(action)) {
        checkAll((Seq) SparkField.ASSIGNMENTS.of(action), target);
      }
    }
  }

  private void checkAll(Seq assignments, LogicalPlan target) {
    for (Iterator i = assignments.iterator(); i.hasNext(); ) {
      Expression key = ((Assignment) i.next()).key();
      if (key instanceof UnresolvedAttribute) {
        List parts = CollectionConverters.asJava(((UnresolvedAttribute) key).nameParts());
        String name = (String) parts.get(parts.size() - 1);
        // Names of hidden columns start so; no other statement needs its table here.
        if (name.startsWith("_")) {
          check(key, name, parts, target);
        }
      }
    }
  }

  private void check(Expression key, String name, List parts, LogicalPlan target) {
    NamedTable table = tableOf(target);
    if (table == null) {
      return;
    }
    boolean exactly = SQLConf.get().caseSensitiveAnalysis();
    String[] columns = table.schema().fieldNames();
    for (int i = 0; i < columns.length; i++) {
      // A column, or a field of a struct.
      if (equal(columns[i], (String) parts.get(0), exactly)) {
        return;
      }
    }
    MetadataColumn[] hidden = table.metadataColumns();
    for (int i = 0; i < hidden.length; i++) {
      if (equal(hidden[i].name(), name, exactly)) {
        Map error = new HashMap();
        error.put("near", "'" + name + "'");
        error.put("message", ": a statement cannot assign the hidden columns of " + table.name());
        error.put("line", key.origin().line().get());
        error.put("position", key.origin().startPosition().get());
        Errors.raiseSyntax(statement, error);
      }
    }
  }

  private static boolean equal(String name, String other, boolean exactly) {
    return exactly ? name.equals(other) : name.equalsIgnoreCase(other);
  }

  /** Returns the table that a statement changes, or null if it is not one of this package. */
  NamedTable tableOf(LogicalPlan target) {
    LogicalPlan leaf = (LogicalPlan) target.collectLeaves().head();
    if (!(leaf instanceof UnresolvedRelation)) {
      return null;
    }
    Seq identifier = ((UnresolvedRelation) leaf).multipartIdentifier();
    List parts = CollectionConverters.asJava(identifier);
    int last = parts.size() - 1;
    String[] namespace = (String[]) parts.subList(0, last).toArray(new String[0]);
    Object catalog = manager.currentCatalog();
    if (last > 0 && manager.isCatalogRegistered(namespace[0])) {
      catalog = manager.catalog(namespace[0]);
      namespace = (String[]) Arrays.copyOfRange(namespace, 1, last);
    } else if (last == 0) {
      namespace = manager.currentNamespace();
    }
    if (!(catalog instanceof LanceCatalog) && !(catalog instanceof LanceSessionCatalog)) {
      return null;
    }
    try {
      TableName name = new TableName(namespace, (String) parts.get(last));
      Object table = ((TableCatalog) catalog).loadTable(name);
      return table instanceof NamedTable ? (NamedTable) table : null;
    } catch (Exception e) {
      // Spark raises the error about the table.
      return null;
    }
  }
}
