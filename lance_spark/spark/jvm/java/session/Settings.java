package org.lancespark;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Settings of the session that change the meaning of a predicate's text. The
 * Python class SqlSettings documents their effects.
 */
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

  /** The option by which a write gets the session's mode of overwrites. */
  static final String OVERWRITE_MODE = "session_overwrite_mode";

  private Settings() {}

  /** Returns whether overwrites of the session replace all rows, "static", or partitions. */
  static String overwriteMode() {
    return SQLConf.get().partitionOverwriteMode().toString().toLowerCase(Locale.ROOT);
  }

  /** Returns the values of the settings that this version of Spark has. */
  static Map ofSession() {
    Map values = new LinkedHashMap();
    for (int i = 0; i < NAMES.length; i++) {
      try {
        values.put(NAMES[i], SQLConf.get().getConfString(NAMES[i]));
      } catch (NoSuchElementException e) {
        continue;
      } catch (RuntimeException e) {
        // Spark 4 raises an error of its own class for an unknown name.
        continue;
      }
    }
    return values;
  }
}
