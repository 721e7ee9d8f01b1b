package org.lancespark;

import java.net.URL;
import java.security.CodeSource;
import org.apache.spark.JobArtifactSet;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.SparkContext;
import scala.collection.Iterator;

/** Brings the classes of this package to executors. */
final class ExecutorClasses {
  private ExecutorClasses() {}

  /**
   * Makes sure that the tasks of the queries that this thread plans find the classes: Spark sends
   * them the jar from which the driver has the classes. Returns false if they are not from a jar.
   */
  static boolean areAvailable() {
    CodeSource source = ColumnarFactory.class.getProtectionDomain().getCodeSource();
    URL jar = source == null ? null : source.getLocation();
    if (jar == null || !"file".equals(jar.getProtocol()) || !jar.getPath().endsWith(".jar")) {
      Log.once("scans return rows: executors cannot get the classes of lance-spark from " + jar);
      return false;
    }
    SparkContext context = SparkContext.getOrCreate();
    synchronized (ExecutorClasses.class) {
      if (!isSent(context, jar.getPath().substring(jar.getPath().lastIndexOf('/')))) {
        context.addJar(jar.toString());
      }
    }
    return true;
  }

  /** Returns whether the tasks of this session, which may have artifacts of its own, get a jar. */
  private static boolean isSent(SparkContext context, String name) {
    JobArtifactSet artifacts = JobArtifactSet$.MODULE$.getActiveOrDefault(context);
    Iterator jars = artifacts.jars().keysIterator();
    while (jars.hasNext()) {
      if (((String) jars.next()).endsWith(name)) {
        return true;
      }
    }
    return false;
  }
}
