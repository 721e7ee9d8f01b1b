package org.lancespark;

import java.lang.reflect.Constructor;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.unsafe.Platform;
import scala.Option;

/** Raises the errors of Python as Spark's own exceptions. */
final class Errors {
  private Errors() {}

  /**
   * Raises an error.
   *
   * @param error its "kind" and "message"
   * @param table the table that the call is about, or null
   * @param namespace the namespace that the call is about, or null
   */
  static void raise(Map error, Identifier table, String[] namespace) {
    String kind = (String) error.get("kind");
    String message = (String) error.get("message");
    if (table != null && "table_not_found".equals(kind)) {
      Platform.throwException(new NoSuchTableException(table));
    }
    if (table != null && "table_exists".equals(kind)) {
      Platform.throwException(new TableAlreadyExistsException(table));
    }
    if (namespace != null && "namespace_not_found".equals(kind)) {
      Platform.throwException(new NoSuchNamespaceException(namespace));
    }
    if (namespace != null && "namespace_exists".equals(kind)) {
      Platform.throwException(new NamespaceAlreadyExistsException(namespace));
    }
    if (namespace != null && "namespace_not_empty".equals(kind)) {
      Platform.throwException(new NonEmptyNamespaceException(namespace));
    }
    Platform.throwException(analysis(message));
  }

  /** Raises an AnalysisException. It returns nothing; the caller throws what it would return. */
  static RuntimeException unchecked(String message) {
    Platform.throwException(analysis(message));
    return null;
  }

  /** Returns an AnalysisException with a text of our own. */
  static Throwable analysis(String message) {
    Constructor[] constructors = AnalysisException.class.getConstructors();
    for (int i = 0; i < constructors.length; i++) {
      Class[] types = constructors[i].getParameterTypes();
      // (message, line, startPosition, cause, errorClass, ...); later versions have more of them.
      if (types.length >= 7 && types[0] == String.class && types[1] == Option.class) {
        Object[] values = new Object[types.length];
        values[0] = message;
        for (int n = 1; n < types.length; n++) {
          values[n] =
              types[n] == Option.class
                  ? Option.empty()
                  : types[n].isArray()
                      ? new QueryContext[0]
                      : scala.collection.immutable.Map$.MODULE$.empty();
        }
        try {
          return (Throwable) constructors[i].newInstance(values);
        } catch (ReflectiveOperationException e) {
          break;
        }
      }
    }
    return new IllegalArgumentException(message);
  }
}
