package org.lancespark;

import java.math.BigInteger;
import java.time.Instant;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneOffsetTransitionRule;
import java.time.zone.ZoneRules;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import scala.collection.Iterator;

/**
 * Writes Catalyst expressions as the forms of values (Forms), if tasks compute them as Spark would
 * for every row, under all settings of a session, and without an error.
 */
final class ValueForms {
  /** Functions by the names of their classes in Spark. */
  private static final Map FUNCTIONS = functions();

  /** Operators by the names of their classes in Spark. */
  private static final Map OPERATORS = operators();

  /** Units of TruncTimestamp and TruncDate. */
  private static final List UNITS =
      Arrays.asList(
          new String[] {"year", "quarter", "month", "week", "day", "hour", "minute", "second"});

  private static final int DATE_UNITS = 4;

  /** Characters of the longest offset of a zone that Python reads, such as +05:30. */
  private static final int OFFSET_CHARACTERS = 6;

  /** Years after which the days of the week are on the same dates again. */
  private static final int REPEATED_YEARS = 400;

  private static final int FIRST_YEAR = 1900;

  private ValueForms() {}

  private static Map functions() {
    Map names = new HashMap();
    String[] same = {"Year", "Quarter", "Month", "DayOfYear", "DayOfWeek", "WeekDay", "Length"};
    for (int i = 0; i < same.length; i++) {
      names.put(same[i], same[i].toLowerCase(java.util.Locale.ROOT));
    }
    names.put("DayOfMonth", "day");
    return names;
  }

  private static Map operators() {
    Map names = new HashMap();
    names.put("Add", "+");
    names.put("Subtract", "-");
    names.put("Multiply", "*");
    names.put("Remainder", "%");
    return names;
  }

  /** Returns whether an expression is an integer: not a decimal. */
  static boolean isInteger(DataType type) {
    return bits(type) > 0;
  }

  private static int bits(DataType type) {
    if (type.equals(DataTypes.ByteType)) return 8;
    if (type.equals(DataTypes.ShortType)) return 16;
    if (type.equals(DataTypes.IntegerType)) return 32;
    return type.equals(DataTypes.LongType) ? 64 : 0;
  }

  /** Returns the form of a value, or null if Spark must compute it. */
  static Map write(Expression e) {
    if (e instanceof Literal) {
      return Forms.literal(((Literal) e).value(), e.dataType());
    }
    if (e instanceof AttributeReference) {
      List path = new ArrayList();
      path.add(((AttributeReference) e).name());
      return Forms.isComparable(e.dataType()) ? Forms.column(path) : null;
    }
    if (e instanceof If || e instanceof CaseWhen) {
      return choice(e);
    }
    if (e instanceof Coalesce) {
      return firstValid(e);
    }
    if (e.dataType().equals(DataTypes.BooleanType)) {
      return condition(e);
    }
    if (e instanceof Cast) {
      return cast((Cast) e);
    }
    if (e instanceof BinaryArithmetic) {
      return arithmetic((BinaryArithmetic) e);
    }
    if (e instanceof UnscaledValue) {
      return Forms.operation("unscaled", new Object[] {write((Expression) ((UnscaledValue) e).child())});
    }
    return function(e);
  }

  /** Returns the form of a condition: of a filter, over columns of types that are compared. */
  private static Map condition(Expression e) {
    for (Iterator i = e.references().iterator(); i.hasNext(); ) {
      if (!Forms.isComparable(((Expression) i.next()).dataType())) {
        return null;
      }
    }
    Object form = Expressions.write(e);
    return Forms.isSent(form) ? (Map) form : null;
  }

  /** Returns the form of the first value that is not null. */
  private static Map firstValid(Expression e) {
    List arguments = new ArrayList();
    int last = e.children().size() - 1;
    for (int i = 0; i <= last; i++) {
      Expression value = (Expression) e.children().apply(i);
      if (i < last) {
        arguments.add(condition(new IsNotNull(value)));
      }
      arguments.add(write(value));
    }
    return Forms.operation("case", arguments.toArray());
  }

  /** Returns the form of a choice, whose children are conditions, their values, and another one. */
  private static Map choice(Expression e) {
    List arguments = new ArrayList();
    int count = e.children().size();
    for (int i = 0; i < count; i++) {
      Expression child = (Expression) e.children().apply(i);
      arguments.add(i % 2 == 0 && i + 1 < count ? condition(child) : write(child));
    }
    if (count % 2 == 0) {
      arguments.add(Forms.literal(null, e.dataType()));
    }
    return Forms.operation("case", arguments.toArray());
  }

