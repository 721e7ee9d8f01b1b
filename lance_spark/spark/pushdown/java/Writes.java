package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Product;
import scala.collection.Iterator;
import scala.Tuple2;

/** Hands settings of the session to writes that have the text of a predicate among their options. */
final class Writes {
  static final String SETTINGS = "session_settings";
  private static final String WHERE = "replaceWhere";
  private static final String WHERE_SNAKE = "replace_where";

  private Writes() {}

  static boolean hasText(Object node) {
    if (!(node instanceof OverwriteByExpression) || !PushDownRule.isOurs(relation((OverwriteByExpression) node))) {
      return false;
    }
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(options((OverwriteByExpression) node));
    return (options.containsKey(WHERE) || options.containsKey(WHERE_SNAKE)) && !options.containsKey(SETTINGS);
  }

  /** Returns the write with one more option; Spark wants the same options of the write and of its relation. */
  static Object withSettings(OverwriteByExpression write) throws ReflectiveOperationException {
    Map options = options(write);
    options.put(SETTINGS, Forms.json(Settings.ofSession()));
    Object relation =
        Versions.copy(
            (Product) relation(write),
            new String[] {"options"},
            new Object[] {new CaseInsensitiveStringMap(options)});
    Object none = scala.collection.immutable.Map$.MODULE$.empty();
    return Versions.copy(
        (Product) write, new String[] {"table", "writeOptions"}, new Object[] {relation, none});
  }

  /** The class has two methods of the name table(), which the compiler does not tell apart. */
  private static Object relation(OverwriteByExpression write) {
    return ((Product) write).productElement(0);
  }

  private static Map options(OverwriteByExpression write) {
    Map options = new HashMap(((DataSourceV2Relation) relation(write)).options().asCaseSensitiveMap());
    for (Iterator i = write.writeOptions().iterator(); i.hasNext(); ) {
      Tuple2 entry = (Tuple2) i.next();
      options.put(entry._1(), entry._2());
    }
    return options;
  }
}
