"""The data pipeline: PySpark Structured Streaming jobs over topics, with the stock `spark-sql-kafka-0-10` connector.

`jobs/` holds one program per module and `generators/` the events to feed it; the rest is the small framework that
reads, writes, runs and reports. Speaks to a broker over the wire only: nothing here imports `broker`, `controller`
or `storage`. A module imports pyspark inside the functions that need it, so that `list` and `describe` work without.
"""
