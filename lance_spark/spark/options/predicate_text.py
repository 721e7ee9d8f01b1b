"""The text of a predicate among options, and the settings of the session that it is read by.

| | planning process | tasks |
| --- | --- | --- |
| with push-down | is told all settings that matter, by the optimizer rule | |
| without | knows none, and takes Spark's defaults | see those that are set in the session, and refuse a text that these change |

Spark starts the planning process with no setting of the session. Tasks get those that are not left
at their defaults, as local properties. The time zone is none of these settings: it is the option
timezone, or what the rule tells; without both a predicate that needs it is refused.
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
        Columns that it can name.
    settings : SqlSettings
        That planning reads it by.
    told : bool
        Whether they are those of the session.
    """

    option: str
    text: str
    schema: Schema
    settings: SqlSettings
    told: bool

    @classmethod
    def planned(
        cls,
        option: str,
        text: str,
        schema: Schema,
        session: SqlSettings | None,
        time_zone: str | None,
    ) -> OptionText:
        """Return a text as planning reads it.

        Parameters
        ----------
        option : str
        text : str
        schema : Schema
        session : SqlSettings, optional
            Of the session, as the rule tells them.
        time_zone : str, optional
            Of the option timezone.
        """
        settings = session
        if settings is None:
            # Spark's own default, on the driver, where this runs too.
            ansi = str(os.environ.get("SPARK_ANSI_SQL_MODE") != "false").lower()
            settings = settings_of_session({SPARK_NAMES["ansi"]: ansi})
        if time_zone is not None:
            settings = replace(settings, time_zone=time_zone)
        return cls(option, text, schema, settings, session is not None)

    def predicate(self) -> Predicate:
        """Return what the text says.

        Raises
        ------
        InvalidInputError
            It is no predicate on the columns. If it is one under another setting of the session,
            the error names it.
        """
        try:
            return parse_predicate(self.text, self.schema, self.settings)
        except InvalidInputError as error:
            settings = [] if self.told else self._settings_that_help()
            if not settings:
                raise
            raise InvalidInputError(
                f"{error}. Option {self.option} is read by Spark's default settings here; the text "
                "is a condition with "
                f"{' or '.join(settings)}. If the session has that setting, call "
                "lance_spark.enable(spark), which hands it "
                "over, or use .where(...) or a method of LanceTable"
            ) from None

    def _settings_that_help(self) -> list[str]:
        """Return the settings of Spark, each with a value, that alone make a condition of the
        text.
        """
        result = []
        for name, setting in SPARK_NAMES.items():
            default = getattr(self.settings, name)
            if name == "time_zone":
                # The option timezone is what errors about zones ask for.
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
        """Return what tasks have to check, with the columns that matter; None if there is nothing
        to check.
        """
        if self.told:
            return None
        text = self.text.lower()
        named = [
            field for field in self.schema.fields if field.name.lower().replace("`", "``") in text
        ]
        return replace(self, schema=Schema(tuple(named)))

    def check(self) -> None:
        """Refuse the text if the session that runs this task would read it differently.

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
            f"option {self.option}: {self.text!r} is read by Spark's default settings, and this "
            "session has others that may change "
            f"its meaning: {shown}. Call lance_spark.enable(spark), which hands the settings over, "
            "or use .where(...) or a method of "
            "LanceTable"
        )


def _session_of_task(planned: SqlSettings) -> SqlSettings:
    """Return the settings of the session as this task sees them; what it does not see is as
    planned.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return planned
    seen = {name: context.getLocalProperty(name) for name in SPARK_NAMES.values()}
    session = settings_of_session({**planned.changed(), **{k: v for k, v in seen.items() if v}})
    return replace(session, time_zone=planned.time_zone)
