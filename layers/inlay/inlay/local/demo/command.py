"""`inlay local demo`."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    scale: Annotated[
        float,
        typer.Option(min=0.001, envvar="SCALE", help="TPC-H scale: 1 is six million rows."),
    ] = 0.1,
    files: Annotated[int, typer.Option(min=2, help="Parquet files that land.")] = 4,
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep bucket and table on this S3 server instead of the embedded one.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option(help="Read with Spark after every step.")] = True,
) -> None:
    """Run the whole product on this machine and check every answer.

    Exits with 1 at the first wrong one.
    """
    # Imported here: it brings moto, DuckDB and pyarrow, which the other commands do not need.
    from inlay.cli.failures import failing_well
    from inlay.local.demo.play import DemoOptions, play

    with failing_well(as_json=False):
        right = play(DemoOptions(scale=scale, files=files, endpoint_url=endpoint_url, spark=spark))
    raise typer.Exit(0 if right else 1)