  /**
   * Returns the form of a cast of an integer to a wider one, of a number to a decimal that has all its
   * digits, or of a timestamp to its date.
   */
  private static Map cast(Cast e) {
    Expression value = (Expression) e.child();
    DataType from = value.dataType();
    DataType to = e.dataType();
    if (to instanceof DecimalType) {
      return Decimals.holds((DecimalType) to, from) ? Decimals.form("cast", e, false) : null;
    }
    boolean isWider = isInteger(from) && isInteger(to) && bits(from) <= bits(to);
    boolean isDate = isTimestamp(from) && to.equals(DataTypes.DateType);
    if (!isWider && !isDate) {
      return null;
    }
    Map form = Forms.operation("cast", new Object[] {write(value)});
    if (form == null) {
      return null;
    }
    form.put("type", to.catalogString());
    return isDate ? zoned(form, e, from) : form;
  }

  private static boolean isTimestamp(DataType type) {
    return type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
  }

  /**
   * Adds the zone of an expression to a form: its one offset, or the offsets of Java, because
   * Python's zones may be of another release.
   */
  private static Map zoned(Map form, Expression e, DataType type) {
    if (form == null || type.equals(DataTypes.TimestampNTZType)) {
      return form;
    }
    ZoneRules rules = ((TimeZoneAwareExpression) e).zoneId().getRules();
    String offset = rules.getOffset(Instant.EPOCH).getId();
    if (rules.isFixedOffset() && offset.length() <= OFFSET_CHARACTERS) {
      form.put("zone", offset);
      return form;
    }
    form.put("offsets", offsets(rules));
    form.put("repeats", Boolean.valueOf(!rules.getTransitionRules().isEmpty()));
    return form;
  }

  /**
   * Returns the first offset of a zone in seconds, and then the second of each change and the offset
   * after it: of 400 years after the last change that is no rule, because the calendar repeats then.
   */
  private static List offsets(ZoneRules rules) {
    List changes = new ArrayList(rules.getTransitions());
    long last = Long.MIN_VALUE;
    int year = FIRST_YEAR;
    if (!changes.isEmpty()) {
      ZoneOffsetTransition change = (ZoneOffsetTransition) changes.get(changes.size() - 1);
      last = change.toEpochSecond();
      year = change.getDateTimeBefore().getYear();
    }
    Object[] recurring = rules.getTransitionRules().toArray();
    for (int i = 0; recurring.length > 0 && i <= REPEATED_YEARS + 2; i++) {
      List ofYear = new ArrayList();
      for (int j = 0; j < recurring.length; j++) {
        ZoneOffsetTransition change =
            ((ZoneOffsetTransitionRule) recurring[j]).createTransition(year + i);
        if (change.toEpochSecond() > last) {
          ofYear.add(change);
        }
      }
      Collections.sort(ofYear);
      changes.addAll(ofYear);
    }
    List seconds = new ArrayList();
    seconds.add(Integer.valueOf(rules.getOffset(Instant.MIN).getTotalSeconds()));
    for (int i = 0; i < changes.size(); i++) {
      ZoneOffsetTransition change = (ZoneOffsetTransition) changes.get(i);
      seconds.add(Long.valueOf(change.toEpochSecond()));
      seconds.add(Integer.valueOf(change.getOffsetAfter().getTotalSeconds()));
    }
    return seconds;
  }

  private static Map arithmetic(BinaryArithmetic e) {
    String name = (String) OPERATORS.get(SparkClasses.of(e));
    if (name != null && e.dataType() instanceof DecimalType) {
      return name.equals("%") ? null : Decimals.form(name, e, Decimals.canFail(e));
    }
    if (name == null || !isInteger(e.dataType())) {
      return null;
    }
    Expression left = (Expression) e.left();
    Expression right = (Expression) e.right();
    boolean isExact =
        name.equals("%")
            ? isDivisor(right)
            : "LEGACY".equals(String.valueOf(e.evalMode())) || isInRange(e);
    return isExact ? Forms.operation(name, new Object[] {write(left), write(right)}) : null;
  }

