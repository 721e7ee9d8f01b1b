-- Appends the flights that it does not have.
{{ config(materialized='incremental', incremental_strategy='append') }}

select id, carrier, flown_at, current_timestamp() as loaded_at from {{ ref('flights') }}
{% if is_incremental() %}
where id > (select coalesce(max(id), 0) from {{ this }})
{% endif %}
