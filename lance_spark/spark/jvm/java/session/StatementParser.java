package org.lancespark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.internal.VariableSubstitution;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A parser before Spark's, for the statements that Spark does not know. Python turns their text
 * into the text of a statement that Spark knows. It also looks at hidden columns in statements
 * (HiddenColumns). It is a proxy, because the methods of ParserInterface differ between versions.
 */
public class StatementParser implements InvocationHandler {
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
  private final Object next;
  private volatile boolean isFirst = true;

  private StatementParser(SparkSession session, Object next) {
    this.session = session;
    this.next = next;
  }

  /** Returns a parser that asks another one for all other statements. */
  static Object before(Object session, Object next) {
    return Proxy.newProxyInstance(
        StatementParser.class.getClassLoader(),
        new Class[] {ParserInterface.class},
        new StatementParser((SparkSession) session, next));
  }

  /** Puts the parser into a session that runs already, whose parser was made with the session. */
  static void addTo(SparkSession session) {
    Object current = session.sessionState().sqlParser();
    if (Proxy.isProxyClass(current.getClass())
        && Proxy.getInvocationHandler(current) instanceof StatementParser) {
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

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    try {
      return parsed(method, arguments);
    } catch (ParseException e) {
      throw e;
    } catch (AnalysisException e) {
      throw new StatementError(e);
    }
  }

  private Object parsed(Method method, Object[] arguments) throws Throwable {
    if (isFirst) {
      isFirst = false;
      // Each query asks the parser before the analyzer, if only for the name of a table. An
      // extension cannot replace rules of Spark before the session has its analyzer.
      TablesBeforeFiles.addTo(session);
    }
    if ("parseMultipartIdentifier".equals(method.getName()) && isRoot((String) arguments[0])) {
      return CollectionConverters.asScala(new ArrayList()).toSeq();
    }
    Object[] given = arguments;
    boolean isPlan = method.getName().startsWith("parsePlan");
    if (isPlan) {
      given = (Object[]) arguments.clone();
      given[0] = rewritten((String) arguments[0]);
    }
    Object parsed;
    try {
      parsed = method.invoke(next, given);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
    if (isPlan) {
      CatalogManager manager = session.sessionState().catalogManager();
      HiddenColumns.check((String) given[0], (LogicalPlan) parsed, manager);
      return HiddenColumns.readable((String) given[0], (LogicalPlan) parsed, manager);
    }
    return parsed;
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
