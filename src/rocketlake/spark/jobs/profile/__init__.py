"""What is in a store: messages, bytes, rates, sizes, latency, skew, keys, groups; over time.

`planning` looks beforehand, `scanning` reads once and counts in Spark, `building` asks the counts
for small tables (`tables`), `findings` says what stands out, `page` shows it.
"""
