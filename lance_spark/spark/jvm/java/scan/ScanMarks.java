package org.lancespark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What the rule says of a query to the builder of a scan, among the options of the table. */
final class ScanMarks {
  /** The rows are joined (SelectiveFilter). */
  static final String JOINED = "__lance_joined";

  /** The columns by which rows have to meet: JSON of lists of names (ClusteringColumns). */
  static final String CLUSTERING = "__lance_clustering";

  /** The rows are ordered after an expression that may raise an error (Failures). */
  static final String COMPUTED = "__lance_computed_before_order";

  /** The columns of blobs that the query only copies, and the mark of locators (CopiedBlobs). */
  static final String LOCATORS = "__lance_blob_locators";

  /** Forms of the conditions of keys that the driver may look for (CandidateRows). */
  static final String KEYS = "__lance_keys";

  /** Columns that the scan computes (ComputedColumns). */
  static final String VALUES = "__lance_computed_columns";

  private static final String[] NAMES = {JOINED, CLUSTERING, COMPUTED, LOCATORS, KEYS, VALUES};

  private ScanMarks() {}

  static CaseInsensitiveStringMap with(
      CaseInsensitiveStringMap options, String name, String value) {
    Map marked = new HashMap(options.asCaseSensitiveMap());
    marked.put(name, value);
    return new CaseInsensitiveStringMap(marked);
  }

  /** Returns the options of the user. */
  static CaseInsensitiveStringMap without(CaseInsensitiveStringMap options) {
    Map others = new HashMap(options.asCaseSensitiveMap());
    boolean isMarked = false;
    for (int i = 0; i < NAMES.length; i++) {
      isMarked |= others.remove(NAMES[i]) != null;
    }
    return isMarked ? new CaseInsensitiveStringMap(others) : options;
  }
}
