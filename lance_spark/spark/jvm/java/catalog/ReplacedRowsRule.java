package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Product;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Keeps what an INSERT says of the rows that it replaces among the options of its table: Spark does
 * not pass the values of PARTITION on to the write, and leaves REPLACE USING and REPLACE ON, which
 * Spark 4.3 parses, to connectors.
 */
public class ReplacedRowsRule extends Rule {
  /** The columns that PARTITION gives values, by name, each with the form of the condition. */
  private static final String STATIC = "static_partitions";

  /** Pairs of a column whose values choose rows, and whether null equals null. */
  private static final String REPLACE_BY = "replace_by";

  public TreeNode apply(TreeNode plan) {
    return (TreeNode) ((LogicalPlan) plan).resolveOperators(new Replacement());
  }

  static class Replacement extends Replacing {
    public boolean isDefinedAt(Object node) {
      if (!(node instanceof InsertIntoStatement)) {
        return false;
      }
      InsertIntoStatement insert = (InsertIntoStatement) node;
      DataSourceV2Relation target = target(insert);
      if (target == null) {
        return false;
      }
      if (criteria(insert) != null) {
        return query(insert).resolved();
      }
      return insert.overwrite()
          && !given(insert).isEmpty()
          && !target.options().containsKey(STATIC);
    }

