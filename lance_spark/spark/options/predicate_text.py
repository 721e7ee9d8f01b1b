"""The text of a predicate in an option, and the settings of the session that change its meaning.

| push-down | planning process | tasks |
| --- | --- | --- |
| on | gets all settings from the optimizer rule | check nothing |
| off | parses the text by Spark's defaults | refuse a text that the session's settings change |

Spark starts the planning process without the settings of the session. Tasks get those that the user
has set, as local properties. The time zone is different: it comes from the option timezone or from
the rule. Without both, a predicate that needs it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import SPARK_NAMES, SqlSettings, parse_predicate
from lance_spark.predicates.tree import Predicate


@dataclass(frozen=True, slots=True)
class OptionText:
    """The text of a predicate. Can be pickled.

    - `schema`: Columns that it can name.
    - `settings`: Settings that the planning process parses it with.
    - `from_session`: Whether they are the settings of the session, not Spark's defaults.
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
        """Return a text with the settings that the planning process parses it with.

        - `session`: Settings of the session, if the rule has sent them.
        - `time_zone`: Value of the option timezone.
        """
        settings = session
        if settings is None:
            # Spark's own default of ANSI mode. The planning process runs on the driver, as Spark.
            ansi = str(os.environ.get("SPARK_ANSI_SQL_MODE") != "false").lower()
            settings = settings_of_session({SPARK_NAMES["ansi"]: ansi})
        if time_zone is not None:
            settings = replace(settings, time_zone=time_zone)
        return cls(option, text, schema, settings, session is not None)

    def predicate(self) -> Predicate:
        """Return the predicate of the text.

        Raises InvalidInputError: the text is not a predicate on the columns. If it is one under
        another setting of the session, the error names the setting.
        """
        try:
            return parse_predicate(self.text, self.schema, self.settings)
        except InvalidInputError as error:
            settings = [] if self.from_session else self._settings_that_help()
            if not settings:
                raise
            raise InvalidInputError(
                f"{error}. Option {self.option} is parsed by Spark's default settings; the text is "
                f"a condition with {' or '.join(settings)}. If the session has that setting, call "
                "lance_spark.enable(spark), which sends the session's settings, except with a "
                "stream, or use .where(...) or a method of LanceTable"
            ) from None

    def _settings_that_help(self) -> list[str]:
        """Return each setting of Spark, with its value, that alone makes the text a condition."""
        helpful = []
        for name, setting in SPARK_NAMES.items():
            default = getattr(self.settings, name)
            if name == "time_zone":
                # Errors about time zones ask for the option timezone.
                continue
            other_value: Any = "TIMESTAMP_NTZ" if isinstance(default, str) else not default
            changed: dict[str, Any] = {name: other_value}
            if settings_of_session({setting: str(other_value)}) == settings_of_session({}):
                # This release of Spark does not have the setting.
                continue
            try:
                parse_predicate(self.text, self.schema, replace(self.settings, **changed))
            except InvalidInputError:
                continue
            text = str(other_value).lower() if isinstance(other_value, bool) else other_value
            helpful.append(f"{setting}={text}")
        return helpful

    def for_tasks(self) -> OptionText | None:
        """Return the text that tasks check, with the columns it names; None if there is no need."""
        if self.from_session:
            return None
        text = self.text.lower()
        named = [
            field for field in self.schema.fields if field.name.lower().replace("`", "``") in text
        ]
        return replace(self, schema=Schema(tuple(named)))

    def check(self) -> None:
        """Refuse the text if the session of this task gives it another meaning.

        Raises InvalidOptionError.
        """
        session = _session_of_task(self.settings)
        if session == self.settings:
            return
        try:
            is_equal = parse_predicate(self.text, self.schema, session) == self.predicate()
        except InvalidInputError:
            is_equal = False
        if is_equal:
            return
        old, new = self.settings.changed(), session.changed()
        changed = {name: new.get(name) for name in {*old, *new} if old.get(name) != new.get(name)}
        shown = ", ".join(
            name if value is None else f"{name}={value}" for name, value in sorted(changed.items())
        )
        raise InvalidOptionError(
            f"option {self.option}: {self.text!r} is parsed by Spark's default settings, and this "
            f"session has others that may change its meaning: {shown}. Call "
            "lance_spark.enable(spark), which sends the session's settings, except with a stream, "
            "or use .where(...) or a method of LanceTable"
        )


def settings_of_session(conf: Mapping[str, str | None]) -> SqlSettings:
    """Return the settings of a session of the installed release of Spark.

    - `conf`: Values by Spark's names. A missing name has the default of this release.

    Raises InvalidInputError: Spark does not allow a value.
    """
    if not _has_setting_for_doubled_quotes():
        # Spark 4.0 ignores a setting that it does not have.
        conf = {**conf, SPARK_NAMES["consecutive_string_literals"]: "true"}
    return SqlSettings.from_conf(conf)


def _has_setting_for_doubled_quotes() -> bool:
    """Return whether a doubled quote in a string can stand for a quote: from Spark 4.1 on."""
    from lance_spark.spark.jvm.shims.pyspark_names import RELEASE

    return RELEASE >= (4, 1)


def _session_of_task(planned: SqlSettings) -> SqlSettings:
    """Return the settings of the session that runs this task. Unset settings are as planned."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return planned
    properties = {name: context.getLocalProperty(name) for name in SPARK_NAMES.values()}
    set_values = {name: value for name, value in properties.items() if value}
    session = settings_of_session({**planned.changed(), **set_values})
    return replace(session, time_zone=planned.time_zone)
