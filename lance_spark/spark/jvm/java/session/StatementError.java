package org.lancespark;

import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;

/**
 * An AnalysisException as a ParseException, the only checked exception that the methods of a parser
 * declare. A proxy wraps other ones, and the condition of the error would be lost.
 */
final class StatementError extends SparkRelease.ParserError {
  private static final long serialVersionUID = 1L;

  private final AnalysisException error;

  StatementError(AnalysisException error) {
    super(new scala.collection.immutable.Map.Map2("error", "", "hint", ""));
    this.error = error;
    setStackTrace(error.getStackTrace());
  }

  public String getMessage() {
    return error.getMessage();
  }

  public String getSimpleMessage() {
    return error.getSimpleMessage();
  }

  public String getCondition() {
    return error.getCondition();
  }

  public String getErrorClass() {
    return error.getCondition();
  }

  public String getSqlState() {
    return error.getSqlState();
  }

  public Map getMessageParameters() {
    return error.getMessageParameters();
  }

  public QueryContext[] getQueryContext() {
    return error.getQueryContext();
  }

  public Throwable getCause() {
    return error.getCause();
  }
}
