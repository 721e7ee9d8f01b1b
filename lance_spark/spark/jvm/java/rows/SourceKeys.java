package org.lancespark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$;
import org.apache.spark.sql.catalyst.optimizer.UnwrapCastInBinaryComparison$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2ScanRelationPushDown$;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Filters the table of a MERGE by the join keys of its source, if the rows of the source are part
 * of the plan, or are a small query that Python has answered while it was planned. The rows then
 * become part of the plan, so that the keys are those of the rows that are joined. The rows of other
 * small sources are computed and kept (KeptSource), if the table is large.
 *
 * <p>If there are too many keys for a filter, or none for comparisons that a scan cannot evaluate,
 * the rows of the table are joined with the keys first: a semi-join, whose keys each executor gets.
 * Only the candidates that it leaves are then shuffled to the rows of the source, not the keys of
 * the whole table. Spark cannot send the source to each executor in the join itself, which keeps
 * the source's rows without a match. The semi-join has the comparisons of the join, so that it
 * compares as the join does.
 *
 * <p>Only joins that drop a row of the table without a match are changed: not those of a MERGE with
 * clauses for rows that match no row of the source.
 */
final class SourceKeys extends Replacing {
  private static final int MAX_ROWS = 10000;

  private final Table table;

  /** Rows of the source if one task can join them with their rows of the table; otherwise 0. */
  int count;

  /** Ids of the columns of keys in semi-joins. */
  private final Set ids = new HashSet();

  /** Forms of the conditions that rows with the keys of the source meet, if no filter does that. */
  final List forms = new ArrayList();

  SourceKeys(Table table) {
    this.table = table;
  }

  /** Returns the query of a MERGE, with filters of the table whose rows change. */
  LogicalPlan filtered(LogicalPlan query) {
    try {
      return PushDownRule.isEnabled() ? (LogicalPlan) query.transform(this) : query;
    } catch (KeptSource.Failure e) {
      throw Errors.rethrow(e.getCause());
    } catch (Exception e) {
      Log.leftToSpark("keys of sources", e);
    } catch (LinkageError e) {
      Log.leftToSpark("keys of sources", e);
    }
    return query;
  }

  /** Returns whether a plan joins rows with the table that it writes: a MERGE that only inserts. */
  static boolean isInsertOnly(Object plan) {
    return plan instanceof V2WriteCommand
        && written(plan) instanceof NamedTable
        // Not a plan that the rule has made: Spark's own tests apply it twice.
        && !(written(plan) instanceof RowChangeSink)
        && query(plan).find(new IsDefined(new SourceKeys(written(plan)))).isDefined();
  }

