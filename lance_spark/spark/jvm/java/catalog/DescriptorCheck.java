package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.SetOperation;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnionLoop;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Refuses analysed plans that write descriptors of blobs, which a read shows on request, as if they
 * were values: they are places in a file of another table.
 *
 * <p>The types of descriptors have a mark, but Spark drops it when it casts a value to the type of
 * a column, or makes one column of two. So this class follows values from the tables to the write.
 * Numbers that an expression takes out of a descriptor are values. A checkpoint has the rows of a
 * plan without the plan: its columns are known by their ids, which are those of the plan.
 */
public final class DescriptorCheck extends AbstractFunction1 {
  /** The mark, in the metadata of the fields of a descriptor; Python sets it. */
  private static final String MARK = "lance.blob.descriptor";

  /** The metadata of a column that a job of LanceTable writes: the column of the table. */
  private static final String WRITTEN = "lance.written";

  /**
   * Columns without a mark in the results of the last plans, by their ids. The columns of a union
   * have the ids of its first side: a checkpoint of that side alone is refused, too.
   */
  private static final Map RESULTS = Collections.synchronizedMap(new LastIds());

  /** The rows of checkpoints, each with the positions of columns that have descriptors. */
  private static final Map CHECKPOINTS = Collections.synchronizedMap(new WeakHashMap());

  /** The number of columns that are kept. */
  private static final int MAX_RESULTS = 10000;

