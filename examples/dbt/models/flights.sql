-- A catalog of Lance tables has no views: there, the query becomes a part of those that read it.
{{ config(materialized='view' if var('has_views', not target.schema.startswith('lance.')) else 'ephemeral') }}

select id, carrier, origin, cast(flown_at as date) as day, flown_at, greatest(delay, 0) as delay
from {{ ref('raw_flights') }}
