package org.lancespark;

import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * The table function lance_changes: inserted, updated and deleted rows of a table. Delta calls it
 * table_changes.
 */
public class ChangesFunction extends AbstractFunction1 {
  private static final String NAME = "lance_changes";
  private static final String OF_DELTA = "table_changes";

  /** Returns the function as extensions of sessions register it. */
  static Tuple3 description() {
    return description(NAME);
  }

  private static Tuple3 description(String name) {
    ExpressionInfo info = new ExpressionInfo(ChangesFunction.class.getName(), name);
    return new Tuple3(new FunctionIdentifier(name), info, new ChangesFunction());
  }

  /** Adds the function by Delta's name to a session, which keeps a function that it has. */
  static void addTo(SparkSession session) {
    TableFunctionRegistry registry = session.sessionState().tableFunctionRegistry();
    for (Iterator i = registry.listFunction().iterator(); i.hasNext(); ) {
      if (OF_DELTA.equals(((FunctionIdentifier) i.next()).funcName())) {
        return;
      }
    }
    // Extensions know how each version of Spark names their functions.
    SparkSessionExtensions extensions = new SparkSessionExtensions();
    extensions.injectTableFunction(description(OF_DELTA));
    extensions.registerTableFunctions(registry);
  }

  /** Returns the relation of a call. */
  public Object apply(Object expressions) {
    List values = new ArrayList();
    List given = new ArrayList(CollectionConverters.asJava((Seq) expressions));
    for (int i = 0; i < given.size(); i++) {
      Expression expression = (Expression) given.get(i);
      Object value;
      try {
        value = expression.eval(InternalRow.empty());
      } catch (Exception e) {
        // An argument with a name, or a query.
        throw new IllegalArgumentException(
            NAME
                + ": an argument must be a constant without a name, not "
                + expression
                + ": "
                + NAME
                + "('table', start[, end]), where start and end are versions or timestamps");
      }
      values.add(value == null ? null : constant(expression, value));
    }
    String text = values.isEmpty() ? "" : String.valueOf(values.get(0));
    Map arguments = ofTable(text);
    arguments.put(TimeZones.OPTION, TimeZones.ofSession());
    arguments.put("bounds", values.subList(Math.min(1, values.size()), values.size()));
    Map reply = PythonCall.reply("load_changes", arguments);
    if (reply.containsKey("error")) {
      // Spark adds the position of the call to an AnalysisException, which pyspark cannot show
      // without an error class.
      throw new IllegalArgumentException((String) ((Map) reply.get("error")).get("message"));
    }
    ChangesTable table = new ChangesTable(NAME + "(" + text + ")", reply);
    return DataSourceV2Relation.create(table, Option.empty(), Option.empty());
  }

  /** Returns a whole number, or the text of a name, a time or another constant in SQL. */
  private static Object constant(Expression expression, Object value) {
    DataType type = expression.dataType();
    // Spark's values of dates and times are numbers, which are no versions.
    if (type instanceof DateType) {
      return LocalDate.ofEpochDay(((Number) value).longValue()).toString();
    }
    if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      String time = Instant.EPOCH.plus(((Number) value).longValue(), ChronoUnit.MICROS).toString();
      // Others are times in the zone of the session, which Python gets.
      return type instanceof TimestampType ? time : time.substring(0, time.length() - 1);
    }
    if (type instanceof IntegralType) {
      return value;
    }
    if (type instanceof StringType || type instanceof DecimalType) {
      return String.valueOf(value);
    }
    // Spark's values of intervals and times of day are numbers, too.
    return expression.sql();
  }

  /** Returns what calls of Python say of a table, by its name in SQL or its path. */
  static Map ofTable(String text) {
    SparkSession session = SparkSession.active();
    CatalogManager manager = session.sessionState().catalogManager();
    Map arguments = new LinkedHashMap();
    List parts = new ArrayList();
    if (text.indexOf('/') >= 0 && text.indexOf('`') < 0) {
      parts.add(text);
    } else {
      try {
        ParserInterface parser = session.sessionState().sqlParser();
        parts.addAll(CollectionConverters.asJava(parser.parseMultipartIdentifier(text)));
      } catch (ParseException e) {
        // Python refuses a text that is not a name.
        parts.add(text);
      }
    }
    String name = (String) parts.remove(parts.size() - 1);
    CatalogPlugin catalog = null;
    if (!parts.isEmpty() && manager.isCatalogRegistered((String) parts.get(0))) {
      catalog = manager.catalog((String) parts.remove(0));
    } else if (name.indexOf('/') < 0) {
      catalog = manager.currentCatalog();
      if (parts.isEmpty()) {
        parts.addAll(Arrays.asList(manager.currentNamespace()));
      }
    }
    TableName table = new TableName((String[]) parts.toArray(new String[0]), name);
    if (catalog instanceof LanceCatalog) {
      return ((LanceCatalog) catalog).ofTable(table);
    }
    if (catalog instanceof LanceSessionCatalog) {
      try {
        return ((LanceSessionCatalog) catalog).ofTable(table);
      } catch (Exception e) {
        throw new IllegalArgumentException(e.getMessage());
      }
    }
    arguments.put("namespace", parts);
    arguments.put("name", name);
    return arguments;
  }
}
