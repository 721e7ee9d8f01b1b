package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.ColumnPruning$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The columns that an UPDATE or MERGE assigns. Spark's query returns all columns of an updated row.
 * Here a column that keeps its value becomes a constant, so that it is neither read nor sent, and
 * the writer takes its value from the old row.
 *
 * <p>The number of the operation says which columns a row has: 2 (an update) + 16 * the index of
 * the list of assigned columns.
 */
final class AssignedColumns {
  private static final int UPDATE = 2;
  private static final int STEP = 16;
  private static final int MAX_PASSES = 20;

  /** The query, without the columns that nothing needs any more. */
  LogicalPlan query;

  /** Lists of column names: what the rows of each kind of update have. */
  final List given = new ArrayList();

  private final List columns;
  private final List ordinals;

  /** Columns of the table by the ids of the attributes that its scan returns. */
  private final Map scanned = new HashMap();

  private final NamedTable table;

  private AssignedColumns(NamedTable table, List columns, List ordinals) {
    this.table = table;
    this.columns = columns;
    this.ordinals = ordinals;
  }

  static AssignedColumns of(LogicalPlan query, RowChange change, List columns, List ordinals)
      throws ReflectiveOperationException {
    AssignedColumns assigned = new AssignedColumns(change.table, columns, ordinals);
    assigned.query = query;
    for (Iterator i = query.collectLeaves().iterator(); i.hasNext(); ) {
      LogicalPlan leaf = (LogicalPlan) i.next();
      if (RowChangeRule.changeOf(leaf) == change) {
        for (Iterator a = leaf.output().iterator(); a.hasNext(); ) {
          Attribute attribute = (Attribute) a.next();
          assigned.scanned.put(attribute.exprId(), attribute.name());
        }
      }
    }
    if (columns.isEmpty() || assigned.scanned.isEmpty()) {
      return assigned;
    }
    if (query instanceof Project) {
      assigned.query = assigned.ofProject((Project) query);
    } else if (query instanceof MergeRows) {
      assigned.query = assigned.ofMerge((MergeRows) query);
    }
    assigned.query = pruned(assigned.query);
    return assigned;
  }

  /**
   * Returns the row columns, such as _rowaddr, by whose values the statement chooses rows or
   * computes others.
   */
  List rowColumns() {
    Set names = new TreeSet();
    addRowColumns(query, names);
    return new ArrayList(names);
  }

