package org.lancespark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The versions of the tables that one query reads. All scans of a table, as in a join or a
 * subquery, read the version that the reply to the first scan named. A DELETE, UPDATE or MERGE reads
 * its table in the version whose rows it changes, also in subqueries and in its source.
 */
final class Snapshot {
  private static final Map OF_QUERIES = new WeakHashMap();

  /** The table that a statement changes, while this thread runs other queries for the statement. */
  private static final ThreadLocal CHANGED = new ThreadLocal();

  private final Map tables = new HashMap();

  /** The options of the tables that the query reads, by their identities. */
  private final Map options = new LinkedHashMap();

  /** By which requests of the query know each other. */
  private final String query = UUID.randomUUID().toString();

  private final Map replies = new HashMap();

  /** Whether a request has had the options of the other tables. */
  private boolean areSent;

  /** Whether the query has several scans, of one table or of several. */
  private boolean hasOtherScans;

  /** How many bytes of columns the driver has read for the query while it was planned. */
  private long spent;

  /** The table whose rows the statement of the query changes, or null. */
  private final NamedTable changed;

  private Snapshot() {
    Object table = CHANGED.get();
    this.changed = table == null ? RowChangeRule.changedTable() : (NamedTable) table;
  }

  /** Returns the snapshot of the query that this thread plans, which its subqueries share. */
  static Snapshot ofQuery() {
    Option tracker = QueryPlanningTracker$.MODULE$.get();
    if (tracker.isEmpty()) {
      return new Snapshot();
    }
    Snapshot known;
    synchronized (OF_QUERIES) {
      known = (Snapshot) OF_QUERIES.get(tracker.get());
    }
    if (known != null) {
      return known;
    }
    // Without the lock: a new snapshot looks at the plan of the statement.
    Snapshot made = new Snapshot();
    synchronized (OF_QUERIES) {
      known = (Snapshot) OF_QUERIES.get(tracker.get());
      if (known == null) {
        OF_QUERIES.put(tracker.get(), made);
      }
    }
    return known == null ? made : known;
  }

  /**
   * Lets the queries that this thread plans read a table in the version that a statement changes.
   *
   * @param table null for the end of the statement's queries
   */
  static void useFor(NamedTable table) {
    CHANGED.set(table);
  }

  /**
   * Adds to the options of an overwrite which version of the table the query that this thread plans
   * has read so far. Adds nothing if it has not read the table, or a version that it names.
   *
   * @param place the options that find the table
   */
  static void addReadBy(Map options, Map place) {
    Snapshot snapshot = ofQuery();
    synchronized (snapshot) {
      Version version = (Version) snapshot.tables.get(NamedTable.identity(place));
      if (version != null) {
        options.put("rows_read", version.name);
      }
    }
  }

  /** Returns the version of the table that options name. */
  synchronized Version of(CaseInsensitiveStringMap options) {
    Map identity = NamedTable.identity(options.asCaseSensitiveMap());
    Version version = (Version) tables.get(identity);
    if (version == null) {
      version = new Version();
      if (changed != null && changed.isReadBy(identity)) {
        version.name = changed.version;
      }
      tables.put(identity, version);
    }
    return version;
  }

  /**
   * Returns the reply to an equal request of the query, or null: a common part of a query, which
   * Spark writes out wherever it is used, is planned once.
   */
  synchronized PlanReply reply(Object request) {
    return (PlanReply) replies.get(request);
  }

  /** Keeps the reply to a request for equal requests of the query. */
  synchronized void keep(Object request, PlanReply reply) {
    replies.put(request, reply);
  }

  synchronized long spent() {
    return spent;
  }

  synchronized void spend(long bytes) {
    spent += bytes;
  }

  /** Notes that the query has several scans. */
  synchronized void noteOtherScans() {
    hasOtherScans = true;
  }

  synchronized boolean hasOtherScans() {
    return hasOtherScans;
  }

  /** Notes a table that the query reads. */
  synchronized void note(Map table) {
    options.put(NamedTable.identity(table), table);
  }

  /** Returns what the requests of a query that reads several tables have in common, or null. */
  synchronized String query() {
    return options.size() < 2 ? null : query;
  }

  /**
   * Returns the options of the other tables of the query for its first request, so that Python
   * looks up their versions at the same time; null for later requests, and for one table.
   */
  synchronized List others(CaseInsensitiveStringMap table) {
    if (areSent || options.size() < 2) {
      return null;
    }
    areSent = true;
    Map others = new LinkedHashMap(options);
    others.remove(NamedTable.identity(table.asCaseSensitiveMap()));
    return new ArrayList(others.values());
  }

  /** A version of a table. Its name is null until the first reply. */
  static final class Version {
    volatile String name;
  }
}
