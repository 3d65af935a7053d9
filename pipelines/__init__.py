"""PySpark jobs over Inlay tables: `python -m pipelines.compact --help` here, `spark-submit` on a cluster.

docs/SPARK.md shows both.
"""
