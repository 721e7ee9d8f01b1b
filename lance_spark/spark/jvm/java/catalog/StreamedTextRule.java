package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gives streams of tables by name strings for char(n) and varchar(n), as batches have them: Spark
 * leaves these types in a stream, and then fails.
 */
public class StreamedTextRule extends Rule {
  public TreeNode apply(TreeNode plan) {
    Map strings = new HashMap();
    for (Iterator i = ((LogicalPlan) plan).collectLeaves().iterator(); i.hasNext(); ) {
      Object leaf = i.next();
      if (isOurs(leaf)) {
        addStrings((StreamingRelationV2) leaf, strings);
      }
    }
    if (strings.isEmpty()) {
      return plan;
    }
    LogicalPlan read =
        (LogicalPlan) ((LogicalPlan) plan).resolveOperatorsUp(new Relations(strings));
    // Columns above the relation may have been resolved already.
    return (TreeNode) read.resolveExpressions(new Columns(strings));
  }

  private static boolean isOurs(Object node) {
    return node instanceof StreamingRelationV2
        && SparkField.TABLE.of(node) instanceof NamedTable;
  }

  private static Seq output(Object relation) {
    return (Seq) SparkField.OUTPUT.of(relation);
  }

  /** Adds the columns of a relation that become strings, by their ids. */
  private static void addStrings(StreamingRelationV2 relation, Map strings) {
    for (Iterator i = output(relation).iterator(); i.hasNext(); ) {
      AttributeReference column = (AttributeReference) i.next();
      if (CharVarcharUtils.hasCharVarchar(column.dataType())) {
        StructField field =
            new StructField(column.name(), column.dataType(), column.nullable(), column.metadata());
        StructType one = new StructType(new StructField[] {field});
        StructField text = CharVarcharUtils.replaceCharVarcharWithStringInSchema(one).fields()[0];
        strings.put(
            column.exprId(),
            new AttributeReference(
                column.name(),
                text.dataType(),
                column.nullable(),
                text.metadata(),
                column.exprId(),
                column.qualifier()));
      }
    }
  }

  static class Relations extends Replacing {
    private final Map strings;

    Relations(Map strings) {
      this.strings = strings;
    }

    public boolean isDefinedAt(Object node) {
      return isOurs(node);
    }

    Object replaced(Object node) {
      List columns = new ArrayList();
      for (Iterator i = output(node).iterator(); i.hasNext(); ) {
        Object column = i.next();
        Object text = strings.get(((AttributeReference) column).exprId());
        columns.add(text == null ? column : text);
      }
      Object output = CollectionConverters.asScala(columns).toList();
      try {
        return SparkShims.copy(node, new SparkField[] {SparkField.OUTPUT}, new Object[] {output});
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  static class Columns extends Replacing {
    private final Map strings;

    Columns(Map strings) {
      this.strings = strings;
    }

    public boolean isDefinedAt(Object e) {
      return e instanceof AttributeReference
          && strings.containsKey(((AttributeReference) e).exprId())
          && CharVarcharUtils.hasCharVarchar(((AttributeReference) e).dataType());
    }

    Object replaced(Object e) {
      AttributeReference text = (AttributeReference) strings.get(((AttributeReference) e).exprId());
      return text.withQualifier(((AttributeReference) e).qualifier());
    }
  }
}
