"""`LanceSchema`: the fields of a table with their ids, by pylance's names."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import extended_schema
from lance_spark.table.primary_key import primary_key


@dataclass(frozen=True, slots=True)
class LanceField:
    """A field of a schema."""

    _field: Field

    def name(self) -> str:
        """Return the name."""
        return self._field.name

    def id(self) -> int:
        """Return the id."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """Return the fields of a struct, or the items of a list."""
        return [LanceField(child) for child in self._field.children]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata."""
        return {key: value.decode() for key, value in self._field.metadata.items()}

    def to_arrow(self) -> pa.Field:
        """Return the field of Arrow."""
        return extended_schema(pa.schema([self._field.to_arrow()])).field(0)


@dataclass(frozen=True, slots=True)
class LanceSchema:
    """The fields of a table. `LanceOperation.Merge` and others take it."""

    _schema: Schema

    def fields(self) -> list[LanceField]:
        """Return the top-level fields."""
        return [LanceField(field) for field in self._schema.fields]

    def field(self, name: str) -> LanceField | None:
        """Return a field by its name, or dotted path; None if there is none."""
        return self._field_or_none(name, self._schema)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """Return a top-level field by its name, in any case; None if there is none."""
        exact = self.field(name)
        if exact is not None:
            return exact
        fields = (field for field in self._schema.fields if field.name.lower() == name.lower())
        return next((LanceField(field) for field in fields), None)

    def unenforced_primary_key(self) -> list[LanceField]:
        """Return the fields of the primary key."""
        return [LanceField(path[-1]) for path in primary_key(self._schema)]

    def to_pyarrow(self) -> pa.Schema:
        """Return the schema of Arrow."""
        return extended_schema(self._schema.to_arrow())

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """Return a schema with the fields numbered from 0 on."""
        return LanceSchema(Schema.from_arrow(schema))

    @staticmethod
    def _field_or_none(name: str, schema: Schema) -> LanceField | None:
        from lance_spark.errors import InvalidInputError

        try:
            return LanceField(schema.field(name))
        except InvalidInputError:
            return None
