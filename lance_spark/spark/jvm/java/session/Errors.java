package org.lancespark;

import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.unsafe.Platform;
import scala.Option;

/** Raises the errors of Python as Spark's own exceptions. */
final class Errors {
  /** The class of the error about a path that does not exist. */
  private static final String NO_PATH = "PathNotFoundError";

  /** Spark's condition for errors of Python data sources, whose text is a traceback. */
  private static final String OF_SOURCES = "PYTHON_DATA_SOURCE_ERROR";

  /** The setting that says how spark-sql and the Thrift server show errors. */
  private static final String FORMAT = "spark.sql.error.messageFormat";

  /** A text that ends with the class and the message of an error of this package. */
  private static final Pattern TRACEBACK =
      Pattern.compile(".*\\nlance_spark\\.errors\\.(\\w+): (.*)", Pattern.DOTALL);

  /** What Spark adds to the text. */
  private static final Pattern STATE = Pattern.compile("\\s*SQLSTATE: \\w+\\s*$");

  /** The begin of a traceback. */
  private static final String LATER = "\nTraceback ";

  private Errors() {}

  /**
   * Raises an error.
   *
   * @param error its "kind" and "message", and the "class" of an error of this package
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
    Platform.throwException(analysis(message, (String) error.get("class")));
  }

  /** Raises an AnalysisException. It returns nothing; the caller throws what it would return. */
  static RuntimeException unchecked(String message) {
    Platform.throwException(analysis(message, null));
    return null;
  }

  /** Raises an error again. It returns nothing; the caller throws what it would return. */
  static RuntimeException rethrow(Throwable error) {
    Platform.throwException(error);
    return null;
  }

  /** Raises Spark's error about the path of a new table that has a table already. */
  static void raisePathExists(String path) {
    scala.collection.immutable.Map parameters =
        new scala.collection.immutable.Map.Map1("outputPath", path);
    Platform.throwException(new AnalysisException("PATH_ALREADY_EXISTS", parameters));
  }

  /**
   * Raises Spark's error about the syntax of a statement.
   *
   * @param error "near" is the word at fault, "message" what was expected; "line" and "position"
   */
  static void raiseSyntax(String statement, Map error) {
    scala.collection.immutable.Map parameters =
        new scala.collection.immutable.Map.Map2(
            "error", error.get("near"), "hint", error.get("message"));
    Platform.throwException(
        SparkRelease.syntaxError(statement, error.get("line"), error.get("position"), parameters));
  }

  /**
   * Raises an error of Spark. If Python raised an error of this package while it planned or
   * committed, its text is the message of that error alone.
   *
   * @return nothing, so that the caller can throw the call
   */
  static RuntimeException raiseFromPython(Throwable error) {
    Matcher parts = fromPython(error);
    if (parts == null) {
      Platform.throwException(error);
    }
    String message = STATE.matcher(parts.group(2)).replaceFirst("").trim();
    Platform.throwException(analysis(message, parts.group(1)));
    return null;
  }

  /** Returns the name of the class of an error of this package, or null for other errors. */
  static String classFromPython(Throwable error) {
    Matcher parts = fromPython(error);
    return parts == null ? null : parts.group(1);
  }

  private static Matcher fromPython(Throwable error) {
    for (Throwable e = error; e != null; e = e.getCause()) {
      if (e instanceof AnalysisException && e.getMessage().contains(OF_SOURCES)) {
        Matcher parts = TRACEBACK.matcher(e.getMessage());
        return parts.matches() && !parts.group(2).contains(LATER) ? parts : null;
      }
    }
    return null;
  }

  /**
   * Returns an AnalysisException with a text of our own.
   *
   * @param name the class of the error in Python, or null. It names the condition:
   *     LANCE_COMMIT_CONFLICT for CommitConflictError.
   */
  private static Throwable analysis(String message, String name) {
    Option condition = Option.empty();
    // Other formats look for the condition among the templates of Spark.
    String format = SQLConf.get().getConfString(FORMAT, "PRETTY");
    if (name != null && "PRETTY".equalsIgnoreCase(format)) {
      condition = Option.apply(condition(name));
    }
    return SparkShims.analysisException(
        NO_PATH.equals(name) ? "[PATH_NOT_FOUND] " + message : message, condition);
  }

  private static String condition(String name) {
    if (NO_PATH.equals(name)) {
      // As Spark's own sources.
      return "PATH_NOT_FOUND";
    }
    String words = name.replaceFirst("Error$", "").replaceAll("([a-z])([A-Z])", "$1_$2");
    // LanceError, the base of the others, is LANCE_ERROR.
    return "LANCE_" + ("Lance".equals(words) ? "ERROR" : words.toUpperCase());
  }
}
