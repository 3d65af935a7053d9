"""Makes Spark know the format "inlay": Spark imports every module called `pyspark_…` and registers its
`DefaultSource`.

One such module that fails to import breaks the look-up of all sources, also of those that have nothing
to do with Inlay. So where Inlay cannot be imported (an older PySpark, a package that is missing) the
format is one that says why whenever it is used.
"""

from contextlib import suppress

try:
    from inlay.spark.source import InlayDataSource as DefaultSource
except Exception as error:
    _WHY = f"{type(error).__name__}: {error}"

    # PySpark before 4.0 knows no sources in Python at all.
    with suppress(Exception):
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            @classmethod
            def name(cls) -> str:
                return "inlay"

            def __init__(self, options: object) -> None:
                raise ImportError(_WHY)
