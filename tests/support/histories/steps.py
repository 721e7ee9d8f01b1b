"""The changes of random histories.

A maker gets what is common to a history, the state that the change is planned on and randomness, and returns the change, or None if
there is nothing of the kind to change.
"""

from __future__ import annotations

from tests.support.histories.columns import (
    add_child,
    add_column,
    alter_child,
    alter_nullability,
    cast_column,
    drop_column,
    rename_column,
)
from tests.support.histories.common import Maker
from tests.support.histories.layout import (
    config,
    create_index,
    drop_index,
    metadata,
    optimize_indices,
    overlay,
    replace_data,
    schema_metadata,
)
from tests.support.histories.rows import (
    append,
    compact,
    delete,
    delete_chosen,
    merge_insert,
    overwrite,
    update,
    update_columns,
    update_overlay,
)

#: Makers with how often they are chosen.
MAKERS: dict[Maker, int] = {
    append: 6,
    delete: 5,
    delete_chosen: 1,
    update: 5,
    update_columns: 4,
    update_overlay: 4,
    merge_insert: 4,
    compact: 4,
    add_column: 3,
    drop_column: 1,
    rename_column: 1,
    cast_column: 2,
    alter_child: 1,
    add_child: 1,
    alter_nullability: 1,
    config: 1,
    metadata: 1,
    schema_metadata: 1,
    replace_data: 2,
    overlay: 4,
    create_index: 4,
    optimize_indices: 1,
    drop_index: 1,
    overwrite: 1,
}