  private static boolean isDivisor(Expression e) {
    if (!(e instanceof Literal) || !(((Literal) e).value() instanceof Number)) {
      return false;
    }
    long value = ((Number) ((Literal) e).value()).longValue();
    return value != 0 && value != -1;
  }

  /** Returns whether all results of arithmetic with integers fit its type. */
  static boolean isInRange(Expression e) {
    return within(results(e), e.dataType());
  }

  private static boolean within(BigInteger[] range, DataType type) {
    BigInteger[] all = all(type);
    return range != null && range[0].compareTo(all[0]) >= 0 && range[1].compareTo(all[1]) <= 0;
  }

  private static BigInteger[] all(DataType type) {
    BigInteger bound = BigInteger.ONE.shiftLeft(bits(type) - 1);
    return new BigInteger[] {bound.negate(), bound.subtract(BigInteger.ONE)};
  }

  /** Returns the least and the greatest value that an integer can have. */
  private static BigInteger[] range(Expression e) {
    if (e instanceof Literal && ((Literal) e).value() instanceof Number) {
      BigInteger value = BigInteger.valueOf(((Number) ((Literal) e).value()).longValue());
      return new BigInteger[] {value, value};
    }
    if (e instanceof Cast && isInteger(((Expression) ((Cast) e).child()).dataType())) {
      BigInteger[] range = range((Expression) ((Cast) e).child());
      return within(range, e.dataType()) ? range : all(e.dataType());
    }
    if (e instanceof BinaryArithmetic) {
      BigInteger[] range = results(e);
      return within(range, e.dataType()) ? range : all(e.dataType());
    }
    return all(e.dataType());
  }

  /** Returns the least and the greatest result of arithmetic without overflow, or null. */
  private static BigInteger[] results(Expression e) {
    String name = (String) OPERATORS.get(SparkClasses.of(e));
    if (name == null || name.equals("%") || !isInteger(e.dataType())) {
      return null;
    }
    BigInteger[] left = range((Expression) ((BinaryArithmetic) e).left());
    BigInteger[] right = range((Expression) ((BinaryArithmetic) e).right());
    BigInteger[] ends = new BigInteger[4];
    for (int i = 0; i < 4; i++) {
      BigInteger a = left[i / 2];
      BigInteger b = right[i % 2];
      ends[i] = name.equals("+") ? a.add(b) : name.equals("-") ? a.subtract(b) : a.multiply(b);
    }
    Arrays.sort(ends);
    return new BigInteger[] {ends[0], ends[3]};
  }

  /** Returns whether the computation of an expression can raise an error for a row. */
  static boolean canFail(Expression e) {
    if (e instanceof BinaryArithmetic
        && e.dataType() instanceof DecimalType
        && Decimals.canFail((BinaryArithmetic) e)) {
      return true;
    }
    for (Iterator i = e.children().iterator(); i.hasNext(); ) {
      if (canFail((Expression) i.next())) {
        return true;
      }
    }
    return false;
  }

  /** Arithmetic of decimals, whose results have the types of Spark's rules. */
  static final class Decimals {
    private Decimals() {}

    /** Returns whether a decimal type has all values of another type, which is an integer's too. */
    static boolean holds(DecimalType type, DataType other) {
      if (!isInteger(other) && !(other instanceof DecimalType)) {
        return false;
      }
      int digits = type.precision() - type.scale();
      return digits >= precision(other) - scale(other) && type.scale() >= scale(other);
    }

    /** Returns digits that hold all values of a type. */
    private static int precision(DataType type) {
      if (type instanceof DecimalType) {
        return ((DecimalType) type).precision();
      }
      int bits = bits(type);
      return bits == 64 ? 19 : bits == 32 ? 10 : bits == 16 ? 5 : 3;
    }

    private static int scale(DataType type) {
      return type instanceof DecimalType ? ((DecimalType) type).scale() : 0;
    }

    /** Returns whether a result can have too many digits for its type, and is an error then. */
    static boolean canFail(BinaryArithmetic e) {
      DataType left = ((Expression) e.left()).dataType();
      DataType right = ((Expression) e.right()).dataType();
      boolean isProduct = "*".equals(OPERATORS.get(SparkClasses.of(e)));
      int digits =
          isProduct
              ? precision(left) - scale(left) + precision(right) - scale(right)
              : Math.max(precision(left) - scale(left), precision(right) - scale(right)) + 1;
      // One more, because a result can be rounded up.
      int exact = isProduct ? scale(left) + scale(right) : Math.max(scale(left), scale(right));
      DecimalType type = (DecimalType) e.dataType();
      int needed = digits + (exact > type.scale() ? 1 : 0);
      return needed > type.precision() - type.scale()
          && "ANSI".equals(String.valueOf(e.evalMode()));
    }

