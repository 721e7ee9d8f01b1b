-- Updates flights by their id, and inserts new ones.
{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key='id',
    on_schema_change='sync_all_columns',
    post_hook="create index if not exists by_id on {{ this }} (id)"
) }}

select id, carrier, delay from {{ ref('flights') }}