  static class LastIds extends LinkedHashMap {
    private static final long serialVersionUID = 1L;

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > MAX_RESULTS;
    }
  }

  public Object apply(Object plan) {
    String message = null;
    try {
      Values values = new Values((LogicalPlan) plan);
      if (values.hasDescriptors()) {
        message = values.problem();
        values.keepResults(((LogicalPlan) plan).output());
      }
    } catch (Exception e) {
      Log.leftToSpark("descriptors of blobs", e);
    } catch (LinkageError e) {
      Log.leftToSpark("descriptors of blobs", e);
    }
    if (message != null) {
      throw Errors.unchecked(message);
    }
    return BoxedUnit.UNIT;
  }

  /** Which values of a plan are, or hold, descriptors. */
  static class Values {
    /** All nodes, children first, with the plans of subqueries and common table expressions. */
    private final List nodes = new ArrayList();

    /** The ids of columns with descriptors, whose types have lost the mark. */
    private final Set ids = new HashSet();

    Values(LogicalPlan plan) {
      addNodes(plan);
    }

    private void addNodes(LogicalPlan plan) {
      for (Iterator i = plan.children().iterator(); i.hasNext(); ) {
        addNodes((LogicalPlan) i.next());
      }
      List subqueries = subqueries(plan);
      for (int i = 0; i < subqueries.size(); i++) {
        addNodes((LogicalPlan) subqueries.get(i));
      }
      nodes.add(plan);
    }

    boolean hasDescriptors() {
      for (int i = 0; i < nodes.size(); i++) {
        if (nodes.get(i) instanceof LogicalRDD) {
          addCheckpoint((LogicalRDD) nodes.get(i));
        }
      }
      for (int i = 0; i < nodes.size(); i++) {
        LogicalPlan node = (LogicalPlan) nodes.get(i);
        if (node.children().isEmpty() && anyIn(node.output())) {
          return true;
        }
      }
      return false;
    }

    /** Adds columns of a checkpoint. In a join with itself, one side gets new ids. */
    private void addCheckpoint(LogicalRDD checkpoint) {
      Set positions = (Set) CHECKPOINTS.get(checkpoint.rdd());
      Set found = new HashSet();
      for (int i = 0; i < checkpoint.output().size(); i++) {
        Attribute column = (Attribute) checkpoint.output().apply(i);
        Integer position = Integer.valueOf(i);
        if (RESULTS.containsKey(column.exprId())
            || positions != null && positions.contains(position)) {
          ids.add(column.exprId());
          found.add(position);
        }
      }
      if (!found.isEmpty()) {
        CHECKPOINTS.put(checkpoint.rdd(), found);
      }
    }

    /** Keeps columns of a result, of which Spark may make a checkpoint. */
    void keepResults(Seq output) {
      for (Iterator i = output.iterator(); i.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (isDescriptor(column) && !isMarked(column.dataType())) {
          RESULTS.put(column.exprId(), Boolean.TRUE);
        }
      }
    }

    /** Returns what is wrong with a plan that has descriptors; null if it does not write them. */
    String problem() {
      int before = -1;
      while (before < ids.size()) {
        before = ids.size();
        for (int i = 0; i < nodes.size(); i++) {
          addColumns((LogicalPlan) nodes.get(i));
        }
      }
      for (int i = 0; i < nodes.size(); i++) {
        LogicalPlan node = (LogicalPlan) nodes.get(i);
        String problem = isWrite(node) ? problemOfWrite(node) : problemOfJob(node);
        if (problem != null) {
          return problem;
        }
      }
      return null;
    }

    private static String text(String table, String column) {
      return table
          + "column "
          + column
          + " has descriptors of blobs without their bytes, which cannot be written: read it with"
          + " blob_handling=all_binary, the default";
    }

    private String problemOfWrite(LogicalPlan write) {
      Product product = (Product) write;
      boolean isStream = write instanceof WriteToStream;
      Object query = (isStream ? SparkField.INPUT_QUERY : SparkField.QUERY).of(product);
      Table table = table(write);
      for (Iterator i = ((LogicalPlan) query).output().iterator(); i.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (isDescriptor(column)) {
          return text(table instanceof NamedTable ? table.name() + ": " : "", column.name());
        }
      }
      return null;
    }

    private String problemOfJob(LogicalPlan node) {
      List aliases = aliases(node);
      for (int i = 0; i < aliases.size(); i++) {
        Alias alias = (Alias) aliases.get(i);
        if (alias.metadata().contains(WRITTEN)
            && alias.explicitMetadata().isDefined()
            && isDescriptor(alias.child())) {
          return text("", alias.metadata().getString(WRITTEN));
        }
      }
      return null;
    }

    /** Adds the columns of a node whose values are descriptors of the nodes below it. */
    private void addColumns(LogicalPlan node) {
      List aliases = aliases(node);
      Set made = new HashSet();
      for (int i = 0; i < aliases.size(); i++) {
        Alias alias = (Alias) aliases.get(i);
        made.add(alias.exprId());
        if (isDescriptor(alias.child())) {
          ids.add(alias.exprId());
        }
      }
      if (node instanceof Union || node instanceof SetOperation || isLoop(node)) {
        for (Iterator i = node.children().iterator(); i.hasNext(); ) {
          addByPosition(node.output(), ((LogicalPlan) i.next()).output());
        }
      } else if (node instanceof CTERelationRef) {
        LogicalPlan definition = definition((CTERelationRef) node);
        if (definition != null) {
          addByPosition(node.output(), definition.output());
        }
      } else if (node instanceof Expand) {
        addAllByPosition(node.output(), (Seq) SparkField.PROJECTIONS.of(node));
      } else if (node instanceof MergeRows) {
        for (Iterator i = node.expressions().iterator(); i.hasNext(); ) {
          Object expression = i.next();
          if (expression instanceof MergeRows.Instruction) {
            addAllByPosition(node.output(), ((MergeRows.Instruction) expression).outputs());
          }
        }
      } else if (!isWrite(node)) {
        addOthers(node, made);
      }
    }

    private void addAllByPosition(Seq output, Seq rows) {
      for (Iterator i = rows.iterator(); i.hasNext(); ) {
        addByPosition(output, (Seq) i.next());
      }
    }

    private void addByPosition(Seq output, Seq values) {
      Iterator value = values.iterator();
      for (Iterator i = output.iterator(); i.hasNext() && value.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (isDescriptor((Expression) value.next())) {
          ids.add(column.exprId());
        }
      }
    }

    /** Adds columns that a node makes of all of its input, such as a function in Python. */
    private void addOthers(LogicalPlan node, Set made) {
      Set given = new HashSet(made);
      boolean isFromDescriptors = false;
      List inputs = subqueries(node);
      for (Iterator i = node.children().iterator(); i.hasNext(); ) {
        inputs.add(i.next());
      }
      for (int n = 0; n < inputs.size(); n++) {
        Seq output = ((LogicalPlan) inputs.get(n)).output();
        isFromDescriptors = isFromDescriptors || anyIn(output);
        for (Iterator i = output.iterator(); i.hasNext(); ) {
          given.add(((Attribute) i.next()).exprId());
        }
      }
      for (Iterator i = node.output().iterator(); isFromDescriptors && i.hasNext(); ) {
        Attribute column = (Attribute) i.next();
        if (!given.contains(column.exprId()) && hasStruct(column.dataType())) {
          ids.add(column.exprId());
        }
      }
    }

    private LogicalPlan definition(CTERelationRef reference) {
      for (int i = 0; i < nodes.size(); i++) {
        if (nodes.get(i) instanceof CTERelationDef
            && ((CTERelationDef) nodes.get(i)).id() == reference.cteId()) {
          return (LogicalPlan) nodes.get(i);
        }
      }
      return null;
    }

    private boolean anyIn(Seq columns) {
      for (Iterator i = columns.iterator(); i.hasNext(); ) {
        if (isDescriptor((Expression) i.next())) {
          return true;
        }
      }
      return false;
    }

    private boolean isDescriptor(Expression value) {
      DataType type = value.dataType();
      if (!hasStruct(type)) {
        return false;
      }
      if (isMarked(type)) {
        return true;
      }
      if (value instanceof OuterReference) {
        return isDescriptor((Expression) SparkField.E.of(value));
      }
      if (value instanceof Attribute) {
        return ids.contains(((Attribute) value).exprId());
      }
      if (value instanceof PlanExpression) {
        Seq output = ((LogicalPlan) ((PlanExpression) value).plan()).output();
        return isDescriptor((Expression) output.head());
      }
      if (isPart(value) && isMarked(((Expression) value.children().head()).dataType())) {
        // The mark says which children are descriptors.
        return false;
      }
      for (Iterator i = value.children().iterator(); i.hasNext(); ) {
        if (isDescriptor((Expression) i.next())) {
          return true;
        }
      }
      return value instanceof CreateNamedStruct && isRebuilt((CreateNamedStruct) value);
    }

    /** Returns whether a struct consists of all fields of a descriptor, as Spark casts structs. */
    private boolean isRebuilt(CreateNamedStruct struct) {
      Set fields = new HashSet();
      int needed = 0;
      for (Iterator i = struct.valExprs().iterator(); i.hasNext(); ) {
        Expression value = (Expression) i.next();
        while (!(value instanceof GetStructField) && value.children().size() == 1) {
          value = (Expression) value.children().head();
        }
        if (value instanceof GetStructField
            && isDescriptor((Expression) value.children().head())) {
          DataType type = ((Expression) value.children().head()).dataType();
          needed = ((StructType) type).fields().length;
          fields.add(Integer.valueOf(((GetStructField) value).ordinal()));
        } else if (!value.foldable()) {
          return false;
        }
      }
      return needed > 0 && fields.size() == needed;
    }
  }

  private static boolean isPart(Expression value) {
    return value instanceof GetStructField
        || value instanceof GetArrayStructFields
        || value instanceof GetArrayItem
        || value instanceof GetMapValue
        || value instanceof ElementAt;
  }

  /** Returns whether a node is the union of a recursive query. */
  private static boolean isLoop(LogicalPlan node) {
    return node instanceof UnionLoop;
  }

  private static boolean isWrite(Object node) {
    return (node instanceof V2WriteCommand || node instanceof WriteToStream)
        && isOurs(table(node));
  }

  private static Table table(Object write) {
    if (write instanceof WriteToStream) {
      return (Table) SparkField.SINK.of(write);
    }
    Object relation = SparkField.TABLE.of(write);
    Object table =
        relation instanceof DataSourceV2Relation ? ((DataSourceV2Relation) relation).table() : null;
    if (table instanceof RowLevelOperationTable) {
      table = ((RowLevelOperationTable) table).table();
    }
    return (Table) table;
  }

  private static boolean isOurs(Table table) {
    return table instanceof NamedTable
        || table instanceof NewTable
        || table instanceof PythonTable && table.name().equalsIgnoreCase(PushDownRule.FORMAT);
  }

  private static List aliases(LogicalPlan node) {
    List results = new ArrayList();
    for (Iterator i = node.expressions().iterator(); i.hasNext(); ) {
      addAliases((Expression) i.next(), results);
    }
    return results;
  }

  private static void addAliases(Expression expression, List results) {
    if (expression instanceof Alias) {
      results.add(expression);
    }
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      addAliases((Expression) i.next(), results);
    }
  }

  /** Returns the plans of the subqueries in the expressions of a node. */
  private static List subqueries(LogicalPlan node) {
    List results = new ArrayList();
    for (Iterator i = node.expressions().iterator(); i.hasNext(); ) {
      addSubqueries((Expression) i.next(), results);
    }
    return results;
  }

  private static void addSubqueries(Expression expression, List results) {
    if (expression instanceof PlanExpression) {
      results.add(((PlanExpression) expression).plan());
    }
    for (Iterator i = expression.children().iterator(); i.hasNext(); ) {
      addSubqueries((Expression) i.next(), results);
    }
  }

  private static boolean hasStruct(DataType type) {
    return type instanceof StructType
        || type instanceof ArrayType && hasStruct(((ArrayType) type).elementType())
        || type instanceof MapType
            && (hasStruct(((MapType) type).keyType()) || hasStruct(((MapType) type).valueType()));
  }

  /** Returns whether a type is, or holds, that of a descriptor. */
  private static boolean isMarked(DataType type) {
    if (type instanceof ArrayType) {
      return isMarked(((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      return isMarked(((MapType) type).keyType()) || isMarked(((MapType) type).valueType());
    }
    StructField[] fields = type instanceof StructType ? ((StructType) type).fields() : null;
    boolean areMarked = fields != null && fields.length > 1;
    for (int i = 0; fields != null && i < fields.length; i++) {
      if (isMarked(fields[i].dataType())) {
        return true;
      }
      areMarked = areMarked && fields[i].metadata().contains(MARK);
    }
    return areMarked;
  }
}
