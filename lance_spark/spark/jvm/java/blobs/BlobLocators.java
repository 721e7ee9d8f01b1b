package org.lancespark;

import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The locators to blobs that one table gets in a write: the mark that they begin with, and the
 * tables whose scans return them. The options of these tables have credentials, so they stay here,
 * and do not become part of plans.
 */
final class BlobLocators {
  /** The option by which Python's writer gets the mark and the sources. */
  private static final String OPTION = "blob_locators";

  private static final int MARK_BYTES = 16;
  private static final SecureRandom RANDOM = new SecureRandom();

  /** A table that rows are written to: the object that one statement has loaded. */
  interface Target {
    BlobLocators locators();
  }

  final String mark;
  private final List sources = new ArrayList();
  private boolean isComplete;

  BlobLocators() {
    byte[] bytes = new byte[MARK_BYTES];
    RANDOM.nextBytes(bytes);
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < MARK_BYTES; i++) {
      text.append(Character.forDigit((bytes[i] >> 4) & 15, 16));
      text.append(Character.forDigit(bytes[i] & 15, 16));
    }
    mark = text.toString();
  }

  /**
   * Returns what a scan is asked for; null if the writer cannot learn of its table any more.
   *
   * @param options of the table that it reads
   * @param columns that the query only copies
   */
  synchronized String request(CaseInsensitiveStringMap options, List columns) {
    int number = add(options);
    if (number < 0) {
      return null;
    }
    Map request = new LinkedHashMap();
    request.put("mark", mark);
    request.put("source", Integer.valueOf(number));
    request.put("columns", columns);
    return Forms.json(request);
  }

  /** Adds the table of a scan, and returns its number; -1 if the sources are complete. */
  synchronized int add(CaseInsensitiveStringMap options) {
    Map source = options.asCaseSensitiveMap();
    int number = sources.indexOf(source);
    if (number < 0 && !isComplete) {
      number = sources.size();
      sources.add(new HashMap(source));
    }
    return number;
  }

  /** Returns the mark and the sources, to which none are added any more; null without sources. */
  synchronized String complete() {
    isComplete = true;
    return sources.isEmpty() ? null : json();
  }

  private String json() {
    Map value = new LinkedHashMap();
    value.put("mark", mark);
    value.put("sources", sources);
    return Forms.json(value);
  }

  /** Returns what Spark says of a write, with the sources for Python if there are any. */
  synchronized LogicalWriteInfo with(LogicalWriteInfo info) {
    if (sources.isEmpty()) {
      return info;
    }
    Map options = new HashMap(info.options().asCaseSensitiveMap());
    options.put(OPTION, json());
    return new NamedWriteInfo(info, new CaseInsensitiveStringMap(options), info.schema());
  }
}
