package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import scala.Option;

/**
 * The versions of the tables that one query reads. All scans of a table, as in a join or a
 * subquery, read the version that the reply to the first scan named.
 */
final class Snapshot {
  private static final Map OF_QUERIES = new WeakHashMap();

  private final Map tables = new HashMap();

  private Snapshot() {}

  /** Returns the snapshot of the query that this thread plans, which its subqueries share. */
  static Snapshot ofQuery() {
    Option tracker = QueryPlanningTracker$.MODULE$.get();
    if (tracker.isEmpty()) {
      return new Snapshot();
    }
    synchronized (OF_QUERIES) {
      Snapshot snapshot = (Snapshot) OF_QUERIES.get(tracker.get());
      if (snapshot == null) {
        snapshot = new Snapshot();
        OF_QUERIES.put(tracker.get(), snapshot);
      }
      return snapshot;
    }
  }

  /** Returns the version of the table that options name. */
  synchronized Version of(Object options) {
    Version version = (Version) tables.get(options);
    if (version == null) {
      version = new Version();
      tables.put(options, version);
    }
    return version;
  }

  /** A version of a table. Its name is null until the first reply. */
  static final class Version {
    volatile String name;
  }
}
