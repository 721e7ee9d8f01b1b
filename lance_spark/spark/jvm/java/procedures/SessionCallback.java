package org.lancespark;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.unsafe.Platform;

/**
 * A call of a Python function that runs Spark jobs in the session of the caller.
 *
 * <p>Each call starts a py4j server, as pyspark has one, on the loopback interface and with a
 * secret of its own. The function connects to it, and calls `enter` first. The jobs that it runs
 * have the properties of the calling thread, such as the job group and tags, so that what cancels
 * the statement cancels them.
 */
public final class SessionCallback implements Runnable {
  private static final String TAGS = "spark.job.tags";
  private static final Map RUNNING = new ConcurrentHashMap();

  private final SparkSession session;
  private final String function;
  private final Map arguments;
  private final String token = "lance-" + UUID.randomUUID();
  private final Properties properties;
  private final Object tags;
  private final Object argument;
  private volatile Object returned;
  private volatile Map reply;
  private volatile Throwable failure;

  private SessionCallback(SparkSession session, String function, Map arguments, Object argument) {
    this.session = session;
    this.argument = argument;
    this.function = function;
    this.arguments = arguments;
    properties = (Properties) session.sparkContext().getLocalProperties().clone();
    // The jobs belong to executions of their own.
    properties.remove("spark.sql.execution.id");
    String before = properties.getProperty(TAGS);
    properties.setProperty(TAGS, before == null || before.isEmpty() ? token : before + "," + token);
    tags = SparkShims.jobTags(session).get();
  }

  /** Calls a function, and raises the error of its reply as an AnalysisException. */
  static Map result(String function, Map arguments) {
    Map reply = new SessionCallback(SparkSession.active(), function, arguments, null).answer();
    if (reply.containsKey("error")) {
      Errors.raise((Map) reply.get("error"), null, null);
    }
    return reply;
  }

  /**
   * Calls a function with an object of the JVM, and returns the object that it returns.
   *
   * @throws IllegalArgumentException the function refuses
   */
  static Object exchanged(String function, Map arguments, Object argument) {
    SessionCallback call = new SessionCallback(SparkSession.active(), function, arguments, argument);
    Map reply = call.answer();
    if (reply.containsKey("error")) {
      throw new IllegalArgumentException((String) ((Map) reply.get("error")).get("message"));
    }
    return call.returned;
  }

  private Map answer() {
    Py4JServer server = new Py4JServer(session.sparkContext().getConf());
    server.start();
    RUNNING.put(token, this);
    // A thread of its own: this one must notice that the statement is cancelled.
    Thread thread = new Thread(this, "lance-call");
    try {
      Map driver = new LinkedHashMap();
      driver.put("port", Integer.valueOf(server.getListeningPort()));
      driver.put("secret", server.secret());
      driver.put("token", token);
      driver.put("python", Interpreters.ofTasks(session.sparkContext()));
      driver.put("archives", Interpreters.archives(session.sparkContext()));
      arguments.put("driver", driver);
      thread.setDaemon(true);
      thread.start();
      thread.join();
    } catch (InterruptedException e) {
      session.sparkContext().cancelJobsWithTag(token);
      Platform.throwException(e);
    } finally {
      RUNNING.remove(token);
      // The function of a cancelled statement loses its connection, and ends with an error.
      server.shutdown();
    }
    if (failure != null) {
      Platform.throwException(failure);
    }
    return reply;
  }

  public void run() {
    try {
      reply = PythonCall.reply(function, arguments);
    } catch (Throwable e) {
      failure = e;
    }
  }

  private static SessionCallback running(Object token) {
    SessionCallback call = (SessionCallback) RUNNING.get(token);
    if (call == null) {
      throw new IllegalStateException("the statement has ended");
    }
    return call;
  }

  /** Returns the object that is the argument of a call. */
  public static Object argument(Object token) {
    return running(token).argument;
  }

  /** Takes the object that a call returns. */
  public static Object giveBack(Object token, Object value) {
    running(token).returned = value;
    return null;
  }

  /** Prepares the thread of a Python function for the jobs of a call; returns the session. */
  public static Object enter(Object token) {
    SessionCallback call = running(token);
    SparkContext context = call.session.sparkContext();
    context.setLocalProperties((Properties) call.properties.clone());
    SparkShims.jobTags(call.session).set(call.tags);
    SparkSession.setActiveSession(call.session);
    return call.session;
  }
}
