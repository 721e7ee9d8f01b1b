package org.lancespark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The zone of the session, by which Spark reads the text of a time that has no offset. Python does
 * not know it.
 */
final class TimeZones {
  static final String OPTION = "timezone";

  private TimeZones() {}

  static String ofSession() {
    return SQLConf.get().sessionLocalTimeZone();
  }

  /** Returns options with the zone of the session, if they have a time and no zone. */
  static Map added(Map options) {
    boolean isNeeded = false;
    for (Iterator names = options.keySet().iterator(); names.hasNext(); ) {
      String name = ((String) names.next()).toLowerCase(Locale.ROOT);
      if (name.equals(OPTION)) {
        return options;
      }
      isNeeded |= Constants.TIME_OPTIONS.contains(name);
    }
    if (!isNeeded) {
      return options;
    }
    Map all = new HashMap(options);
    all.put(OPTION, ofSession());
    return all;
  }
}
