package org.lancespark;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What spark.sql.extensions names: gives the rule to the sessions that are made with the extensions. */
public class Extension extends AbstractFunction1 {
  private static final Set SEEN = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  public Object apply(Object extensions) {
    if (!Versions.isKnown()) {
      Log.once("Spark " + Versions.spark() + " is none of 4.0 to 4.3: format(\"lance\") reads without push-down");
    } else if (SEEN.add(extensions)) {
      ((SparkSessionExtensions) extensions).injectPreCBORule(new RuleOfSession());
      ((SparkSessionExtensions) extensions).injectPlannerStrategy(new StrategyOfSession());
      ((SparkSessionExtensions) extensions).injectPlannerStrategy(new ArraysOfSession());
    }
    return BoxedUnit.UNIT;
  }

  /** Tells whether sessions that are made with the extensions have the rule. */
  public static boolean isIn(Object extensions) {
    return SEEN.contains(extensions);
  }

  /** Tells whether any session of this JVM has the rule: for clients of Spark Connect, which call it by SQL. */
  public static boolean isAnywhere() {
    return !SEEN.isEmpty();
  }

  /** Spark asks for a session's rules once for each query. */
  public static class RuleOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PushDownRule();
    }
  }

  /** Spark asks for a session's strategies once for each query too. */
  public static class StrategyOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new FoundStrategy();
    }
  }

  public static class ArraysOfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new PackedStrategy();
    }
  }
}
