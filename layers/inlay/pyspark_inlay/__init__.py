"""Makes Spark know the format "inlay": Spark imports every module called `pyspark_…` and registers its
`DefaultSource`.

One such module that fails to import breaks the look-up of all sources, also of those that have nothing
to do with Inlay. So where Inlay cannot be imported this module is empty, and Spark says that it does
not know the format; `import inlay.spark` then tells why.
"""

from contextlib import suppress

with suppress(Exception):
    from inlay.spark.source import InlayDataSource as DefaultSource  # noqa: F401