  static Object insertOnly(Object plan) {
    LogicalPlan query = new SourceKeys(written(plan)).filtered(query(plan));
    try {
      return SparkShims.copy(plan, new SparkField[] {SparkField.QUERY}, new Object[] {query});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  static LogicalPlan query(Object plan) {
    return (LogicalPlan) SparkField.QUERY.of(plan);
  }

  static Table written(Object plan) {
    Object relation = SparkField.TABLE.of(plan);
    return relation instanceof DataSourceV2Relation
        ? ((DataSourceV2Relation) relation).table()
        : null;
  }

  static class IsDefined extends AbstractFunction1 {
    private final SourceKeys keys;

    IsDefined(SourceKeys keys) {
      this.keys = keys;
    }

    public Object apply(Object node) {
      return Boolean.valueOf(keys.isDefinedAt(node));
    }
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof Join
        && ((Join) node).condition().isDefined()
        && (isDropped(node, true) || isDropped(node, false));
  }

  /** Returns whether a side is the table, and the join drops its rows without a match. */
  private boolean isDropped(Object join, boolean isLeft) {
    String type = ((Join) join).joinType().sql();
    boolean drops = type.equals("INNER") || type.equals(isLeft ? "RIGHT OUTER" : "LEFT ANTI");
    return drops && relation(side(join, isLeft)) != null;
  }

  /** Returns whether a plan has the rows of the table. */
  boolean reads(LogicalPlan plan) {
    return relation(plan) != null;
  }

  private static LogicalPlan side(Object join, boolean isLeft) {
    return (LogicalPlan) (isLeft ? SparkField.LEFT : SparkField.RIGHT).of(join);
  }

  /** Returns the relation of the table, if a plan chooses and computes columns of its rows. */
  DataSourceV2Relation relation(LogicalPlan plan) {
    LogicalPlan inner = plan;
    while (inner instanceof Project || inner instanceof Filter) {
      inner = (LogicalPlan) inner.children().apply(0);
    }
    if (!(inner instanceof DataSourceV2Relation)) {
      return null;
    }
    Table read = ((DataSourceV2Relation) inner).table();
    if (read instanceof RowLevelOperationTable) {
      read = (Table) ((RowLevelOperationTable) read).table();
    }
    return read == table || read.equals(table) ? (DataSourceV2Relation) inner : null;
  }

  Object replaced(Object node) {
    try {
      boolean isLeft = isDropped(node, true);
      LogicalPlan source = side(node, !isLeft);
      DataSourceV2Relation relation = relation(side(node, isLeft));
      List parts = new ArrayList();
      List equalities = new ArrayList();
      Expression condition = (Expression) ((Join) node).condition().get();
      addParts(condition, relation, source, parts);
      addEqualities(condition, side(node, isLeft), source, equalities);
      if (isLarge() ? equalities.isEmpty() : parts.isEmpty()) {
        return node;
      }
      LocalRelation rows = local(source);
      if (rows != null) {
        source = rows;
        if (rows.data().size() > MAX_ROWS && !isLarge()) {
          return node;
        }
        if (rows.data().size() > KeptSource.MAX_KEYS) {
          rows = null;
        }
      } else {
        KeptSource kept =
            isLarge() ? KeptSource.of(source, columns(equalities, source), MAX_ROWS) : null;
        if (kept == null) {
          return node;
        }
        source = kept.plan;
        rows = kept.keys;
        if (rows == null && !kept.isBroadcast) {
          equalities.clear();
        }
      }
      Expression filters = null;
      boolean isFiltered = rows != null && rows.data().size() <= MAX_ROWS;
      for (int i = 0; i < parts.size() && rows != null; i++) {
        Expression[] part = (Expression[]) parts.get(i);
        if (!isFiltered) {
          Object form = KeyForms.of(part[0], part[1], valuesOf(part[1], rows));
          if (form != null) {
            forms.add(form);
          }
          continue;
        }
        Expression filter = filter(part[0], part[1], relation, rows);
        if (filter != null) {
          filters = filters == null ? filter : new And(filters, filter);
        }
      }
      Object target = side(node, isLeft);
      if (filters != null) {
        count += rows.data().size();
        target = side(node, isLeft).transformUp(new Filtered(relation, filters));
      } else if (isLarge() && !equalities.isEmpty()) {
        target = candidates(side(node, isLeft), source, equalities);
        count += rows == null ? 0 : rows.data().size();
      }
      return SparkShims.copy(
          (Join) node,
          new SparkField[] {SparkField.LEFT, SparkField.RIGHT},
          isLeft ? new Object[] {target, source} : new Object[] {source, target});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns whether the table has enough rows to make it worth to compute a source before. */
  private boolean isLarge() {
    return table instanceof NamedTable && ((NamedTable) table).isLarge;
  }

  /** Returns the rows of a plan, or null if they are not known. */
  private static LocalRelation local(LogicalPlan source) {
    for (Iterator i = source.collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      boolean isKnown =
          leaf instanceof LocalRelation
              || leaf instanceof DataSourceV2Relation
                  && (((DataSourceV2Relation) leaf).table() instanceof NamedTable
                      || ((DataSourceV2Relation) leaf).table() instanceof RequestTable);
      if (!isKnown || ((LogicalPlan) leaf).isStreaming()) {
        return null;
      }
    }
    LogicalPlan planned = evaluated(source);
    return planned instanceof LocalRelation ? (LocalRelation) planned : null;
  }

  /** Plans the scans of a plan, and computes the rows of it for which Spark needs no job. */
  static LogicalPlan evaluated(LogicalPlan plan) {
    LogicalPlan planned = V2ScanRelationPushDown$.MODULE$.apply(plan);
    planned = (LogicalPlan) planned.transform(new DriverRows());
    LogicalPlan before = null;
    while (before == null || !planned.fastEquals(before)) {
      before = planned;
      planned = ConvertToLocalRelation$.MODULE$.apply(planned);
    }
    return planned;
  }

  /** Adds the comparisons of a column of the table with a key: pairs of expressions. */
  private static void addParts(
      Expression condition, DataSourceV2Relation relation, LogicalPlan source, List parts) {
    if (condition instanceof And) {
      addParts((Expression) condition.children().apply(0), relation, source, parts);
      addParts((Expression) condition.children().apply(1), relation, source, parts);
    } else if (condition instanceof EqualTo) {
      for (int i = 0; i < 2; i++) {
        Expression own = (Expression) condition.children().apply(i);
        Expression key = (Expression) condition.children().apply(1 - i);
        if (isColumn(own)
            && own.references().subsetOf(relation.outputSet())
            && key.references().subsetOf(source.outputSet())
            && key.deterministic()
            && Forms.isGrouped(own.dataType())) {
          parts.add(new Expression[] {own, key});
          return;
        }
      }
    }
  }

  /**
   * Adds the comparisons by which Spark joins rows: an expression of each side, and whether it is an
   * EqualTo, which no null meets.
   */
  private static void addEqualities(
      Expression condition, LogicalPlan target, LogicalPlan source, List equalities) {
    if (condition instanceof And) {
      addEqualities((Expression) condition.children().apply(0), target, source, equalities);
      addEqualities((Expression) condition.children().apply(1), target, source, equalities);
    } else if (condition instanceof EqualTo || condition instanceof EqualNullSafe) {
      for (int i = 0; i < 2; i++) {
        Expression own = (Expression) condition.children().apply(i);
        Expression key = (Expression) condition.children().apply(1 - i);
        if (isOf(own, target) && isOf(key, source)) {
          equalities.add(new Object[] {own, key, Boolean.valueOf(condition instanceof EqualTo)});
          return;
        }
      }
    }
  }

  private static boolean isOf(Expression value, LogicalPlan side) {
    return !value.references().isEmpty()
        && value.references().subsetOf(side.outputSet())
        && value.deterministic()
        && KeptSource.isPlain(value);
  }

  /** Returns whether a join is the semi-join of the table with keys of the source. */
  boolean isJoinedBy(Join join) {
    boolean isOfKeys = join.joinType() instanceof LeftSemi$;
    for (Iterator i = join.right().output().iterator(); i.hasNext() && isOfKeys; ) {
      isOfKeys = ids.contains(((Attribute) i.next()).exprId());
    }
    return isOfKeys;
  }

  /** Returns the rows of the table that have a key of the source. */
  private LogicalPlan candidates(
      LogicalPlan target, LogicalPlan source, List equalities) {
    List columns = new ArrayList();
    Expression condition = null;
    for (int i = 0; i < equalities.size(); i++) {
      Object[] equality = (Object[]) equalities.get(i);
      Alias key = AssignedColumns.alias((Expression) equality[1], "key");
      columns.add(key);
      ids.add(key.exprId());
      Expression own = (Expression) equality[0];
      Expression part =
          Boolean.TRUE.equals(equality[2])
              ? (Expression) new EqualTo(own, key.toAttribute())
              : (Expression) new EqualNullSafe(own, key.toAttribute());
      condition = condition == null ? part : new And(condition, part);
    }
    return new Join(
        target,
        new Project(AssignedColumns.seq(columns), source),
        LeftSemi$.MODULE$,
        Option.apply(condition),
        new JoinHint(
            Option.empty(), Option.apply(new HintInfo(Option.apply(BROADCAST$.MODULE$)))));
  }

  private static boolean isColumn(Expression own) {
    Object column = own instanceof Cast ? own.children().apply(0) : own;
    return Expressions.write(new IsNotNull((Expression) column)) != null;
  }

  /** Returns the attributes of the source that keys are made of. */
  private static List columns(List equalities, LogicalPlan source) {
    List columns = new ArrayList();
    for (Iterator i = source.output().iterator(); i.hasNext(); ) {
      Attribute attribute = (Attribute) i.next();
      boolean isUsed = false;
      for (int p = 0; p < equalities.size() && !isUsed; p++) {
        Expression key = (Expression) ((Object[]) equalities.get(p))[1];
        isUsed = key.references().contains(attribute);
      }
      if (isUsed) {
        columns.add(attribute);
      }
    }
    return columns;
  }

  /** Returns the filter of the table that follows from a comparison, or null. */
  private static Expression filter(
      Expression own, Expression key, DataSourceV2Relation relation, LocalRelation source) {
    Set keys = keysOf(key, source);
    if (keys == null) {
      return null;
    }
    if (keys.isEmpty()) {
      return Literal.FalseLiteral();
    }
    List literals = new ArrayList();
    for (java.util.Iterator i = keys.iterator(); i.hasNext(); ) {
      literals.add(new Literal(i.next(), key.dataType()));
    }
    // Spark compares integers in the wider type: its rule returns the keys in the column's type.
    LogicalPlan filter =
        UnwrapCastInBinaryComparison$.MODULE$.apply(
            new Filter(new In(own, AssignedColumns.seq(literals)), relation));
    Expression condition = ((Filter) filter).condition();
    return Forms.isSent(Expressions.write(condition)) ? condition : null;
  }

  /** Returns the values of a key that are not null, each once; null if Spark has to compute them. */
  private static Set keysOf(Expression key, LocalRelation source) {
    LocalRelation keys = valuesOf(key, source);
    if (keys == null) {
      return null;
    }
    Set values = new LinkedHashSet();
    for (Iterator i = keys.data().iterator(); i.hasNext(); ) {
      InternalRow row = (InternalRow) i.next();
      if (!row.isNullAt(0)) {
        values.add(row.get(0, key.dataType()));
      }
    }
    return values;
  }

  /** Returns the values of a key as the only column; null if Spark has to compute them. */
  private static LocalRelation valuesOf(Expression key, LocalRelation source) {
    if (source.output().size() == 1 && key.equals(source.output().apply(0))) {
      return source;
    }
    List columns = new ArrayList();
    columns.add(AssignedColumns.alias(key, "key"));
    LogicalPlan keys =
        ConvertToLocalRelation$.MODULE$.apply(new Project(AssignedColumns.seq(columns), source));
    return keys instanceof LocalRelation ? (LocalRelation) keys : null;
  }

  /** Filters a relation. Spark pushes one filter down to a scan, so two become one. */
  static class Filtered extends Replacing {
    private final Object relation;
    private final Filter filter;

    Filtered(DataSourceV2Relation relation, Expression condition) {
      this.relation = relation;
      this.filter = new Filter(condition, relation);
    }

    public boolean isDefinedAt(Object node) {
      return node == relation || isAbove(node);
    }

    private boolean isAbove(Object node) {
      return node instanceof Filter && ((Filter) node).child() == filter;
    }

    Object replaced(Object node) {
      if (node == relation) {
        return filter;
      }
      Expression both = new And(filter.condition(), ((Filter) node).condition());
      return new Filter(both, (LogicalPlan) relation);
    }
  }

  /** Puts rows that came with a reply in the place of their scan. */
  static class DriverRows extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2ScanRelation
          && ((DataSourceV2ScanRelation) node).scan() instanceof DriverRowsScan;
    }

    Object replaced(Object node) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
      List rows = Arrays.asList(((DriverRowsScan) relation.scan()).rows());
      return new LocalRelation((Seq) relation.output(), AssignedColumns.seq(rows), false, Option.empty());
    }
  }
}
