"""Spark's daemon of Python workers, which has imported what each worker would: workers are forks of it."""

import inlay.spark.source  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
