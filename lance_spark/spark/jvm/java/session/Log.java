package org.lancespark;

import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Writes warnings to the driver's log, each of them once, or again after many others. */
final class Log {
  private static final Logger LOGGER = LoggerFactory.getLogger("org.lancespark");
  /** Number of warnings that are remembered. */
  private static final int MOST = 1000;

  private static final Set WRITTEN = Collections.synchronizedSet(new HashSet());

  private Log() {}

  static void once(String text) {
    if (isNew(text)) {
      LOGGER.warn(text);
    }
  }

  /** Warns that a part of a plan is not pushed down. */
  static void leftToSpark(String part, Throwable cause) {
    if (isNew(part + cause.getClass())) {
      LOGGER.warn("format(\"lance\") does not push down " + part + ": " + cause);
    }
  }

  private static boolean isNew(String text) {
    if (WRITTEN.size() >= MOST) {
      WRITTEN.clear();
    }
    return WRITTEN.add(text);
  }
}
