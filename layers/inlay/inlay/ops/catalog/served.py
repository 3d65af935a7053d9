"""A catalog of Apache Iceberg as it is served: read only, or with what commits, and lends credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from inlay.iceberg.catalog import Catalog, Credentials, Writes
from inlay.ops.context import Context


def served_catalog(
    namespace: str,
    published: Callable[[str], Iterable[str]],
    pointer: Callable[[str], bytes | None],
    context: Callable[[str], Context],
    *,
    write: bool = False,
    role: str | None = None,
    also: Sequence[str] = (),
    scheme: str = "s3",
) -> Catalog:
    """`published` and `pointer` as of `Catalog`; `context` is a new context for the table of a name, and
    raises `InvalidRequest` for a name that cannot be a table's. With `write` it takes commits. With `role`,
    the ARN of a role, engines that ask are lent credentials of one table, also for the ARNs of adopted
    files in `also`. Raises `InvalidRequest` for a role where tables are in stores of another `scheme`."""
    writes: Writes | None = None
    credentials: Credentials | None = None
    if write:
        from inlay.ops.catalog.writes import TableWrites  # many modules

        writes = TableWrites(context)
    if role is not None:
        from inlay.ops.catalog.credentials import EngineCredentials

        EngineCredentials.check_scheme(scheme)  # now, not when the first engine asks
        credentials = EngineCredentials(role, context, write=write, also=also)
    return Catalog(namespace, published, pointer, writes, credentials)
