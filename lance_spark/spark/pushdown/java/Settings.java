package org.lancespark;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.sql.internal.SQLConf;

/** Settings of the session that change what the text of a predicate means: lance_spark.scan.predicates.sql.settings has what each does. */
final class Settings {
  private static final String[] NAMES = {
    "spark.sql.ansi.enabled",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.ansi.enforceReservedKeywords",
    "spark.sql.caseSensitive",
    "spark.sql.session.timeZone",
    "spark.sql.timestampType",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "spark.sql.legacy.literal.pickMinimumPrecision",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.legacy.bangEqualsNot",
    "spark.sql.variable.substitute",
    "spark.sql.legacy.allowNegativeScaleOfDecimal",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled",
    "spark.sql.parser.quotedRegexColumnNames"
  };

  private Settings() {}

  /** Returns the values by name; this version of Spark may not have all of them. */
  static Map ofSession() {
    Map found = new LinkedHashMap();
    for (int i = 0; i < NAMES.length; i++) {
      try {
        found.put(NAMES[i], SQLConf.get().getConfString(NAMES[i]));
      } catch (NoSuchElementException e) {
        continue;
      } catch (RuntimeException e) {
        // Spark 4 raises an error of its own for a name that it does not know.
        continue;
      }
    }
    return found;
  }
}
