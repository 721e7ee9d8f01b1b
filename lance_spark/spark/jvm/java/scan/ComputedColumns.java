package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Divide;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.optimizer.DecimalAggregates$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Aggregates of a table whose arguments or groups are expressions, as aggregates of columns that a
 * scan computes. Spark then pushes them into the scan as those of other columns.
 *
 * <pre>
 *   sum(x) FILTER (WHERE c)          sum of the column CASE WHEN c THEN x END
 *   avg(x) of integers               sum of the column CAST(x AS DOUBLE), by the count of x
 *   sum(x + 3) that cannot overflow  sum(x) + 3 * count(x)
 *   count(DISTINCT x) by g           count of x by g, over the groups by g and x
 * </pre>
 *
 * <p>A plan stays as it is unless the scan has all its aggregates and groups.
 */
final class ComputedColumns extends Replacing {
  /** What the names of computed columns begin with. */
  static final String PREFIX = "__lance_computed_";

  private ComputedColumns() {}

  /** Returns the plan with columns that scans compute. */
  static LogicalPlan below(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new ComputedColumns());
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Aggregate;
  }

  Object replaced(Object node) {
    try {
      Object changed = changed((Aggregate) node);
      return changed == null ? node : changed;
    } catch (Exception e) {
      Log.leftToSpark("aggregates of expressions", e);
    } catch (LinkageError e) {
      Log.leftToSpark("aggregates of expressions", e);
    }
    return node;
  }

  /** Returns the plan of an aggregate with computed columns, or null to leave it as it is. */
  private static Object changed(Aggregate node) throws ReflectiveOperationException {
    LogicalPlan below = node.child();
    Map aliases = new HashMap();
    if (below instanceof Project) {
      for (Iterator i = ((Project) below).projectList().iterator(); i.hasNext(); ) {
        NamedExpression column = (NamedExpression) i.next();
        if (column instanceof Alias) {
          aliases.put(column.exprId(), ((Alias) column).child());
        }
      }
      below = (LogicalPlan) SparkField.CHILD.of(below);
    }
    Expression condition = null;
    if (below instanceof Filter) {
      condition = ((Filter) below).condition();
      below = ((Filter) below).child();
    }
    if (!(below instanceof DataSourceV2Relation) || !NullConditions.readsOurs(below)) {
      return null;
    }
    Inlined inlined = new Inlined(aliases);
    List groups = new ArrayList();
    for (Iterator i = node.groupingExpressions().iterator(); i.hasNext(); ) {
      groups.add(((Expression) i.next()).transform(inlined));
    }
    Functions functions = new Functions();
    List results = new ArrayList();
    for (Iterator i = node.aggregateExpressions().iterator(); i.hasNext(); ) {
      Expression result = (Expression) i.next();
      Expression written = (Expression) result.transform(inlined);
      results.add(named(result, (Expression) written.transform(functions)));
    }
    if (functions.areOthers) {
      return null;
    }
    List calls = calls(results);
    Distinct distinct = Distinct.of(calls);
    if (distinct == null) {
      Scanned scanned = new Scanned((DataSourceV2Relation) below, condition);
      return scanned.accepts(groups, calls) && (functions.areChanged || scanned.isNeeded())
          ? scanned.plan(node, groups, results, condition)
          : null;
    }
    if (!distinct.isOne) {
      return null;
    }
    distinct.split(groups, calls);
    Scanned scanned = new Scanned((DataSourceV2Relation) below, condition);
    if (!distinct.canMerge || !scanned.accepts(distinct.groups, calls(distinct.inner))) {
      return null;
    }
    LogicalPlan inner =
        (LogicalPlan) scanned.plan(node, distinct.groups, distinct.inner, condition);
    List outer = new ArrayList();
    for (int i = 0; i < results.size(); i++) {
      Expression result = (Expression) results.get(i);
      outer.add(named(result, (Expression) result.transform(distinct)));
    }
    return aggregate(node, distinct.outerGroups, outer, inner);
  }

  /** Returns a copy of an aggregate with other groups, results and input. */
  private static Object aggregate(Aggregate node, List groups, List results, LogicalPlan child)
      throws ReflectiveOperationException {
    SparkField[] fields = {
      SparkField.GROUPING_EXPRESSIONS, SparkField.AGGREGATE_EXPRESSIONS, SparkField.CHILD
    };
    Object[] values = {AssignedColumns.seq(groups), AssignedColumns.seq(results), child};
    return SparkShims.copy(node, fields, values);
  }

  /** Returns an expression with the name and the id of a result in whose place it stands. */
  private static Expression named(Expression result, Expression changed) {
    NamedExpression original = (NamedExpression) result;
    if (changed instanceof NamedExpression
        && ((NamedExpression) changed).exprId().equals(original.exprId())) {
      return changed;
    }
    return new Alias(
        changed,
        original.name(),
        original.exprId(),
        original.qualifier(),
        Option.empty(),
        (Seq) Nil$.MODULE$);
  }

  /** Returns the calls of aggregates in results, each once. */
  private static List calls(List results) {
    List calls = new ArrayList();
    for (int i = 0; i < results.size(); i++) {
      addCalls((Expression) results.get(i), calls);
    }
    return calls;
  }

  private static void addCalls(Expression e, List calls) {
    if (e instanceof AggregateExpression) {
      if (indexOf(e, calls) < 0) {
        calls.add(e);
      }
      return;
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      addCalls((Expression) i.next(), calls);
    }
  }

  private static int indexOf(Expression e, List expressions) {
    for (int i = 0; i < expressions.size(); i++) {
      if (e.canonicalized().equals(((Expression) expressions.get(i)).canonicalized())) {
        return i;
      }
    }
    return -1;
  }

  private static Expression argument(AggregateExpression call) {
    return (Expression) call.aggregateFunction().children().apply(0);
  }

  private static Expression over(AggregateExpression call, Expression argument) {
    List one = new ArrayList();
    one.add(argument);
    Expression function = (Expression) call.aggregateFunction();
    return (Expression) function.withNewChildren(AssignedColumns.seq(one));
  }

  private static Expression call(Expression function) {
    return ((AggregateFunction) function).toAggregateExpression();
  }

  /** Puts the expressions of a projection in the place of its columns. */
  static final class Inlined extends Replacing {
    private final Map aliases;

    Inlined(Map aliases) {
      this.aliases = aliases;
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference && aliases.containsKey(((Attribute) e).exprId());
    }

    Object replaced(Object e) {
      return aliases.get(((Attribute) e).exprId());
    }
  }

  /** Writes calls of aggregates as calls of the functions that a scan has, without filters. */
  static final class Functions extends Replacing {
    /** Digits that an average has more than its argument, and digits of any double. */
    private static final int MORE_DIGITS = 4;

    private static final int MAX_DOUBLE_DIGITS = 15;

    /** Whether there are others. */
    boolean areOthers;

    boolean areChanged;

    public boolean isDefinedAt(Object e) {
      return e instanceof AggregateExpression;
    }

    Object replaced(Object e) {
      AggregateExpression call = (AggregateExpression) e;
      Expression function = (Expression) call.aggregateFunction();
      boolean isKnown =
          function instanceof Count
              || function instanceof Sum
              || function instanceof Min
              || function instanceof Max
              || function instanceof Average;
      if (!isKnown || function.children().size() != 1) {
        areOthers = true;
        return e;
      }
      Expression argument = argument(call);
      if (call.filter().isDefined()) {
        areChanged = true;
        Expression none = new Literal(null, argument.dataType());
        argument = new If((Expression) call.filter().get(), argument, none);
        function = over(call, argument);
        call =
            ((AggregateFunction) function)
                .toAggregateExpression(call.isDistinct(), Option.empty());
      }
      if (!call.isDistinct() && function instanceof Average) {
        return average((Average) function);
      }
      if (!call.isDistinct() && function instanceof Sum && isShifted(argument)) {
        areChanged = true;
        return shifted(call, (Add) argument);
      }
      return call;
    }

    /** Returns an average as a sum by a count, as Spark itself evaluates it. */
    private Expression average(Average average) {
      Expression argument = (Expression) average.child();
      boolean isDecimal = argument.dataType() instanceof DecimalType;
      if (!ValueForms.isInteger(argument.dataType()) && !isDecimal) {
        areOthers = true;
        return call(average);
      }
      if (isDecimal && isByDouble((DecimalType) argument.dataType())) {
        DecimalType type = (DecimalType) argument.dataType();
        List unscaled = new ArrayList();
        unscaled.add(new UnscaledValue(argument));
        Expression function =
            (Expression) average.withNewChildren(AssignedColumns.seq(unscaled));
        Expression factor =
            new Literal(Double.valueOf(Math.pow(10.0, type.scale())), DataTypes.DoubleType);
        return new Cast(
            new Divide(average((Average) function), factor),
            average.dataType(),
            Option.apply(SQLConf.get().sessionLocalTimeZone()));
      }
      areChanged = true;
      Expression added = argument;
      if (ValueForms.isInteger(argument.dataType())) {
        added = new Cast(argument, DataTypes.DoubleType, Option.empty());
      }
      List one = new ArrayList();
      one.add(argument);
      Expression sum = call(new Sum(added));
      Expression count = call(new Count(AssignedColumns.seq(one)));
      return (Expression) average.evaluateExpression().transform(new Parts(average, sum, count));
    }

    /**
     * Returns whether Spark computes the average of decimals by doubles: its rule for decimals of few
     * digits comes after push-down.
     */
    private static boolean isByDouble(DecimalType type) {
      Option excluded = SQLConf.get().optimizerExcludedRules();
      String rule = DecimalAggregates$.MODULE$.ruleName();
      return type.precision() + MORE_DIGITS <= MAX_DOUBLE_DIGITS
          && !(excluded.isDefined() && ((String) excluded.get()).contains(rule));
    }

    /** Returns whether an argument is an integer of at most 32 bits and a constant, added up. */
    private static boolean isShifted(Expression e) {
      if (!(e instanceof Add) || !ValueForms.isInRange(e)) {
        return false;
      }
      Expression left = (Expression) ((Add) e).left();
      Expression right = (Expression) ((Add) e).right();
      return right instanceof Literal
          && ((Literal) right).value() instanceof Number
          && !(left instanceof Literal)
          && !unwidened(left).dataType().equals(DataTypes.LongType);
    }

    private static Expression shifted(AggregateExpression call, Add argument) {
      Expression value = unwidened((Expression) argument.left());
      long constant = ((Number) ((Literal) argument.right()).value()).longValue();
      List one = new ArrayList();
      one.add(value);
      Expression count = call(new Count(AssignedColumns.seq(one)));
      Expression literal = new Literal(Long.valueOf(constant), DataTypes.LongType);
      return new Add(call(over(call, value)), new Multiply(count, literal));
    }

    private static Expression unwidened(Expression e) {
      Expression inner = e;
      while (inner instanceof Cast
          && ValueForms.isInteger(((Expression) ((Cast) inner).child()).dataType())
          && Cast.canUpCast(((Expression) ((Cast) inner).child()).dataType(), inner.dataType())) {
        inner = (Expression) ((Cast) inner).child();
      }
      return inner;
    }
  }

  /** Puts a sum and a count in the place of the parts of an average. */
  static final class Parts extends Replacing {
    private final Average average;
    private final Expression sum;
    private final Expression count;

    Parts(Average average, Expression sum, Expression count) {
      this.average = average;
      this.sum = sum;
      this.count = count;
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference && (isSum(e) || isCount(e));
    }

    private boolean isSum(Object e) {
      return ((Attribute) e).exprId().equals(average.sum().exprId());
    }

    private boolean isCount(Object e) {
      return ((Attribute) e).exprId().equals(average.count().exprId());
    }

    Object replaced(Object e) {
      Expression part = isSum(e) ? sum : count;
      DataType type = ((Expression) e).dataType();
      return part.dataType().equals(type) ? part : new Cast(part, type, Option.empty());
    }
  }

  /**
   * Aggregates of distinct values as aggregates over groups of equal values: the outer aggregate
   * merges the others, which the inner one has computed for each group.
   */
  static final class Distinct extends Replacing {
    private final AggregateExpression first;
    private List calls;
    private List keys;

    /** Columns of the inner aggregate in the place of keys and of calls. */
    private List keyColumns = new ArrayList();

    private List callColumns = new ArrayList();
    private Attribute value;

    /** Whether all have the same argument. */
    boolean isOne = true;

    /** Whether the other aggregates of groups of values can be merged without a difference. */
    boolean canMerge = true;

    List groups = new ArrayList();
    List inner = new ArrayList();
    List outerGroups = new ArrayList();

    private Distinct(AggregateExpression first) {
      this.first = first;
    }

    /** Returns null if no call is of distinct values. */
    static Distinct of(List calls) {
      Distinct distinct = null;
      for (int i = 0; i < calls.size(); i++) {
        AggregateExpression call = (AggregateExpression) calls.get(i);
        if (call.isDistinct() && distinct == null) {
          distinct = new Distinct(call);
        } else if (call.isDistinct()) {
          Expression one = argument(distinct.first);
          distinct.isOne = distinct.isOne && argument(call).semanticEquals(one);
        }
      }
      return distinct;
    }

    void split(List keys, List calls) {
      this.keys = keys;
      this.calls = calls;
      for (int i = 0; i < keys.size(); i++) {
        keyColumns.add(add((Expression) keys.get(i), "group"));
        outerGroups.add(keyColumns.get(i));
      }
      int same = indexOf(argument(first), keys);
      value =
          same < 0 ? add(argument(first), "distinct") : (Attribute) keyColumns.get(same);
      for (int i = 0; i < calls.size(); i++) {
        AggregateExpression call = (AggregateExpression) calls.get(i);
        if (call.isDistinct()) {
          callColumns.add(null);
          continue;
        }
        Object function = call.aggregateFunction();
        boolean isSum = function instanceof Sum;
        boolean isAdded =
            call.dataType().equals(DataTypes.LongType)
                || call.dataType().equals(DataTypes.DoubleType)
                || call.dataType() instanceof DecimalType;
        canMerge &=
            !isSum || (isAdded && ((Expression) function).prettyName().equals("sum"));
        Alias part = AssignedColumns.alias(call, "part" + i);
        inner.add(part);
        callColumns.add(part.toAttribute());
      }
    }

    private Attribute add(Expression key, String name) {
      NamedExpression column =
          key instanceof AttributeReference ? (NamedExpression) key : AssignedColumns.alias(key, name);
      groups.add(key);
      inner.add(column);
      return column.toAttribute();
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof Expression
          && indexOf((Expression) e, e instanceof AggregateExpression ? calls : keys) >= 0;
    }

    Object replaced(Object e) {
      if (!(e instanceof AggregateExpression)) {
        return keyColumns.get(indexOf((Expression) e, keys));
      }
      AggregateExpression call = (AggregateExpression) e;
      if (call.isDistinct()) {
        return ComputedColumns.call(over(call, value));
      }
      Attribute part = (Attribute) callColumns.get(indexOf(call, calls));
      if (!(call.aggregateFunction() instanceof Count)) {
        Expression merged = ComputedColumns.call(over(call, part));
        // A sum of sums has more digits.
        return merged.dataType().equals(call.dataType())
            ? merged
            : new Cast(merged, call.dataType(), Option.empty());
      }
      List values = new ArrayList();
      values.add(ComputedColumns.call(new Sum(part)));
      values.add(new Literal(Long.valueOf(0), DataTypes.LongType));
      return new Coalesce(AssignedColumns.seq(values));
    }
  }

  /** A relation with computed columns. */
  static final class Scanned extends Replacing {
    private final DataSourceV2Relation relation;
    private final List expressions = new ArrayList();
    private final List forms = new ArrayList();
    private final List columns = new ArrayList();

    /** Calls whose argument is computed, and the calls in their place. */
    private final List calls = new ArrayList();

    private final List changedCalls = new ArrayList();

    /** Whether expressions may raise errors: the scan leaves out all rows that filters do. */
    private final boolean canFail;

    Scanned(DataSourceV2Relation relation, Expression condition) {
      this.relation = relation;
      canFail = condition == null || isPushed(condition);
    }

    private static boolean isPushed(Expression condition) {
      return SparkRelease.passesExpressions() && Forms.isSent(Expressions.write(condition));
    }

    boolean isNeeded() {
      return !columns.isEmpty();
    }

    /** Returns whether the scan has all groups and aggregates. */
    boolean accepts(List groups, List calls) {
      for (int i = 0; i < groups.size(); i++) {
        Expression key = (Expression) groups.get(i);
        if (!Forms.isGrouped(key.dataType()) || column(key, key.dataType(), key) == null) {
          return false;
        }
      }
      for (int i = 0; i < calls.size(); i++) {
        if (!accepts((AggregateExpression) calls.get(i))) {
          return false;
        }
      }
      return true;
    }

    private boolean accepts(AggregateExpression call) {
      Object function = call.aggregateFunction();
      Expression argument = argument(call);
      DataType type = argument.dataType();
      Expression written = argument;
      if (function instanceof Count) {
        if (argument instanceof Literal && ((Literal) argument).value() != null) {
          return true;
        }
      } else if (function instanceof Sum) {
        boolean isDouble =
            argument instanceof Cast
                && type.equals(DataTypes.DoubleType)
                && ValueForms.isInteger(((Expression) ((Cast) argument).child()).dataType());
        if (isDouble) {
          // The scan adds up the integers.
          written = (Expression) ((Cast) argument).child();
        } else if (Forms.sumOf(type) == null) {
          return false;
        }
      } else if (!Forms.hasExtremes(type)) {
        return false;
      }
      Expression column = column(argument, type, written);
      if (column != null && column != argument) {
        this.calls.add(call);
        changedCalls.add(ComputedColumns.call(over(call, column)));
      }
      return column != null;
    }

    /**
     * Returns the column of an expression: itself if it is a column of the table, or null if the
     * scan does not compute it.
     *
     * @param written the expression that the scan computes; a sum or Spark widens it to the type
     */
    private Expression column(Expression e, DataType type, Expression written) {
      Expression inner = e;
      while (inner instanceof GetStructField) {
        inner = (Expression) ((GetStructField) inner).child();
      }
      if (inner instanceof AttributeReference) {
        return e;
      }
      int known = indexOf(e, expressions);
      if (known >= 0) {
        return (Expression) columns.get(known);
      }
      boolean hasColumns =
          e.deterministic()
              && !e.references().isEmpty()
              && (canFail || !ValueForms.canFail(written));
      Map form = hasColumns ? ValueForms.write(written) : null;
      if (form == null || !Forms.isSent(form)) {
        return null;
      }
      String name = PREFIX + columns.size();
      expressions.add(e);
      forms.add(ValueForms.column(name, e, type, form));
      columns.add(
          new AttributeReference(
              name,
              type,
              true,
              Metadata.empty(),
              NamedExpression$.MODULE$.newExprId(),
              (Seq) Nil$.MODULE$));
      return (Expression) columns.get(columns.size() - 1);
    }

    /** Returns an aggregate over the relation. */
    Object plan(Aggregate node, List groups, List results, Expression condition)
        throws ReflectiveOperationException {
      List keys = new ArrayList();
      for (int i = 0; i < groups.size(); i++) {
        keys.add(((Expression) groups.get(i)).transform(this));
      }
      List changed = new ArrayList();
      for (int i = 0; i < results.size(); i++) {
        Expression result = (Expression) results.get(i);
        changed.add(named(result, (Expression) result.transform(this)));
      }
      LogicalPlan below = relation();
      if (condition != null) {
        below = new Filter(condition, below);
      }
      return aggregate(node, keys, changed, new Project(used(keys, changed), below));
    }

    /** Returns the columns that expressions read: Spark prunes those of a scan by a projection. */
    private static Seq used(List keys, List results) {
      List all = new ArrayList(keys);
      all.addAll(results);
      Map columns = new LinkedHashMap();
      for (int i = 0; i < all.size(); i++) {
        for (Iterator j = ((Expression) all.get(i)).references().iterator(); j.hasNext(); ) {
          Attribute column = (Attribute) j.next();
          columns.put(column.exprId(), column);
        }
      }
      return AssignedColumns.seq(new ArrayList(columns.values()));
    }

    private LogicalPlan relation() throws ReflectiveOperationException {
      if (columns.isEmpty()) {
        return relation;
      }
      List output = new ArrayList();
      for (Iterator i = relation.output().iterator(); i.hasNext(); ) {
        output.add(i.next());
      }
      output.addAll(columns);
      CaseInsensitiveStringMap options =
          ScanMarks.with(relation.options(), ScanMarks.VALUES, Forms.json(forms));
      SparkField[] fields = {SparkField.OUTPUT, SparkField.OPTIONS};
      Object copy =
          SparkShims.copy(relation, fields, new Object[] {AssignedColumns.seq(output), options});
      ((DataSourceV2Relation) copy).copyTagsFrom(relation);
      return (LogicalPlan) copy;
    }

    public boolean isDefinedAt(Object e) {
      if (e instanceof AggregateExpression) {
        return indexOf((Expression) e, calls) >= 0;
      }
      return e instanceof Expression && indexOf((Expression) e, expressions) >= 0;
    }

    Object replaced(Object e) {
      if (e instanceof AggregateExpression) {
        return changedCalls.get(indexOf((Expression) e, calls));
      }
      return columns.get(indexOf((Expression) e, expressions));
    }
  }
}
