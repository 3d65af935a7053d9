"""Verbs that change rows: create, append, ingest, adopt, copy, delete, update, upsert, overwrite,
apply-changes, set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import (
    AsJson,
    AsOf,
    Branch,
    DateFormat,
    Delimiter,
    Encoding,
    FileFormat,
    Message,
    Metadata,
    Null,
    Param,
    Ref,
    RequestId,
    TableUri,
    Version,
    Where,
    assignments,
    bound_values,
    local_files,
    noted,
    split_names,
    split_partitions,
)
from inlay.cli.output import (
    note,
    print_noted,
    print_record,
    print_rows,
    print_write,
    write_record,
)
from inlay.cli.tables import connected, opened
from inlay.cli.values import counted, size_text
from inlay.engine import Primitive
from inlay.errors import ErrorKind, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inlay import Table
    from inlay.engine import SourceOutcome

PANEL = "Write"
Into = Annotated[
    str,
    typer.Option(
        "--into", metavar="TABLE", help="Where the new table is to be.", show_default=False
    ),
]

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE…",
        help="Local Parquet, CSV, JSON or Arrow files; - is standard input.",
        show_default=False,
    ),
]
GivenProperties = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A table property; may be repeated."),
]


@verb(
    PANEL,
    Example(
        'create s3://lake/tables/people --schema "id bigint not null, name string, at timestamptz" '
        "--primary-key id",
        "columns given as text",
    ),
    Example("create ./people --like people.parquet --sort-by id", "columns taken from a file"),
    Example(
        "create ./people --like people.csv --null NA",
        "types inferred from the values, and shown",
    ),
    Example(
        "create ./people --like people.csv --date-format %d.%m.%Y",
        "dates that are not written 2026-01-31",
    ),
    Example(
        'create ./events --schema "id bigint, at timestamptz" --partition-by "day(at)"',
        "files of one day each",
    ),
)
def create(
    table: TableUri,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="FILE",
            help="Take the columns of this Parquet, Arrow, CSV or JSON file; of CSV and JSON the types are "
            "inferred from the values, and shown.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="COLUMNS", help="Columns as text, see the examples."),
    ] = None,
    primary_key: Annotated[
        list[str] | None,
        typer.Option("--primary-key", metavar="COLUMN,…", help="What ranges and upserts use."),
    ] = None,
    sort_by: Annotated[
        list[str] | None,
        typer.Option("--sort-by", metavar="COLUMN,…", help="The order of rows in written files."),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="FIELD,…",
            help="Cut files by columns, or by year(c), month(c), day(c), hour(c), bucket(16, c), "
            "truncate(4, c).",
        ),
    ] = None,
    properties: GivenProperties = None,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    as_json: AsJson = False,
) -> None:
    """Create an empty table."""
    import inlay

    columns = None
    if like is not None and schema is None:
        columns = local_files([like], null, delimiter, encoding, format, date_format).columns()
    elif schema is None or like is not None:
        raise InvalidRequest(
            "give the columns either by --like or by --schema",
            next_step='For example --schema "id bigint not null, name string"',
        )
    with connected(table) as context:
        made = inlay.create(
            table,
            schema if columns is None else columns.schema,
            primary_key=split_names(primary_key),
            sort_by=split_names(sort_by),
            partition_by=split_partitions(partition_by),
            properties=assignments(properties, "--set"),
            context=context,
        )
    facts = {"table": made.uri, "version": made.version, "columns": len(made.schema)}
    inferred = [] if columns is None or columns.rows is None else _columns(made)
    if as_json:
        more = {} if columns is None else {"notes": [other_dates(name) for name in columns.dates]}
        print_record(
            {**facts, **({"inferred": inferred, **more} if inferred else {})}, as_json=True
        )
        return
    print_record(facts, as_json=False)
    if columns is not None and inferred:
        _print_inferred(columns.rows or 0, columns.whole, columns.dates, inferred)


def _columns(made: Table) -> list[dict[str, str]]:
    fields = made.snapshot.schema.fields
    arrow = made.schema
    return [
        {
            "column": f.name,
            "type": str(f.type) if isinstance(f.type, Primitive) else str(arrow.field(f.name).type),
        }
        for f in fields
    ]


def _print_inferred(
    count: int, whole: bool, dates: Iterable[str], inferred: list[dict[str, str]]
) -> None:
    rows = counted(count, "row")
    note(f"types inferred from {rows if whole else 'the first ' + rows}; --schema names others")
    print_rows(inferred, as_json=False)
    for name in dates:
        note(other_dates(name))


def other_dates(name: str) -> str:
    return (
        f"{name} has dates that are not written 2026-01-31, and is a text: which number is the month "
        "is not guessed. --date-format says how they are written, as %d.%m.%Y"
    )


@verb(
    PANEL,
    Example("append ./people monday.csv tuesday.parquet", "two files in one commit"),
    Example("append ./people export.csv.gz --delimiter ';' --null NA --encoding cp1252", "CSV"),
    Example("append ./people - --format jsonl < people.jsonl", "rows from another program"),
    Example(
        "append ./people day.parquet --request-id 2026-01-31",
        "safe to repeat: the second time changes nothing",
    ),
    Example(
        'append ./people day.csv -m "late rows of May" --metadata ticket=OPS-7',
        "why, for `inlay history`",
    ),
)
def append(
    table: TableUri,
    files: Files,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Append the rows of local files, all in one commit.

    In CSV a field without anything is NULL and "" is an empty text. Files may be compressed (gzip, zstd).
    """
    local = local_files(files, null, delimiter, encoding, format, date_format)
    with opened(table, ref=ref) as t:
        rows = local.rows(t.snapshot.schema)
        result = t.append(rows, request_id=request_id, **noted(message, metadata))
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example(
        "ingest s3://lake/tables/people s3://lake/in/a.parquet s3://lake/in/b.parquet",
        "by copy",
    ),
    Example("ingest s3://lake/tables/people s3://lake/in/a.parquet --adopt", "used in place"),
)
def ingest(
    table: TableUri,
    objects: Annotated[
        list[str],
        typer.Argument(
            metavar="URI…", help="Objects in the same kind of store.", show_default=False
        ),
    ],
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Use the objects where they are instead of copying them."),
    ] = False,
    message: Message = None,
    metadata: Metadata = None,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Turn existing Parquet objects into data files, byte for byte, each once.

    CSV and JSON objects are read and written as data files where the table takes them: set
    ingest.formats to parquet,csv,json.
    An object that was ingested before changes nothing. Objects that cannot be ingested are listed with
    the reason, do not affect the others, and make the exit code 2 (or 75 if another try may help).
    """
    with opened(table, ref=ref) as t:
        result = t.ingest(objects, adopt=adopt, **noted(message, metadata))
    if as_json:
        outcomes = [_outcome(outcome) for outcome in result.outcomes]
        print_record({**write_record(result.write), "outcomes": outcomes}, as_json=True)
    else:
        for outcome in result.outcomes:
            facts = _outcome(outcome)
            if "listed_in" in facts:
                records = counted(facts["refused"], "record")
                note(f"{facts['object']}: {records} refused, listed in {facts['listed_in']}")
            if facts["outcome"] != "ingested":
                reason = facts.get("message")
                note(f"{facts['object']}: {facts['outcome']}" + (f": {reason}" if reason else ""))
        print_write(result.write, as_json=False)
    kinds = {
        outcome.error.kind for outcome in result.outcomes if outcome.state in ("rejected", "retry")
    }
    if ErrorKind.INPUT in kinds or ErrorKind.PAGE in kinds:
        raise typer.Exit(2)
    if kinds:
        raise typer.Exit(75)


@verb(
    PANEL,
    Example(
        "adopt s3://lake/warehouse/db/people --into s3://lake/tables/people",
        "a folder with a version hint, or a Delta table",
    ),
    Example(
        "adopt s3://lake/db/people/metadata/00007-….metadata.json --into s3://lake/tables/people",
        "a table that a catalog keeps",
    ),
    Example("adopt ./delta/people --into ./people --copy", "independent of the source afterwards"),
)
def adopt(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of an Iceberg or Delta table or of Parquet files, or an Iceberg metadata file.",
            show_default=False,
        ),
    ],
    into: Into,
    copy: Annotated[
        bool,
        typer.Option("--copy", help="Copy the files on the server instead of using them in place."),
    ] = False,
    adopt_from: Annotated[
        list[str] | None,
        typer.Option(
            "--adopt-from",
            metavar="PATTERN",
            help="Files may also be where bucket/key matches this; repeatable.",
        ),
    ] = None,
    properties: GivenProperties = None,
    as_json: AsJson = False,
) -> None:
    """Turn an Iceberg or Delta table, or a folder, into a new table, its files used where they are.

    Its newest version becomes version 1: columns, partitions and deletes come along, older versions do
    not. The columns that folders name (year=2024/part-0.parquet) are columns of the table. The source is
    not touched. Its files stay its own: VACUUM or expire_snapshots there would take rows away here, unless
    --copy is given. What cannot be carried over exactly is refused by name.
    """
    from inlay.engine import adopt as run

    with connected(into) as context:
        done = run(
            context,
            source,
            copy=copy,
            adopt_from=tuple(adopt_from or ()),
            properties=assignments(properties, "--set"),
        )
    facts = {
        "table": context.uri,
        "version": done.loaded.snapshot.version,
        "adopted": f"{done.kind} at {done.source_version}",
        "files": done.files,
        "rows": done.rows,
        "deleted_rows": done.deleted_rows,
        "markers": done.markers,
        "copied": done.copied,
    }
    print_noted(facts, done.notes, as_json=as_json)


def _outcome(outcome: SourceOutcome) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "object": outcome.source.location.uri,
        "outcome": outcome.state,
    }
    match outcome.state:
        case "ingested":
            listed = outcome.refused_key
            left_out = {} if listed is None else {"refused": outcome.refused, "listed_in": listed}
            return {**facts, "rows": outcome.rows, **left_out}
        case "rejected" | "retry":
            return {**facts, **outcome.error.fields()}
        case "duplicate" | "superseded" | "takenback" | "deferred":
            return facts
        case _:
            assert_never(outcome)


@verb(
    PANEL,
    Example("copy s3://lake/tables/people --into s3://backup/people", "the newest version"),
    Example("copy ./people --into ./then --as-of 2026-01-31T12:00:00Z", "as it was"),
    Example("copy s3://lake/tables/people --into ./people --ref audit", "a tag, to this machine"),
)
def copy(
    table: TableUri,
    into: Into,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Make a new table, in any store, of the rows of one version.

    The new table needs nothing of the old one, and an erasure in the old one does not reach it. Files
    without deletes are copied by the store, where both tables are in one kind of store; others are written
    again with their live rows. History stays behind. There is no table until all is copied; the same
    command goes on with a copy that was stopped.
    """
    with opened(table, version=version, as_of=as_of, ref=ref) as t, connected(into) as context:
        done: list[Any] = []
        t.copy_to(into, context=context, report=done.append)
    _print_copied(context.uri, done[0], "copied_files", as_json=as_json)


