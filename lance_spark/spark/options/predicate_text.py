"""The text of a predicate in an option, and the session settings that its parser needs.

- With push-down, the optimizer rule sends all relevant settings to the planning process.
- Without push-down, the planning process assumes the defaults of Spark. Tasks see the changed
  settings of the session, and refuse a text whose meaning they change.

Spark starts the planning process without session settings. Tasks receive settings with values other
than the default, as local properties. The time zone is an exception: it comes from the option
timezone or from the rule. Without both, a predicate that needs a time zone is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.sql import SPARK_NAMES, SqlSettings, parse_predicate
from lance_spark.scan.predicates.tree import Predicate
from lance_spark.spark.pushdown.sql_settings import settings_of_session


@dataclass(frozen=True, slots=True)
class OptionText:
    """The text of a predicate. Can be pickled.

    Attributes
    ----------
    option : str
        Name of the option.
    text : str
    schema : Schema
        Columns that the text can name.
    settings : SqlSettings
        Settings for the parser.
    from_session : bool
        Whether they are the settings of the session, not defaults.
    """

    option: str
    text: str
    schema: Schema
    settings: SqlSettings
    from_session: bool

    @classmethod
    def planned(
        cls,
        option: str,
        text: str,
        schema: Schema,
        session: SqlSettings | None,
        time_zone: str | None,
    ) -> OptionText:
        """Return a text with the settings that planning uses.

        Parameters
        ----------
        option : str
        text : str
        schema : Schema
        session : SqlSettings, optional
            Settings of the session, which the rule sends.
        time_zone : str, optional
            Value of the option timezone.
        """
        settings = session
        if settings is None:
            # Spark's default depends on this variable of the driver, where planning runs too.
            ansi = str(os.environ.get("SPARK_ANSI_SQL_MODE") != "false").lower()
            settings = settings_of_session({SPARK_NAMES["ansi"]: ansi})
        if time_zone is not None:
            settings = replace(settings, time_zone=time_zone)
        return cls(option, text, schema, settings, session is not None)

    def predicate(self) -> Predicate:
        """Parse the text.

        Raises
        ------
        InvalidInputError
            The text is not a predicate on the columns. The error names settings under which it
            would be one.
        """
        try:
            return parse_predicate(self.text, self.schema, self.settings)
        except InvalidInputError as error:
            settings = [] if self.from_session else self._settings_that_help()
            if not settings:
                raise
            raise InvalidInputError(
                f"{error}. Option {self.option} was parsed with the default settings of Spark; the "
                f"text is valid with {' or '.join(settings)}. If the session has that setting, "
                "call lance_spark.enable(spark), which passes the settings on, or use .where(...) "
                "or a method of LanceTable"
            ) from None

    def _settings_that_help(self) -> list[str]:
        """Return the Spark settings, with values, each of which makes the text valid."""
        result = []
        for name, setting in SPARK_NAMES.items():
            default = getattr(self.settings, name)
            if name == "time_zone":
                # Errors about time zones already suggest the option timezone.
                continue
            other: Any = "TIMESTAMP_NTZ" if isinstance(default, str) else not default
            changed: dict[str, Any] = {name: other}
            if settings_of_session({setting: str(other)}) == settings_of_session({}):
                # This release of Spark does not have the setting.
                continue
            try:
                parse_predicate(self.text, self.schema, replace(self.settings, **changed))
            except InvalidInputError:
                continue
            result.append(f"{setting}={str(other).lower() if isinstance(other, bool) else other}")
        return result

    def for_tasks(self) -> OptionText | None:
        """Return the text that tasks must check, with the relevant columns; None without need."""
        if self.from_session:
            return None
        text = self.text.lower()
        named = [
            field for field in self.schema.fields if field.name.lower().replace("`", "``") in text
        ]
        return replace(self, schema=Schema(tuple(named)))

    def check(self) -> None:
        """Refuse the text if the session of this task would parse it differently.

        Raises
        ------
        InvalidOptionError
        """
        session = _session_of_task(self.settings)
        if session == self.settings:
            return
        try:
            same = parse_predicate(self.text, self.schema, session) == self.predicate()
        except InvalidInputError:
            same = False
        if same:
            return
        old, new = self.settings.changed(), session.changed()
        changed = {name: new.get(name) for name in {*old, *new} if old.get(name) != new.get(name)}
        shown = ", ".join(
            name if value is None else f"{name}={value}" for name, value in sorted(changed.items())
        )
        raise InvalidOptionError(
            f"option {self.option}: {self.text!r} was parsed with the default settings of Spark, "
            f"and settings of this session can change its meaning: {shown}. Call "
            "lance_spark.enable(spark), which passes the settings on, or use .where(...) or a "
            "method of LanceTable"
        )


def _session_of_task(planned: SqlSettings) -> SqlSettings:
    """Return the session settings that this task sees, completed with the planned settings."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return planned
    seen = {name: context.getLocalProperty(name) for name in SPARK_NAMES.values()}
    session = settings_of_session({**planned.changed(), **{k: v for k, v in seen.items() if v}})
    return replace(session, time_zone=planned.time_zone)