  private void addRowColumns(LogicalPlan plan, Set names) {
    if (plan.children().isEmpty()) {
      // The expressions of a relation are its columns.
      return;
    }
    for (Iterator i = plan.expressions().iterator(); i.hasNext(); ) {
      Expression expression = (Expression) i.next();
      boolean merges = plan instanceof MergeRows;
      // A projection or an instruction of a merge passes the address of the row on.
      if (merges && SparkField.OUTPUT.isOf(expression)) {
        for (Iterator c = expression.children().iterator(); c.hasNext(); ) {
          addRowColumns((Expression) c.next(), names);
        }
      } else if (plan instanceof Project || merges) {
        addRowColumns(expression, names);
      } else {
        addReferences(expression, names);
      }
    }
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      addRowColumns((LogicalPlan) i.next(), names);
    }
  }

  private void addRowColumns(Expression expression, Set names) {
    if (!(inner(expression) instanceof AttributeReference)) {
      addReferences(expression, names);
    }
  }

  private void addReferences(Expression expression, Set names) {
    for (Iterator i = expression.references().iterator(); i.hasNext(); ) {
      Object name = scanned.get(((Attribute) i.next()).exprId());
      if (name != null && table.schema().getFieldIndex((String) name).isEmpty()) {
        names.add(name);
      }
    }
  }

  private LogicalPlan ofProject(Project project) throws ReflectiveOperationException {
    List values = CollectionConverters.asJava(project.projectList());
    List changed = assigned(values, null);
    return changed == null
        ? project
        : (LogicalPlan) SparkShims.copy(project, new SparkField[] {SparkField.PROJECT_LIST}, new Object[] {seq(changed)});
  }

  private LogicalPlan ofMerge(MergeRows merge) throws ReflectiveOperationException {
    List output = CollectionConverters.asJava(merge.output());
    SparkField[] names = {
      SparkField.MATCHED_INSTRUCTIONS,
      SparkField.NOT_MATCHED_INSTRUCTIONS,
      SparkField.NOT_MATCHED_BY_SOURCE_INSTRUCTIONS
    };
    Object[] replaced = new Object[names.length];
    for (int n = 0; n < names.length; n++) {
      List instructions = new ArrayList();
      for (Iterator i = ((Seq) names[n].of(merge)).iterator(); i.hasNext(); ) {
        Product instruction = (Product) i.next();
        List changed = null;
        if (SparkField.OUTPUT.isOf(instruction)) {
          List values = CollectionConverters.asJava((Seq) SparkField.OUTPUT.of(instruction));
          if (values.size() > output.size()) {
            // If the statement names a row column, Spark gives all row columns once more, and
            // fails on that.
            changed = values.subList(0, output.size());
            values = changed;
          }
          List assigned = assigned(values, output);
          changed = assigned == null ? changed : assigned;
        }
        instructions.add(
            changed == null
                ? instruction
                : SparkShims.copy(instruction, new SparkField[] {SparkField.OUTPUT}, new Object[] {seq(changed)}));
      }
      replaced[n] = seq(instructions);
    }
    return (LogicalPlan) SparkShims.copy(merge, names, replaced);
  }

  /**
   * Returns the values of an update without those that stay; null for rows of another operation.
   *
   * @param output attributes of the query, whose nullability is fixed; null if it follows the values
   */
  private List assigned(List values, List output) throws ReflectiveOperationException {
    Expression operation = inner((Expression) values.get(0));
    if (!(operation instanceof Literal)
        || !Integer.valueOf(UPDATE).equals(((Literal) operation).value())) {
      return null;
    }
    List changed = new ArrayList(values);
    List names = new ArrayList();
    for (int c = 0; c < columns.size(); c++) {
      int ordinal = ((Integer) ordinals.get(c)).intValue();
      Expression value = (Expression) values.get(ordinal);
      if (!columns.get(c).equals(columnOf(inner(value)))) {
        names.add(columns.get(c));
        continue;
      }
      boolean nullable = output == null || ((Attribute) output.get(ordinal)).nullable();
      Expression constant =
          nullable ? new Literal(null, value.dataType()) : SparkShims.defaultOf(value.dataType());
      changed.set(ordinal, named(value, constant));
    }
    int index = given.indexOf(names);
    if (index < 0) {
      index = given.size();
      given.add(names);
    }
    Literal number = new Literal(Integer.valueOf(UPDATE + STEP * index), DataTypes.IntegerType);
    changed.set(0, named((Expression) values.get(0), number));
    return changed;
  }

  /** Returns the column of the table that an expression is, or null. */
  private Object columnOf(Expression expression) {
    return expression instanceof AttributeReference
        ? scanned.get(((AttributeReference) expression).exprId())
        : null;
  }

  private static Expression inner(Expression expression) {
    return expression instanceof Alias ? ((Alias) expression).child() : expression;
  }

  /** Returns an expression in the place of another one, under its name if it has one. */
  private static Expression named(Expression original, Expression expression) {
    return original instanceof NamedExpression
        ? alias(expression, ((NamedExpression) original).name())
        : expression;
  }

  /** Returns an expression as a new column of a name. */
  static Alias alias(Expression expression, String name) {
    return new Alias(
        expression,
        name,
        NamedExpression$.MODULE$.newExprId(),
        (Seq) Nil$.MODULE$,
        Option.empty(),
        (Seq) Nil$.MODULE$);
  }

  /** Removes columns that nothing needs: Spark's own rule has run before. */
  private static LogicalPlan pruned(LogicalPlan plan) {
    LogicalPlan before = plan;
    for (int i = 0; i < MAX_PASSES; i++) {
      LogicalPlan after = (LogicalPlan) ColumnPruning$.MODULE$.apply(before);
      if (after.fastEquals(before)) {
        return after;
      }
      before = after;
    }
    return before;
  }

  static Seq seq(List values) {
    return CollectionConverters.asScala(values).toList();
  }
}
