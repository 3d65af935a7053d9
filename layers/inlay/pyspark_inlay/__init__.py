"""Registers the format "inlay" with Spark, which imports every module named `pyspark_…` and registers its
`DefaultSource`.

One such module that fails to import breaks the lookup of all sources, even those unrelated to Inlay. So
where Inlay cannot be imported (an older PySpark, a missing package), the format raises an error that says
why when it is used.
"""

from contextlib import suppress

try:
    from inlay.spark.source import InlayDataSource as DefaultSource
except Exception as error:
    _WHY = f"{type(error).__name__}: {error}"

    # PySpark before 4.0 has no Python sources.
    with suppress(Exception):
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            @classmethod
            def name(cls) -> str:
                return "inlay"

            def __init__(self, options: object) -> None:
                raise ImportError(_WHY)
