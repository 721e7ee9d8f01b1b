package org.lancespark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
/* since 4.1
import org.apache.spark.sql.catalyst.parser.ParameterContext;
since 4.1 */
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
/* since 4.3
import org.apache.spark.sql.catalyst.parser.SqlStatementSplitResult;
import org.apache.spark.sql.catalyst.parser.TemporalIdentifier;
since 4.3 */
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A parser before Spark's, for the statements that Spark does not know. Python turns their text
 * into the text of a statement that Spark knows. It also looks at hidden columns in statements
 * (HiddenColumns).
 */
public class StatementParser implements ParserInterface {
  private static final String SPACE = "(?:\\s|--[^\\r\\n]*+|/\\*(?:[^*]|\\*(?!/))*+\\*/)";

  /** The first words of statements that Python is asked about; it decides. */
  private static final Pattern FIRST =
      Pattern.compile(
          SPACE
              + "*+(?:OPTIMIZE|VACUUM|RESTORE"
              + ("|REPLACE(?!" + SPACE + "++TABLE\\b)")
              + ("|SHOW" + SPACE + "++(?:TAGS?|BRANCH|BRANCHES|VERSIONS|INDEX|INDEXES)")
              + ("|DESC(?:RIBE)?" + SPACE + "++(?:HISTORY|DETAIL)")
              + ("|CREATE" + SPACE + "++TABLE(?=.*\\bLIKE\\b)")
              + ("|(?:CREATE|DROP)" + SPACE + "++INDEX")
              + ("|ALTER" + SPACE + "++TABLE(?=.*\\b(?:FROM|TAG|BRANCH|INDEX|UNENFORCED)\\b)")
              + ")\\b.*",
          Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

  private static final String FAILED =
      "statements such as OPTIMIZE do not work in this session, only CALL: ";
  private static final Pattern CATALOG = Pattern.compile("spark\\.sql\\.catalog\\.([^.]+)");

  private final SparkSession session;
  private final ParserInterface next;
  private volatile boolean isFirst = true;

  private StatementParser(SparkSession session, ParserInterface next) {
    this.session = session;
    this.next = next;
  }

  /** Returns a parser that asks another one for all other statements. */
  static Object before(Object session, Object next) {
    return new StatementParser((SparkSession) session, (ParserInterface) next);
  }

  /** Puts the parser into a session that runs already, whose parser was made with the session. */
  static void addTo(SparkSession session) {
    ParserInterface current = session.sessionState().sqlParser();
    if (current instanceof StatementParser) {
      return;
    }
    try {
      SparkShims.setParser(session, before(session, current));
    } catch (ReflectiveOperationException e) {
      Log.once(FAILED + e);
    } catch (RuntimeException e) {
      Log.once(FAILED + e);
    }
  }

  public LogicalPlan parsePlan(String text) throws ParseException {
    String statement = rewritten(text);
    return checked(statement, parser().parsePlan(statement));
  }

  /* since 4.1
  public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters)
      throws ParseException {
    String statement = rewritten(text);
    return checked(statement, parser().parsePlanWithParameters(statement, parameters));
  }
  since 4.1 */

  public LogicalPlan parseQuery(String text) throws ParseException {
    return parser().parseQuery(text);
  }

  public Expression parseExpression(String text) throws ParseException {
    return parser().parseExpression(text);
  }

  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return parser().parseTableIdentifier(text);
  }

  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return parser().parseFunctionIdentifier(text);
  }

  public Seq parseMultipartIdentifier(String text) throws ParseException {
    return isRoot(text)
        ? CollectionConverters.asScala(new ArrayList()).toSeq()
        : parser().parseMultipartIdentifier(text);
  }

  /* since 4.3
  public TemporalIdentifier parseTemporalTableIdentifier(String text) throws ParseException {
    return parser().parseTemporalTableIdentifier(text);
  }

  public SqlStatementSplitResult splitStatements(String text) {
    return parser().splitStatements(text);
  }
  since 4.3 */

  public StructType parseRoutineParam(String text) throws ParseException {
    return parser().parseRoutineParam(text);
  }

  public StructType parseTableSchema(String text) throws ParseException {
    return parser().parseTableSchema(text);
  }

  public DataType parseDataType(String text) throws ParseException {
    return parser().parseDataType(text);
  }

  /** Returns the parser of all other statements. */
  private ParserInterface parser() {
    if (isFirst) {
      isFirst = false;
      // Each query asks the parser before the analyzer, if only for the name of a table. An
      // extension cannot replace rules of Spark before the session has its analyzer.
      TablesBeforeFiles.addTo(session);
    }
    return next;
  }

  private LogicalPlan checked(String statement, LogicalPlan plan) {
    CatalogManager manager = session.sessionState().catalogManager();
    HiddenColumns.check(statement, plan, manager);
    return HiddenColumns.readable(statement, plan, manager);
  }

  /**
   * Returns whether a text is the name of the root of the current catalog. Methods of spark.catalog,
   * such as listTables, take the name of the current namespace apart, which is empty there.
   */
  private boolean isRoot(String name) {
    CatalogManager manager = session.sessionState().catalogManager();
    return name.isEmpty()
        && manager.currentNamespace().length == 0
        && manager.currentCatalog() instanceof LanceCatalog;
  }

  private String rewritten(String text) {
    if (!FIRST.matcher(text).matches()) {
      return text;
    }
    Map catalogs = catalogs();
    if (!catalogs.containsValue(LanceCatalog.class.getName())
        && !catalogs.containsValue(LanceSessionCatalog.class.getName())) {
      return text;
    }
    Map arguments = new LinkedHashMap();
    arguments.put("statement", new VariableSubstitution().substitute(text));
    arguments.put("catalogs", catalogs);
    arguments.put("settings", Settings.ofSession());
    CatalogManager manager = session.sessionState().catalogManager();
    CatalogPlugin current = manager.currentCatalog();
    if (current instanceof LanceCatalog) {
      arguments.put("current", ((LanceCatalog) current).ofStatement(manager.currentNamespace()));
    }
    if (current instanceof LanceSessionCatalog) {
      arguments.put(
          "current", ((LanceSessionCatalog) current).ofStatement(manager.currentNamespace()));
    }
    Map reply = PythonCall.reply("rewrite_statement", arguments);
    if (isOfSpark(manager, reply)) {
      return text;
    }
    if (reply.containsKey("error")) {
      Map error = (Map) reply.get("error");
      if ("syntax".equals(error.get("kind"))) {
        Errors.raiseSyntax(text, error);
      }
      Errors.raise(error, null, null);
    }
    String statement = (String) reply.get("statement");
    return statement == null ? text : statement;
  }

  /** Returns whether a statement is left to Spark because of the tables that exist. */
  private static boolean isOfSpark(CatalogManager manager, Map reply) {
    List table = (List) reply.get("session_table");
    List unless = (List) reply.get("unless_table");
    List source = (List) reply.get("session_source");
    if (table != null && LanceSessionCatalog.of(manager).isOther(table)) {
      return true;
    }
    if (source != null && !LanceSessionCatalog.of(manager).isLance(source)) {
      return true;
    }
    if (unless == null) {
      return false;
    }
    int last = unless.size() - 1;
    String[] namespace = (String[]) unless.subList(1, last).toArray(new String[0]);
    TableCatalog catalog = (TableCatalog) manager.catalog((String) unless.get(0));
    return catalog.tableExists(new TableName(namespace, (String) unless.get(last)));
  }

  /** Returns the classes of the catalogs that the session has, by their names. */
  private Map catalogs() {
    Map classes = new LinkedHashMap();
    Map settings = CollectionConverters.asJava(session.sessionState().conf().getAllConfs());
    for (Iterator i = settings.entrySet().iterator(); i.hasNext(); ) {
      Map.Entry setting = (Map.Entry) i.next();
      Matcher key = CATALOG.matcher((String) setting.getKey());
      if (key.matches()) {
        classes.put(key.group(1), setting.getValue());
      }
    }
    return classes;
  }
}
