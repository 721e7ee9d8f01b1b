-- Arrays of a fixed size are vectors. Each run replaces the rows, so the index is built after it.
{{ config(
    materialized='table',
    tblproperties={'embedding.arrow.fixed-size-list.size': '2'},
    post_hook="alter table {{ this }} create index by_id using btree (id)"
) }}

select id, array(cast(delay as float), cast(hour(flown_at) as float)) as embedding
from {{ ref('flights') }}