    Object replaced(Object node) {
      InsertIntoStatement insert = (InsertIntoStatement) node;
      Product criteria = criteria(insert);
      try {
        if (criteria == null) {
          Object relation = withOption(target(insert), STATIC, conditions(insert));
          return SparkShims.copy(insert, new SparkField[] {SparkField.TABLE}, new Object[] {relation});
        }
        List pairs =
            isUsing(criteria)
                ? ofNames((Seq) SparkField.COLS.of(criteria))
                : ofCondition(insert, criteria);
        return SparkShims.copy(
            insert,
            new SparkField[] {SparkField.TABLE, SparkField.OVERWRITE, SparkField.REPLACE_CRITERIA_OPT},
            new Object[] {
              withOption(target(insert), REPLACE_BY, pairs), Boolean.TRUE, Option.empty()
            });
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private static DataSourceV2Relation target(InsertIntoStatement insert) {
    Object table = SparkField.TABLE.of(insert);
    return table instanceof DataSourceV2Relation
            && ((DataSourceV2Relation) table).table() instanceof NamedTable
        ? (DataSourceV2Relation) table
        : null;
  }

  private static LogicalPlan query(InsertIntoStatement insert) {
    return (LogicalPlan) SparkField.QUERY.of(insert);
  }

  private static Object withOption(DataSourceV2Relation relation, String name, Object value)
      throws ReflectiveOperationException {
    java.util.Map options = new HashMap(relation.options().asCaseSensitiveMap());
    options.put(name, Forms.json(value));
    return SparkShims.relationOver(
        relation, relation.table(), new CaseInsensitiveStringMap(options));
  }

  /** Returns the columns that PARTITION gives values. */
  private static List given(InsertIntoStatement insert) {
    List names = new ArrayList();
    for (Iterator i = ((Map) SparkField.PARTITION_SPEC.of(insert)).iterator(); i.hasNext(); ) {
      Tuple2 entry = (Tuple2) i.next();
      if (((Option) entry._2()).isDefined()) {
        names.add(entry._1());
      }
    }
    return names;
  }

  /** Returns the condition of each of these columns, by name; null in place of one without form. */
  private static java.util.Map conditions(InsertIntoStatement insert) {
    java.util.Map conditions = new LinkedHashMap();
    for (Iterator i = ((Map) SparkField.PARTITION_SPEC.of(insert)).iterator(); i.hasNext(); ) {
      Tuple2 entry = (Tuple2) i.next();
      if (((Option) entry._2()).isDefined()) {
        String name = (String) entry._1();
        conditions.put(name, condition(insert, name, (String) ((Option) entry._2()).get()));
      }
    }
    return conditions;
  }

  private static Object condition(InsertIntoStatement insert, String name, String value) {
    for (Iterator i = target(insert).output().iterator(); i.hasNext(); ) {
      AttributeReference column = (AttributeReference) i.next();
      if (same(column.name(), name)) {
        Option zone = Option.apply(SQLConf.get().sessionLocalTimeZone());
        Literal text = Literal$.MODULE$.create(value, DataTypes.StringType);
        Object typed =
            Cast$.MODULE$.apply(text, column.dataType(), zone, true).eval(InternalRow.empty());
        return Expressions.write(
            new EqualNullSafe(column, Literal$.MODULE$.create(typed, column.dataType())));
      }
    }
    return null;
  }

  /** Returns REPLACE USING or REPLACE ON, or null. */
  private static Product criteria(InsertIntoStatement insert) {
    if (!SparkField.REPLACE_CRITERIA_OPT.isOf(insert)) {
      return null;
    }
    Option criteria = (Option) SparkField.REPLACE_CRITERIA_OPT.of(insert);
    boolean compares =
        criteria.isDefined() && !SparkClasses.REPLACE_WHERE.equals(SparkClasses.of(criteria.get()));
    return compares ? (Product) criteria.get() : null;
  }

  private static boolean isUsing(Product criteria) {
    return SparkField.COLS.isOf(criteria);
  }

  /** Returns the columns of REPLACE USING, which compares by "=". */
  private static List ofNames(Seq names) {
    List pairs = new ArrayList();
    for (Iterator i = names.iterator(); i.hasNext(); ) {
      pairs.add(Arrays.asList(new Object[] {i.next(), Boolean.FALSE}));
    }
    return pairs;
  }

  /** Returns the columns of REPLACE ON, which must equal the values that are inserted into them. */
  private static List ofCondition(InsertIntoStatement insert, Product criteria) {
    List parts = new ArrayList();
    split((Expression) SparkField.COND.of(criteria), parts);
    List pairs = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      Expression part = (Expression) parts.get(i);
      boolean isEquality = part instanceof EqualTo || part instanceof EqualNullSafe;
      String column = null;
      if (isEquality) {
        Expression left = (Expression) part.children().apply(0);
        Expression right = (Expression) part.children().apply(1);
        column = column(insert, criteria, left, right);
        column = column == null ? column(insert, criteria, right, left) : column;
      }
      if (column == null) {
        throw Errors.unchecked(
            target(insert).table().name()
                + ": REPLACE ON takes equalities, joined by AND, of columns of the table and the"
                + " values that the query inserts into them, such as t.day = s.day, and not "
                + part.sql()
                + "; use REPLACE WHERE, or MERGE");
      }
      pairs.add(Arrays.asList(new Object[] {column, part instanceof EqualNullSafe}));
    }
    return pairs;
  }

  private static void split(Expression condition, List parts) {
    if (condition instanceof And) {
      split((Expression) condition.children().apply(0), parts);
      split((Expression) condition.children().apply(1), parts);
    } else {
      parts.add(condition);
    }
  }

  /**
   * Returns the column of the table that one side of an equality names, if the other side names the
   * value that the query inserts into it; null otherwise.
   */
  private static String column(
      InsertIntoStatement insert, Product criteria, Expression ofTable, Expression ofQuery) {
    String[] named = parts(ofTable);
    String[] value = parts(ofQuery);
    if (named == null || value == null || !isOfTable(insert, criteria, named)) {
      return null;
    }
    if (isOfTable(insert, criteria, value)) {
      return null;
    }
    int index = output(query(insert), value);
    String column = index < 0 ? null : inserted(insert, index);
    return column != null && same(column, named[named.length - 1]) ? column : null;
  }

  private static String[] parts(Expression expression) {
    if (!(expression instanceof UnresolvedAttribute)) {
      return null;
    }
    List parts = CollectionConverters.asJava(((UnresolvedAttribute) expression).nameParts());
    return (String[]) parts.toArray(new String[0]);
  }

  /** Returns whether a name begins with the alias of the table, or with its name. */
  private static boolean isOfTable(InsertIntoStatement insert, Product criteria, String[] parts) {
    Option alias = (Option) SparkField.TABLE_ALIAS_OPT.of(criteria);
    String text = target(insert).table().name();
    String name = alias.isDefined() ? (String) alias.get() : text.substring(text.lastIndexOf('.') + 1);
    return parts.length == 2 && same(parts[0], name);
  }

  /** Returns the position of a column of the query; -1 if it is not found, or not certain. */
  private static int output(LogicalPlan query, String[] parts) {
    String name = parts[parts.length - 1];
    int found = -1;
    List outputs = CollectionConverters.asJava(query.output());
    for (int i = 0; i < outputs.size(); i++) {
      if (same(((Attribute) outputs.get(i)).name(), name)) {
        if (found >= 0) {
          return -1;
        }
        found = i;
      }
    }
    if (found < 0 || parts.length == 1) {
      return found;
    }
    // The qualifier may name an input of the query, which has another column of this name.
    Attribute output = (Attribute) outputs.get(found);
    for (Iterator i = query.children().iterator(); i.hasNext(); ) {
      List inputs = CollectionConverters.asJava(((LogicalPlan) i.next()).output());
      for (int n = 0; n < inputs.size(); n++) {
        Attribute input = (Attribute) inputs.get(n);
        if (same(input.name(), name) && !input.exprId().equals(output.exprId())) {
          return -1;
        }
      }
    }
    return found;
  }

  /** Returns the column of the table into which a column of the query is inserted, or null. */
  private static String inserted(InsertIntoStatement insert, int index) {
    if (insert.byName()) {
      return ((Attribute) query(insert).output().apply(index)).name();
    }
    List given = CollectionConverters.asJava(insert.userSpecifiedCols());
    if (!given.isEmpty()) {
      return index < given.size() ? (String) given.get(index) : null;
    }
    List columns = CollectionConverters.asJava(target(insert).output());
    return index < columns.size() ? ((Attribute) columns.get(index)).name() : null;
  }

  private static boolean same(String name, String other) {
    return SQLConf.get().caseSensitiveAnalysis() ? name.equals(other) : name.equalsIgnoreCase(other);
  }
}
