-- Replaces the days that the query returns.
{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='day') }}

select day, count(*) as flights, sum(delay) as delay from {{ ref('flights') }}
{% if is_incremental() %}
where day >= (select max(day) from {{ this }})
{% endif %}
group by day
