package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * Finds the columns of blobs that a write, or a job of LanceTable, only copies, in plans that Spark
 * has optimized, and lets their scans return locators (BlobLocators) in place of large blobs.
 *
 * <p>A value is copied if every node between the scan and the write hands it on as it is, and no
 * expression looks at it. A test for null does not look at a value. The rules of some kinds of
 * nodes are known here; of all others, the node looks at each column of its input. Scans of
 * subqueries and of common table expressions are not part of this: their values are bytes.
 */
public final class CopiedBlobs {
  /** The metadata of columns of blobs. */
  private static final String BLOB = "lance-encoding:blob";

  /** The metadata of a column of the rows of a job of LanceTable: the mark of its locators. */
  private static final String JOB = "lance.blob.locators";

  /** The locators of running jobs of LanceTable, by their marks. */
  private static final Map JOBS = new ConcurrentHashMap();

  /** The columns whose values a column may have: sets of ids by ids. */
  private final Map sources = new HashMap();

  /** The columns whose values something looks at. */
  private final Set seen = new HashSet();

  private CopiedBlobs() {}

  /**
   * Begins a job of LanceTable over the rows of a DataFrame. Its work gets the mark and the sources
   * before Spark plans the job.
   *
   * @return JSON of both; null if the rows have no blobs of tables of ours
   */
  public static Object begin(Object rows) {
    BlobLocators locators = new BlobLocators();
    LogicalPlan plan = ((Dataset) rows).queryExecution().analyzed();
    for (Iterator i = plan.collectLeaves().iterator(); i.hasNext(); ) {
      LogicalPlan leaf = (LogicalPlan) i.next();
      CaseInsensitiveStringMap options = PushDownRule.isEnabled() ? options(leaf) : null;
      for (Iterator a = leaf.output().iterator(); options != null && a.hasNext(); ) {
        if (isBlob((Attribute) a.next())) {
          locators.add(options);
        }
      }
    }
    String text = locators.complete();
    if (text != null) {
      JOBS.put(locators.mark, locators);
    }
    return text;
  }

  /** Ends a job of LanceTable. */
  public static Object end(Object mark) {
    return JOBS.remove(mark);
  }

  private static boolean readsBlobs(LogicalPlan query) {
    for (Iterator i = query.collectLeaves().iterator(); i.hasNext(); ) {
      for (Iterator a = ((LogicalPlan) i.next()).output().iterator(); a.hasNext(); ) {
        if (isBlob((Attribute) a.next())) {
          return true;
        }
      }
    }
    return false;
  }

  private static boolean isBlob(Attribute column) {
    return column.dataType() instanceof BinaryType && column.metadata().contains(BLOB);
  }

