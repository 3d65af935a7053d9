"""Orders that are still open, in their own table.

Spark runs this file to find sinks and flows; the run's configuration (`spark-pipeline.yml`) has the tables'
locations. A run reads what was appended since the last one.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("open_orders", "inlay", {"path": spark.conf.get("spark.inlay.open_orders")})


@dp.append_flow(target="open_orders")
def take_open_orders() -> DataFrame:
    orders = spark.readStream.format("inlay").load(spark.conf.get("spark.inlay.orders"))
    return orders.where("status = 'O'")
