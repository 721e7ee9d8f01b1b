package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Product;
import scala.collection.Iterator;
import scala.Tuple2;

/**
 * Adds the settings of the session to writes that have the text of a predicate among their options.
 */
final class Writes {
  static final String SETTINGS = "session_settings";
  private static final String WHERE = "replaceWhere";
  private static final String WHERE_SNAKE = "replace_where";

  private Writes() {}

  static boolean hasText(Object node) {
    if (!(node instanceof OverwriteByExpression)) {
      return false;
    }
    OverwriteByExpression write = (OverwriteByExpression) node;
    if (!PushDownRule.isOurs(relation(write))) {
      return false;
    }
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(options(write));
    boolean hasText = options.containsKey(WHERE) || options.containsKey(WHERE_SNAKE);
    return hasText && !options.containsKey(SETTINGS);
  }

  /** Returns the write with one more option, in its relation too: Spark requires equal options. */
  static Object withSettings(OverwriteByExpression write) throws ReflectiveOperationException {
    Map options = options(write);
    options.put(SETTINGS, Forms.json(Settings.ofSession()));
    Object relation =
        SparkShims.copy(
            relation(write),
            new SparkField[] {SparkField.OPTIONS},
            new Object[] {new CaseInsensitiveStringMap(options)});
    Object none = scala.collection.immutable.Map$.MODULE$.empty();
    return SparkShims.copy(
        write, new SparkField[] {SparkField.TABLE, SparkField.WRITE_OPTIONS}, new Object[] {relation, none});
  }

  /** Returns the table. The compiler cannot choose between two methods of the name table(). */
  private static Object relation(OverwriteByExpression write) {
    return SparkField.TABLE.of(write);
  }

  private static Map options(OverwriteByExpression write) {
    DataSourceV2Relation relation = (DataSourceV2Relation) relation(write);
    Map options = new HashMap(relation.options().asCaseSensitiveMap());
    for (Iterator i = write.writeOptions().iterator(); i.hasNext(); ) {
      Tuple2 entry = (Tuple2) i.next();
      options.put(entry._1(), entry._2());
    }
    return options;
  }
}