def _print_copied(uri: str, done: Any, taken_over: str, *, as_json: bool) -> None:
    facts = {
        "table": uri,
        "version": done.loaded.snapshot.version,
        "source_version": done.source_version,
        "rows": done.rows,
        "bytes": done.bytes if as_json else size_text(done.bytes),
        taken_over: done.copied,
        "written_files": done.written,
    }
    print_noted(facts, done.notes, as_json=as_json)


@verb(
    PANEL,
    Example("clone s3://lake/tables/people --into s3://lake/trial/people", "the newest version"),
    Example("clone ./people --into ./then --ref audit", "a tag"),
)
def clone(
    table: TableUri,
    into: Into,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Make a new table over the same files, of the rows of one version.

    Only files under deletes are written again. A held tag of the old table keeps the files, and refuses
    erasures there that concern them: lift it when the clone is dropped (inlay tag --release). The new
    table has to be in the same store.
    """
    with opened(table, version=version, as_of=as_of, ref=ref) as t, connected(into) as context:
        done: list[Any] = []
        t.clone_to(into, context=context, report=done.append)
    _print_copied(context.uri, done[0], "shared_files", as_json=as_json)


@verb(
    PANEL,
    Example("delete ./people --where \"name LIKE 'test-%'\"", "by a condition"),
    Example('delete ./people --where "id BETWEEN 1 AND 1000" --explain', "look first"),
    Example(
        'delete ./people --where "name = :name" --param "name=$NAME"',
        "a value from elsewhere, which never becomes part of the condition",
    ),
    Example(
        "delete ./people --keys gone.csv",
        "by a list of keys: a file whose header names columns",
    ),
    Example(
        'delete ./people --where "id = 42" --mode erase --request-id case-7',
        "no byte of them is to be left",
    ),
    Example(
        "delete ./people --keys leavers.csv --mode erase --id-column case",
        "many at once, with a receipt for each",
    ),
)
def delete(
    table: TableUri,
    where: Where = None,
    param: Param = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys", metavar="FILE", help="Delete the rows whose columns equal a row of this file."
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            help="tombstone (constant time), vector, surgery, rewrite or erase; else the table's "
            "delete.mode.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id-column",
            metavar="COLUMN",
            help="With --keys and --mode erase: the column of the file with the id of each erasure; else "
            "REQUEST.1, REQUEST.2 …",
        ),
    ] = None,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="KEY", help="Only rows of this data file.")
    ] = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what would be deleted, and delete nothing.")
    ] = False,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Delete the rows for which a condition is TRUE, or those named by a file of keys.

    A tombstone costs the same whatever the size of the table: readers stop seeing the rows at once, and
    `inlay rewrite` removes them from the files. Rows for which the condition is NULL stay.

    With --mode erase each key of a file is an erasure with a receipt of its own, all in one commit.
    """
    if id_column is not None and keys is None:
        raise InvalidRequest("--id-column is a column of --keys", next_step="Add the file")
    with opened(table, ref=ref) as t:
        if explain:
            if where is None:
                raise InvalidRequest("--explain needs --where", next_step="Add a condition")
            _explain_delete(t, where, bound_values(param, where), as_json=as_json)
            return
        named, ids = None, None
        if keys is not None:
            local = local_files([keys], null, delimiter, encoding, format, date_format)
            named, ids = local.keys(t.snapshot.schema, id_column)
        result = t.delete(
            where,
            params=bound_values(param, where),
            keys=named,
            ids=ids,
            mode=mode,
            file=file,
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


def _explain_delete(
    table: Table, where: str, params: list[Any] | dict[str, Any] | None, *, as_json: bool
) -> None:
    plan = table.scan(where=where, params=params).explain()
    print_record(
        {
            "where": plan.where,
            "rows": table.count(where=where, params=params),
            "files": plan.files,
            "files_that_may_match": plan.files_read,
            "bytes_of_these": plan.bytes,
        },
        as_json=as_json,
    )


@verb(
    PANEL,
    Example('update ./people --set "name = \'Ada\'" --where "id = 7"', "one column of one row"),
)
def update(
    table: TableUri,
    changes: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="COLUMN=SQL",
            help="A column and its new value; may be repeated.",
            show_default=False,
        ),
    ],
    where: Where = None,
    param: Param = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", help="How the old rows are deleted; else the table's update.mode."),
    ] = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Set columns of rows to SQL expressions. Texts are quoted as in SQL: "status='closed'"."""
    with opened(table, ref=ref) as t:
        result = t.update(
            assignments(changes, "--set", empty=False),
            where="TRUE" if where is None else where,
            params=bound_values(param, where, *changes),
            mode=mode,
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("upsert ./people changes.csv --on id", "new rows win over old ones with the same id"),
    Example(
        "upsert ./people log.jsonl --on-duplicate last --order at",
        "of each person the newest row of the log",
    ),
)
def upsert(
    table: TableUri,
    files: Files,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="COLUMN,…",
            help="The columns that identify a row; else the primary key.",
        ),
    ] = None,
    on_duplicate: Annotated[
        str,
        typer.Option(
            "--on-duplicate",
            metavar="refuse|last",
            help="Of several rows of one key in the files: refuse them, or let the last one count.",
        ),
    ] = "refuse",
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="COLUMN",
            help="With --on-duplicate last: the row with the greatest value of this column counts.",
        ),
    ] = None,
    when: Annotated[
        str,
        typer.Option(
            "--when",
            metavar="always|newer",
            help="newer: rows that are older by --order than the table's are left out.",
        ),
    ] = "always",
    nulls: Annotated[
        str,
        typer.Option(
            "--nulls",
            metavar="distinct|equal",
            help="Whether a NULL in a key equals another one; if not, each such row is inserted.",
        ),
    ] = "distinct",
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Insert rows, replacing those that have the same key.

    Columns that the files lack keep their values in rows that are there; in new rows they have their
    default, else NULL. Such an upsert reads the rows it changes; with every column given it reads none.
    """
    local = local_files(files, null, delimiter, encoding, format, date_format)
    with opened(table, ref=ref) as t:
        result = t.upsert(
            local.rows(t.snapshot.schema, even=True),
            on=split_names(on),
            on_duplicate=on_duplicate,
            order=order,
            when=when,
            nulls=nulls,
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example(
        "overwrite ./sales day.parquet --where \"day = DATE '2026-01-31'\"",
        "a day again, as often as you like",
    ),
    Example("overwrite ./people people.csv", "everything"),
)
def overwrite(
    table: TableUri,
    files: Files,
    where: Where = None,
    param: Param = None,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    ref: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Put rows in place of those that a condition selects, or of all, in one commit.

    Every row of the files must make the condition TRUE: then the same command replaces what it wrote.
    """
    local = local_files(files, null, delimiter, encoding, format, date_format)
    with opened(table, ref=ref) as t:
        result = t.overwrite(
            local.rows(t.snapshot.schema),
            where=where,
            params=bound_values(param, where),
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example(
        "apply-changes ./accounts batch.parquet --order lsn --op op",
        "of each key the record with the greatest lsn counts, whenever it comes",
    ),
    Example(
        "apply-changes ./accounts *.csv --order ts,seq --operations dms --request-id batch-7",
        "the operations of a producer, exactly once",
    ),
    Example(
        "apply-changes ./accounts rows.jsonl --order version --delete-when \"state = 'closed'\"",
        "deletes by a condition",
    ),
    name="apply-changes",
)
def apply_changes(
    table: TableUri,
    files: Files,
    order: Annotated[
        list[str],
        typer.Option(
            "--order",
            metavar="COLUMN,…",
            help="The columns that say which record of a key is newer.",
            show_default=False,
        ),
    ],
    op: Annotated[
        str | None,
        typer.Option("--op", metavar="COLUMN", help="The column that says what a record does."),
    ] = None,
    operations: Annotated[
        str | None,
        typer.Option(
            "--operations",
            metavar="PRODUCER",
            help="Whose values these are: common, debezium, debezium-flat, dms, snowflake, canal, delta, "
            "kafka-connect, kafka-tombstones.",
        ),
    ] = None,
    delete_when: Annotated[
        str | None,
        typer.Option(
            "--delete-when", metavar="CONDITION", help="Which records are deletes, as a condition."
        ),
    ] = None,
    delete_to: Annotated[
        str | None,
        typer.Option(
            "--delete-to",
            metavar="COLUMN",
            help="A boolean or timestamp that a delete sets, in place of removing the row.",
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="COLUMN,…",
            help="The columns that identify a row; else the primary key.",
        ),
    ] = None,
    nulls: Annotated[
        str,
        typer.Option(
            "--nulls",
            metavar="refuse|equal|distinct",
            help="What a NULL in a key is: refused, equal to another one, or no key at all.",
        ),
    ] = "refuse",
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Apply the inserts, updates and deletes of a change stream, in the order of their events.

    Batches may come late, twice and in any order. Records that are older than what the table has, or than a
    delete of the last `changes.remember_days`, are left out and counted. An operation that is not known
    refuses the files.
    """
    local = local_files(files, null, delimiter, encoding, format, date_format)
    with opened(table) as t:
        result = t.apply_changes(
            local.change_records(t.snapshot, op, operations),
            order=split_names(order),
            op=op,
            operations=operations,
            delete_when=delete_when,
            delete_to=delete_to,
            on=split_names(on),
            nulls=nulls,
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("set ./people delete.mode=vector history.days=30", "two properties"),
    Example("set ./people delete.mode=", "back to the default"),
    name="set",
)
def set_(
    table: TableUri,
    properties: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="Properties; NAME= goes back to the default.",
            show_default=False,
        ),
    ],
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Set properties of the table. `inlay show` lists them with their defaults."""
    given = assignments(properties, "a property")
    with opened(table) as t:
        result = t.set_properties(
            {name: value or None for name, value in given.items()}, **noted(message, metadata)
        )
    print_write(result, as_json=as_json)
