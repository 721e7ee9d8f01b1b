package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import scala.Option;

/**
 * The versions of tables that one query reads: whatever is scanned twice, in a join or a subquery, is scanned in the version
 * that the first answer named.
 */
final class Snapshot {
  private static final Map OF_QUERIES = new WeakHashMap();

  private final Map tables = new HashMap();

  private Snapshot() {}

  /** Returns the snapshot of the query that this thread plans; its subqueries are optimised on their own, before it. */
  static Snapshot ofQuery() {
    Option tracker = QueryPlanningTracker$.MODULE$.get();
    if (tracker.isEmpty()) {
      return new Snapshot();
    }
    synchronized (OF_QUERIES) {
      Snapshot known = (Snapshot) OF_QUERIES.get(tracker.get());
      if (known == null) {
        known = new Snapshot();
        OF_QUERIES.put(tracker.get(), known);
      }
      return known;
    }
  }

  /** Returns what is known of the table that these options name. */
  synchronized Version of(Object options) {
    Version version = (Version) tables.get(options);
    if (version == null) {
      version = new Version();
      tables.put(options, version);
    }
    return version;
  }

  /** The reader's own name of a version, or null until it has named one. */
  static final class Version {
    volatile String at;
  }
}
