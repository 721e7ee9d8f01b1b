-- Replaces the hours of each batch, here a day.
{{ config(
    materialized='incremental',
    incremental_strategy='microbatch',
    event_time='flown_at',
    begin='2026-01-01',
    batch_size='day'
) }}

select id, carrier, flown_at, delay from {{ ref('flights') }}
