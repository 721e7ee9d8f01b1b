package org.lancespark;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.internal.SessionState;
import scala.Tuple2;
import scala.runtime.AbstractFunction2;

/**
 * A parser that replaces statements about Lance tables, such as OPTIMIZE, by the CALL that Python
 * makes of them (lance_spark/spark/catalog/statements.py). The next parser gets all other
 * statements unchanged. It is a proxy, as the methods of parsers differ between versions of Spark.
 */
public final class Statements implements InvocationHandler {
  private static final String SPACE = "(?:\\s|--[^\\n]*(?:\\n|$)|/\\*(?s:.*?)\\*/)";

  /** Beginnings of statements that Python may know. */
  private static final Pattern CANDIDATE =
      Pattern.compile(
          ("_*(?:OPTIMIZE|VACUUM|RESTORE|DESC(?:RIBE)?_+(?:HISTORY|DETAIL)"
                  + "|SHOW_+(?:TAGS?|BRANCH(?:ES)?|INDEX(?:ES)?))_.*"
                  + "|_*ALTER_+TABLE_.*_(?:TAG|BRANCH|INDEX|UNENFORCED)_.*"
                  + "|_*ALTER_+TABLE_.*_(?:ADD|UPDATE)_+COLUMNS_.*_FROM_.*")
              .replace("_", SPACE),
          Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

  private static final Pattern SETTING = Pattern.compile("spark\\.sql\\.catalog\\.([^.]+)");

  private final Object session;
  private final Object next;

  private Statements(Object session, Object next) {
    this.session = session;
    this.next = next;
  }

  /** Makes the parser of a session that starts. */
  public static class ParserOfSession extends AbstractFunction2 {
    public Object apply(Object session, Object next) {
      return over(session, next);
    }
  }

  private static Object over(Object session, Object next) {
    return Proxy.newProxyInstance(
        Statements.class.getClassLoader(),
        new Class[] {ParserInterface.class},
        new Statements(session, next));
  }

  /** Adds the parser to a session that runs. A session keeps the parser that it started with. */
  static void addTo(Object session) {
    SessionState state = ((SparkSession) session).sessionState();
    Object current = state.sqlParser();
    if (Proxy.isProxyClass(current.getClass())
        && Proxy.getInvocationHandler(current) instanceof Statements) {
      return;
    }
    try {
      Field field = SessionState.class.getDeclaredField("sqlParser");
      field.setAccessible(true);
      field.set(state, over(session, current));
    } catch (ReflectiveOperationException e) {
      Log.once("Statements such as OPTIMIZE need spark.sql.extensions=org.lancespark.Extension");
    }
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    Object[] passed = arguments;
    if (method.getName().startsWith("parsePlan") && arguments[0] instanceof String) {
      passed = (Object[]) arguments.clone();
      passed[0] = rewritten((String) arguments[0]);
    }
    try {
      return method.invoke(next, passed);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private String rewritten(String text) {
    Matcher candidate = CANDIDATE.matcher(text);
    if (!candidate.matches()) {
      return text;
    }
    CatalogManager manager = ((SparkSession) session).sessionState().catalogManager();
    String current = manager.currentCatalog().name();
    List catalogs = new ArrayList();
    List lance = new ArrayList();
    boolean mayBeLance = false;
    scala.collection.Iterator settings = ((SparkSession) session).sessionState().conf().getAllConfs().iterator();
    while (settings.hasNext()) {
      Tuple2 setting = (Tuple2) settings.next();
      Matcher name = SETTING.matcher((String) setting._1());
      if (name.matches()) {
        catalogs.add(name.group(1));
        if (LanceCatalog.class.getName().equals(setting._2())) {
          lance.add(name.group(1));
          mayBeLance |= name.group(1).equals(current) || text.contains(name.group(1));
        }
      }
    }
    if (!mayBeLance) {
      return text;
    }
    Map call = new LinkedHashMap();
    call.put("text", text);
    call.put("catalogs", catalogs);
    call.put("lance_catalogs", lance);
    call.put("current_catalog", current);
    call.put("current_namespace", Arrays.asList(manager.currentNamespace()));
    String statement = (String) PythonCall.result("rewrite_statement", call).get("statement");
    return statement == null ? text : statement;
  }
}
