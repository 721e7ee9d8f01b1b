package org.lancespark;

import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import scala.Option;

/**
 * An AnalysisException as a ParseException, the only checked exception that the methods of a parser
 * declare. A proxy wraps other ones, and the condition of the error would be lost. The folders of
 * the other releases have the same class.
 */
final class StatementError extends ParseException {
  private static final long serialVersionUID = 1L;

  private final AnalysisException error;

  StatementError(AnalysisException error) {
    super(
        Option.empty(),
        CurrentOrigin.get(),
        "PARSE_SYNTAX_ERROR",
        new scala.collection.immutable.Map.Map2("error", "", "hint", ""));
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