    static Map form(String name, Expression e, boolean fails) {
      Object[] arguments = new Object[e.children().size()];
      for (int i = 0; i < arguments.length; i++) {
        Expression child = (Expression) e.children().apply(i);
        boolean isNumber = isInteger(child.dataType()) || child.dataType() instanceof DecimalType;
        arguments[i] = isNumber ? write(child) : null;
      }
      Map form = Forms.operation(name, arguments);
      if (form != null) {
        form.put("type", e.dataType().catalogString());
        form.put("fails", Boolean.valueOf(fails));
      }
      return form;
    }
  }

  private static Map function(Expression e) {
    String name = SparkClasses.of(e);
    if (name.equals("Hour") || name.equals("Minute") || name.equals("Second")) {
      Expression time = (Expression) e.children().apply(0);
      return isTimestamp(time.dataType())
          ? zoned(call(name.toLowerCase(java.util.Locale.ROOT), e, 1), e, time.dataType())
          : null;
    }
    if (name.equals("TruncTimestamp")) {
      Expression time = (Expression) e.children().apply(1);
      return isUnit((Expression) e.children().apply(0), UNITS.size())
              && time.dataType().equals(DataTypes.TimestampType)
          ? zoned(call("date_trunc", e, 2), e, time.dataType())
          : null;
    }
    if (name.equals("TruncDate")) {
      return isUnit((Expression) e.children().apply(1), DATE_UNITS) ? call("trunc", e, 2) : null;
    }
    if (name.equals("Substring")) {
      boolean areLiterals =
          e.children().apply(1) instanceof Literal && e.children().apply(2) instanceof Literal;
      return areLiterals && e.dataType().equals(DataTypes.StringType)
          ? call("substring", e, 3)
          : null;
    }
    if (!FUNCTIONS.containsKey(name)) {
      return null;
    }
    DataType type = ((Expression) e.children().apply(0)).dataType();
    DataType expected = name.equals("Length") ? DataTypes.StringType : DataTypes.DateType;
    return type.equals(expected) ? call((String) FUNCTIONS.get(name), e, 1) : null;
  }

  private static Map call(String function, Expression e, int count) {
    Object[] arguments = new Object[count];
    for (int i = 0; i < count; i++) {
      arguments[i] = write((Expression) e.children().apply(i));
    }
    Map form = Forms.operation("call", arguments);
    if (form != null) {
      form.put("function", function);
    }
    return form;
  }

  private static boolean isUnit(Expression e, int units) {
    if (!(e instanceof Literal) || ((Literal) e).value() == null) {
      return false;
    }
    String unit = ((Literal) e).value().toString().toLowerCase(java.util.Locale.ROOT);
    int index = UNITS.indexOf(unit);
    return index >= 0 && index < units;
  }

  /** Returns the JSON text of the schema of the columns that an expression reads. */
  static String sources(Expression e) {
    org.apache.spark.sql.types.StructType columns = new org.apache.spark.sql.types.StructType();
    for (Iterator i = e.references().iterator(); i.hasNext(); ) {
      AttributeReference column = (AttributeReference) i.next();
      columns = columns.add(column.name(), column.dataType(), true);
    }
    return columns.json();
  }

  /** Returns computed columns as EXPLAIN shows them. */
  static String shown(List columns) {
    StringBuilder text = new StringBuilder("[");
    for (int i = 0; i < columns.size(); i++) {
      Map column = (Map) columns.get(i);
      text.append(i == 0 ? "" : ", ").append(column.get("sql"));
      text.append(" AS ").append(column.get("name"));
    }
    return text.append("]").toString();
  }

  /** Returns a computed column: its name, its type, its form, and how EXPLAIN shows it. */
  static Map column(String name, Expression e, DataType type, Map form) {
    Map column = new LinkedHashMap();
    column.put("name", name);
    column.put("value", form);
    column.put("sql", e.sql());
    column.put("sources", sources(e));
    column.put("type", type.json());
    return column;
  }
}
