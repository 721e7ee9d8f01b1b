package org.lancespark;

import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Warnings in the driver's log, each of them once. */
final class Log {
  private static final Logger LOGGER = LoggerFactory.getLogger("org.lancespark");
  private static final Set SAID = Collections.synchronizedSet(new HashSet());

  private Log() {}

  static void once(String text) {
    if (SAID.add(text)) {
      LOGGER.warn(text);
    }
  }

  static void leftToSpark(String what, Throwable cause) {
    if (SAID.add(what + cause.getClass())) {
      LOGGER.warn("format(\"lance\") leaves " + what + " to Spark: " + cause);
    }
  }
}
