-- A table: each run replaces its rows, and is a new version.
{{ config(materialized='table') }}

select c.code, c.name, count(*) as flights, avg(f.delay) as mean_delay
from {{ ref('flights') }} as f join {{ ref('carriers') }} as c on f.carrier = c.code
group by c.code, c.name
