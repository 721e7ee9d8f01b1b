package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.ShiftRight;
import org.apache.spark.sql.catalyst.expressions.XxHash64;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Adds a column by which changed rows are distributed to tasks: the fragment of old rows, so that
 * one task has all changes of a fragment; a hash of the values of new rows.
 */
final class Clustering {
  static final String COLUMN = "__lance_fragment";
  private static final int FRAGMENT_BITS = 32;
  private static final long SEED = 42L;

  private Clustering() {}

  static LogicalPlan of(LogicalPlan query, int address, List ordinals) {
    List output = new ArrayList(CollectionConverters.asJava(query.output()));
    Literal bits = new Literal(Integer.valueOf(FRAGMENT_BITS), DataTypes.IntegerType);
    List choices = new ArrayList();
    choices.add(new ShiftRight((Expression) output.get(address), bits));
    List hashed = new ArrayList();
    for (int i = 0; i < ordinals.size(); i++) {
      Attribute attribute = (Attribute) output.get(((Integer) ordinals.get(i)).intValue());
      // Spark does not hash a VARIANT.
      if (attribute.dataType() instanceof AtomicType && hash(Collections.singletonList(attribute)).resolved()) {
        hashed.add(attribute);
      }
    }
    if (!hashed.isEmpty()) {
      choices.add(hash(hashed));
    }
    output.add(
        new Alias(
            new Coalesce(AssignedColumns.seq(choices)),
            COLUMN,
            NamedExpression$.MODULE$.newExprId(),
            (Seq) Nil$.MODULE$,
            Option.empty(),
            (Seq) Nil$.MODULE$));
    return new Project(AssignedColumns.seq(output), query);
  }

  private static Expression hash(List columns) {
    return new XxHash64(AssignedColumns.seq(columns), SEED);
  }
}