  /** Returns a plan whose writes to tables of ours have scans with locators. */
  static LogicalPlan marked(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new Writes());
  }

  static final class Writes extends Replacing {
    public boolean isDefinedAt(Object node) {
      return node instanceof LogicalPlan && locators((LogicalPlan) node) != null;
    }

    Object replaced(Object node) {
      boolean isWrite = node instanceof V2WriteCommand;
      SparkField field = isWrite ? SparkField.QUERY : SparkField.CHILD;
      LogicalPlan query = (LogicalPlan) field.of(node);
      if (!readsBlobs(query)) {
        return node;
      }
      Scans scans = new Scans(locators((LogicalPlan) node), copied(query));
      LogicalPlan marked =
          scans.columns.isEmpty() ? query : (LogicalPlan) query.transform(scans);
      try {
        return marked == query
            ? node
            : SparkShims.copy(node, new SparkField[] {field}, new Object[] {marked});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /** Marks the scans of some columns. */
  static final class Scans extends Replacing {
    private final BlobLocators locators;

    /** The ids of the columns. */
    private final Set columns;

    Scans(BlobLocators locators, Set columns) {
      this.locators = locators;
      this.columns = columns;
    }

    public boolean isDefinedAt(Object node) {
      return options(node) != null && !names((DataSourceV2Relation) node).isEmpty();
    }

    Object replaced(Object node) {
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      String request = locators.request(options(node), names(relation));
      if (request == null) {
        return node;
      }
      CaseInsensitiveStringMap marked =
          ScanMarks.with(relation.options(), ScanMarks.LOCATORS, request);
      try {
        return SparkShims.relationOver(relation, relation.table(), marked);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }

    private List names(DataSourceV2Relation relation) {
      List names = new ArrayList();
      for (Iterator i = relation.output().iterator(); i.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (columns.contains(column.exprId()) && isBlob(column)) {
          names.add(column.name());
        }
      }
      return names;
    }
  }

  /** Returns the options by which a scan finds its table; null if the table is not ours. */
  private static CaseInsensitiveStringMap options(Object node) {
    if (!(node instanceof DataSourceV2Relation)) {
      return null;
    }
    DataSourceV2Relation relation = (DataSourceV2Relation) node;
    CaseInsensitiveStringMap options = ScanMarks.without(relation.options());
    if (PushDownRule.isOurs(node)) {
      return options;
    }
    Table table = relation.table();
    RowChange change = RowChangeRule.changeOf(node);
    NamedTable named =
        change != null ? change.table : table instanceof NamedTable ? (NamedTable) table : null;
    return named == null || named.readsChanges(options)
        ? null
        : named.with(options.asCaseSensitiveMap());
  }

  /** Returns the locators of a write, or of a job of LanceTable; null for other nodes. */
  private static BlobLocators locators(LogicalPlan node) {
    if (node instanceof MapInArrow) {
      for (Iterator i = ((LogicalPlan) node.children().head()).output().iterator(); i.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (column.metadata().contains(JOB)) {
          return (BlobLocators) JOBS.get(column.metadata().getString(JOB));
        }
      }
    }
    Object relation =
        node instanceof V2WriteCommand ? SparkField.TABLE.of(node) : null;
    if (!(relation instanceof DataSourceV2Relation)) {
      return null;
    }
    RowChange change = RowChangeRule.changeOf(relation);
    Object table = change == null ? ((DataSourceV2Relation) relation).table() : change.table;
    return table instanceof BlobLocators.Target
        ? ((BlobLocators.Target) table).locators()
        : null;
  }

  /** Returns the ids of columns whose values reach the result of a query, and nothing else. */
  private static Set copied(LogicalPlan query) {
    CopiedBlobs plan = new CopiedBlobs();
    plan.follow(query);
    Set reached = new HashSet();
    for (Iterator i = query.output().iterator(); i.hasNext(); ) {
      Attribute column = (Attribute) i.next();
      if (column.dataType() instanceof BinaryType) {
        reached.add(column.exprId());
      } else {
        plan.seen.add(column.exprId());
      }
    }
    Set copied = plan.withSources(reached);
    copied.removeAll(plan.withSources(plan.seen));
    return copied;
  }

  /** Returns ids, and those of all columns whose values they may have. */
  private Set withSources(Set ids) {
    Set all = new HashSet(ids);
    List open = new ArrayList(ids);
    while (!open.isEmpty()) {
      Set next = (Set) sources.get(open.remove(open.size() - 1));
      for (java.util.Iterator i = next == null ? null : next.iterator();
          i != null && i.hasNext(); ) {
        Object id = i.next();
        if (all.add(id)) {
          open.add(id);
        }
      }
    }
    return all;
  }

  private void follow(LogicalPlan node) {
    if (node instanceof Project) {
      handOnAll(((Project) node).projectList());
    } else if (node instanceof Union) {
      for (Iterator i = node.children().iterator(); i.hasNext(); ) {
        handOn(((LogicalPlan) i.next()).output(), node.output());
      }
    } else if (node instanceof Expand) {
      Iterator rows = ((Seq) SparkField.PROJECTIONS.of(node)).iterator();
      while (rows.hasNext()) {
        handOn((Seq) rows.next(), node.output());
      }
    } else if (node instanceof MergeRows) {
      followMerge((MergeRows) node);
    } else {
      boolean isKnown = SparkClasses.HANDING_ON.contains(SparkClasses.of(node));
      for (Iterator i = node.children().iterator(); i.hasNext() && !isKnown; ) {
        lookAtAll(((LogicalPlan) i.next()).output());
      }
      if (!node.children().isEmpty()) {
        lookAtAll(node.expressions());
      }
    }
    for (Iterator i = node.children().iterator(); i.hasNext(); ) {
      follow((LogicalPlan) i.next());
    }
  }

  private void followMerge(MergeRows node) {
    Iterator parts = node.expressions().iterator();
    while (parts.hasNext()) {
      Expression part = (Expression) parts.next();
      if (part instanceof MergeRows.Instruction) {
        lookAt(((MergeRows.Instruction) part).condition());
        for (Iterator i = ((MergeRows.Instruction) part).outputs().iterator(); i.hasNext(); ) {
          handOn((Seq) i.next(), node.output());
        }
      } else if (!isIn(part, node.output())) {
        lookAt(part);
      }
    }
  }

  /** Returns whether an expression is one of the columns that its node makes. */
  private static boolean isIn(Expression part, Seq output) {
    if (part instanceof Attribute) {
      for (Iterator i = output.iterator(); i.hasNext(); ) {
        if (((Attribute) i.next()).exprId().equals(((Attribute) part).exprId())) {
          return true;
        }
      }
    }
    return false;
  }

  private void handOnAll(Seq columns) {
    for (Iterator i = columns.iterator(); i.hasNext(); ) {
      Expression column = (Expression) i.next();
      handOn(column, ((NamedExpression) column).exprId());
    }
  }

  /** Notes that columns have values, by their positions. */
  private void handOn(Seq values, Seq columns) {
    Iterator column = columns.iterator();
    for (Iterator i = values.iterator(); i.hasNext(); ) {
      Expression value = (Expression) i.next();
      if (column.hasNext()) {
        handOn(value, ((Attribute) column.next()).exprId());
      } else {
        lookAt(value);
      }
    }
  }

  /** Notes that a column may have the values of an expression. */
  private void handOn(Expression value, Object column) {
    if (value instanceof Attribute) {
      Object id = ((Attribute) value).exprId();
      if (!id.equals(column)) {
        Set ids = (Set) sources.get(column);
        if (ids == null) {
          ids = new HashSet();
          sources.put(column, ids);
        }
        ids.add(id);
      }
    } else if (value instanceof Alias || value instanceof AssertNotNull) {
      handOn((Expression) value.children().head(), column);
    } else if (value instanceof Coalesce) {
      for (Iterator i = value.children().iterator(); i.hasNext(); ) {
        handOn((Expression) i.next(), column);
      }
    } else if (value instanceof If) {
      lookAt((Expression) SparkField.PREDICATE.of(value));
      handOn((Expression) SparkField.TRUE_VALUE.of(value), column);
      handOn((Expression) SparkField.FALSE_VALUE.of(value), column);
    } else if (value instanceof CaseWhen) {
      Iterator branches = ((Seq) SparkField.BRANCHES.of(value)).iterator();
      while (branches.hasNext()) {
        Tuple2 branch = (Tuple2) branches.next();
        lookAt((Expression) branch._1());
        handOn((Expression) branch._2(), column);
      }
      scala.Option other = (scala.Option) SparkField.ELSE_VALUE.of(value);
      if (other.isDefined()) {
        handOn((Expression) other.get(), column);
      }
    } else if (!(value instanceof Literal)) {
      lookAt(value);
    }
  }

  private void lookAtAll(Seq expressions) {
    for (Iterator i = expressions.iterator(); i.hasNext(); ) {
      lookAt((Expression) i.next());
    }
  }

  /** Notes that an expression needs the values of the columns in it. */
  private void lookAt(Expression expression) {
    if (expression instanceof Attribute) {
      seen.add(((Attribute) expression).exprId());
      return;
    }
    boolean isTest = expression instanceof IsNull || expression instanceof IsNotNull;
    if (isTest && expression.children().head() instanceof Attribute) {
      return;
    }
    lookAtAll(expression.children());
    if (expression instanceof PlanExpression) {
      lookInside((LogicalPlan) ((PlanExpression) expression).plan());
    } else if (expression instanceof OuterReference) {
      lookAt((Expression) SparkField.E.of(expression));
    }
  }

  /** Notes the columns of the outer query that a subquery names. */
  private void lookInside(LogicalPlan plan) {
    lookAtAll(plan.expressions());
    for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
      lookInside((LogicalPlan) i.next());
    }
  }
}
