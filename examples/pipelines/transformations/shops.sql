CREATE MATERIALIZED VIEW shops AS
SELECT shop, count(*) AS reviews, round(avg(stars), 1) AS stars FROM reviews GROUP BY shop;

CREATE MATERIALIZED VIEW liked_by_shop AS
SELECT shop, count(*) AS reviews FROM liked GROUP BY shop;
