-- A view of our own beside the tables that `rocketlake pipeline init` wrote.
CREATE MATERIALIZED VIEW gold_revenue AS
SELECT customer.name AS customer, count(*) AS orders, sum(amount) AS revenue
FROM silver_orders
GROUP BY customer.name;
