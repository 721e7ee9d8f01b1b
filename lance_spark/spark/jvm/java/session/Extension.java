package org.lancespark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.SparkBuildInfo;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The class that spark.sql.extensions names: it adds the rules, the functions and the parser. */
public class Extension extends AbstractFunction1 {
  private static final Set SEEN =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  private static List rules;

  /**
   * Adds the rules to the extensions of sessions.
   *
   * @throws UnsupportedOperationException Spark is of another release than the classes
   */
  public Object apply(Object extensions) {
    check();
    // Sessions share their extensions. Another thread must not go on with a part of the rules.
    synchronized (SEEN) {
      if (SEEN.add(extensions)) {
        inject((SparkSessionExtensions) extensions);
      }
    }
    return BoxedUnit.UNIT;
  }

  /** Checks that Spark is of the release that the classes were compiled for. */
  private static void check() {
    String spark = SparkBuildInfo.spark_version();
    if (!spark.startsWith(SparkRelease.VERSION + ".")) {
      throw new UnsupportedOperationException(
          "the classes of lance-spark in this session were compiled for Spark "
              + SparkRelease.VERSION
              + ", and Spark is "
              + spark
              + ": lance-spark supports Spark "
              + Constants.SUPPORTED_SPARK
              + "; for these, write the jar again by python -m lance_spark conf");
    }
  }

  /** Returns the rules for this release of Spark. Those of a kind are applied in this order. */
  private static synchronized List rules() {
    if (rules == null) {
      List all = new ArrayList();
      if (SparkRelease.sharesOptions()) {
        all.add(new SessionRule(SessionRule.HINTS, new OwnOptionsRule()));
      }
      all.add(new SessionRule(SessionRule.RESOLUTION, new ReplacedRowsRule()));
      all.add(new SessionRule(SessionRule.RESOLUTION, new StreamedTextRule()));
      all.add(new SessionRule(SessionRule.RESOLUTION, new DefaultColumns()));
      /* since 4.1
      all.add(new SessionRule(SessionRule.RESOLUTION, new CheckedStreams()));
      since 4.1 */
      if (SparkRelease.leavesColumnsOut()) {
        all.add(new SessionRule(SessionRule.RESOLUTION, new MissingColumnsRule()));
      }
      if (SparkRelease.padsBeforeDeletes()) {
        all.add(new SessionRule(SessionRule.RESOLUTION, new PaddedDeletes()));
      }
      all.add(new SessionRule(SessionRule.POST_HOC, new RandomValuesRule()));
      all.add(new SessionRule(SessionRule.POST_HOC, new LateralSearchRule()));
      all.add(new SessionRule(SessionRule.POST_HOC, new CharKeys()));
      if (SparkRelease.joinsNearest()) {
        all.add(new SessionRule(SessionRule.POST_HOC, new NearestJoinRule()));
      }
      all.add(new SessionRule(SessionRule.POST_HOC, new NewTableRule()));
      all.add(new SessionRule(SessionRule.CHECKS, new DescriptorCheck()));
      all.add(new SessionRule(SessionRule.PRE_CBO, new PushDownRule()));
      all.add(new SessionRule(SessionRule.PRE_CBO, new RowChangeRule()));
      all.add(new SessionRule(SessionRule.STRATEGIES, new SelectiveFilter()));
      all.add(new SessionRule(SessionRule.STRATEGIES, new DriverRowsStrategy()));
      all.add(new SessionRule(SessionRule.STRATEGIES, new KeysStrategy()));
      all.add(new SessionRule(SessionRule.STRATEGIES, new PackedStrategy()));
      rules = all;
    }
    return rules;
  }

  private static void inject(SparkSessionExtensions target) {
    List all = rules();
    for (int i = 0; i < all.size(); i++) {
      ((SessionRule) all.get(i)).addTo(target);
    }
    target.injectCheckRule(new FunctionsOfSession());
    target.injectTableFunction(ChangesFunction.description());
    SearchFunction.addTo(target);
    target.injectParser(new ParserOfSession());
  }

  /** Returns whether sessions with these extensions have the rule. */
  public static boolean isIn(Object extensions) {
    return SEEN.contains(extensions);
  }

  /**
   * Returns the program of the driver's Python, its PYTHONPATH, and the program of tasks: null if
   * executors of other machines run it.
   */
  public static Object interpreters(Object context) {
    SparkContext spark = (SparkContext) context;
    String tasks = spark.isLocal() ? Interpreters.ofTasks(spark) : null;
    String path = Interpreters.path(Interpreters.archives(spark));
    return new String[] {Interpreters.ofDriver(spark), path, tasks};
  }

  /** Adds what sessions take only when they start to a session that runs already. */
  public static Object addTo(Object session) {
    check();
    StatementParser.addTo((SparkSession) session);
    SearchFunction.addTo((SparkSession) session);
    VectorFunctions.addTo((SparkSession) session);
    ChangesFunction.addTo((SparkSession) session);
    TablesBeforeFiles.addTo((SparkSession) session);
    List all = rules();
    for (int i = 0; i < all.size(); i++) {
      ((SessionRule) all.get(i)).addTo((SparkSession) session);
    }
    return null;
  }

  /**
   * Adds functions to a session. Spark asks for the checks of a session before it analyzes the first
   * query. This one checks nothing.
   */
  static class FunctionsOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      try {
        VectorFunctions.addTo((SparkSession) session);
        ChangesFunction.addTo((SparkSession) session);
      } catch (Exception e) {
        Log.leftToSpark("functions", e);
      } catch (LinkageError e) {
        Log.leftToSpark("functions", e);
      }
      return new NoCheck();
    }
  }

  static class NoCheck extends AbstractFunction1 {
    public Object apply(Object plan) {
      return BoxedUnit.UNIT;
    }
  }

  static class ParserOfSession extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
      return StatementParser.before(session, parser);
    }
  }
}
