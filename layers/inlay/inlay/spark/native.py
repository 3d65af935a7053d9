"""Native reading: data files read by Spark's own Parquet reader.

Promise: a frame made here has the rows, values, types and nullability that the source gives for the same
files. `split` selects the files: those whose columns Spark reads exactly (`exact`) and whose pending
deletes are conditions (ranges and predicates), keys, or positions that the driver holds as bitmaps; the
source reads the others. Spark then skips unneeded columns and row groups, and no row goes from Python to
the JVM.
"""

from __future__ import annotations

import operator
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Literal, assert_never, get_args
from weakref import WeakKeyDictionary

import pyarrow as pa

from inlay.engine import (
    Context,
    Field,
    FileTask,
    OtherReader,
    Predicate,
    Primitive,
    ScanParts,
    Schema,
)
from inlay.errors import CorruptTable, InvalidRequest
from inlay.spark.conditions import (
    TRUE,
    attribute,
    attribute_at,
    column_of,
    condition_of,
    expression_of,
    filtered,
    frame_of,
    plan_of,
    projected,
    quoted,
    renamed,
)
from inlay.spark.connect import connect
from inlay.spark.context import java_class, to_seq
from inlay.spark.types import arrow_for, has_twins, physical_type, spark_leaf, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Whether Spark's own reader and writer are used where they do exactly what the source does.
Native = Literal["auto", "never"]

# Files passed to Spark one by one: it looks each up in the file system before the query starts. The largest
# come first; the source reads the others.
MAX_FILES = 2_000
# Different sets of pending deletes, each of which needs its own frame.
MAX_SHARES = 16
# Footers that the driver reads itself; tasks read larger numbers.
DRIVER_FOOTERS = 64
# Cache of the exact columns of a file, and its size.
_CACHED = "columns Spark reads exactly: "
CACHED_BYTES = 512
_CACHED_GROUP_BYTES = 32  # more for each row group

# Session settings must not change what is read: rows of broken or missing files are not skipped, damaged
# pages are detected, dates are read as they are, names are not patterns.
_OPTIONS = {
    "__globPaths__": "false",
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
# Keys that Spark compares with the rows of a file, held by each executor at once.
MAX_KEYS = 2_000_000
# Keys that go into the query as they are. Those of a larger number are read by Spark, in a job that ends
# before the query's own begins: a tenth of a second for each set of deletes.
LOCAL_KEYS = 100_000
LOCAL_BYTES = 4 * 1024 * 1024
# Bitmaps of deleted positions, a bit for each row of a file with any, held by the driver and each executor
# at once: 128 million rows.
MAX_BITMAP_BYTES = 16 * 1024 * 1024
# Up to so many files and bytes in all, bitmaps are part of the condition, which costs a row less than a
# join: its file is looked for in a list, by its size. Every task is sent all of them.
INLINE_FILES = 16
INLINE_BYTES = 1024 * 1024
# Added columns: the name of a row's file, and its position there.
FILE = "__inlay_file"
POSITION = "__inlay_position"
# A column of this name is a row's position in its file, for Spark's reader.
_ROW_INDEX = "_tmp_metadata_row_index"
# A file's name by which Spark's name for it is the same, whatever Spark makes of other signs.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._=-]+")
# Formats that Spark reads by its first API for sources, of which `_with_nullability` knows the plan.
V1_SOURCES = "spark.sql.sources.useV1SourceList"
# Rows of a batch; where Spark takes it for "no limit", PySpark takes no Arrow and reads no Python source.
BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_FILES = "org.apache.spark.sql.execution.datasources."
# Spark's own reader of Parquet.
SPARK_READER = OtherReader(
    physical=physical_type,
    codecs=frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}),
    encodings=frozenset(
        {
            "PLAIN",
            "PLAIN_DICTIONARY",
            "RLE_DICTIONARY",
            "RLE",
            "BIT_PACKED",
            "DELTA_BINARY_PACKED",
            "DELTA_LENGTH_BYTE_ARRAY",
            "DELTA_BYTE_ARRAY",
        }
    ),
)
_HADOOP_SCHEMES = {"file": ("file",), "s3": ("s3a", "s3")}

# For each session a relation of Parquet files.
_RELATIONS: WeakKeyDictionary[SparkSession, Any] = WeakKeyDictionary()
# And by their bytes and type the literals of bitmaps, of at most INLINE_BYTES each.
_LITERALS: WeakKeyDictionary[SparkSession, dict[tuple[bytes, str | None], Any]] = (
    WeakKeyDictionary()
)
MAX_LITERALS = 12


def may_be_native(native: Native) -> bool:
    """Raises `InvalidRequest` for what is none: notebooks are not type-checked."""
    if native not in get_args(Native):
        raise InvalidRequest(f"native={str(native)[:50]!r}", next_step='Say "auto" or "never"')
    match native:
        case "auto":
            return True
        case "never":
            return False
        case _:
            assert_never(native)


@dataclass(frozen=True, slots=True, order=True)
class KeyFile:
    """Rows whose columns `among` equal a row of the object `key`, of `size` bytes, are deleted."""

    among: tuple[int, ...]
    key: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deleted rows of a file: those for which one of `where` is TRUE, those that equal one of `keys`,
    and with `by_position` those that its own markers list."""

    where: tuple[Predicate, ...] = ()
    keys: tuple[KeyFile, ...] = ()
    by_position: bool = False


@dataclass(frozen=True, slots=True)
class Footer:
    """What Spark's reading needs to know of a file's footer: the columns that Spark reads exactly, and the
    rows of each row group."""

    exact: frozenset[int] = frozenset()
    group_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Files that Spark reads, each with its footer, and which of their rows are deleted."""

    tasks: tuple[FileTask, ...]
    footers: tuple[Footer, ...]
    deleted: Deleted = Deleted()

    @property
    def rows(self) -> int:
        return sum(task.file.rows for task in self.tasks)

    def marked(self) -> list[tuple[FileTask, Footer]]:
        """The files that have rows deleted by position."""
        pairs = zip(self.tasks, self.footers, strict=True)
        return [pair for pair in pairs if any(m.is_positional for m in pair[0].markers)]


@dataclass(frozen=True, slots=True)
class Split:
    """`shares` are read by Spark, `rest` by the source; `why` counts reasons for the latter."""

    shares: tuple[Share, ...] = ()
    rest: tuple[FileTask, ...] = ()
    why: Mapping[str, int] = field(default_factory=dict)
    root: str = ""  # the table's folder in Spark's notation

    @property
    def native(self) -> tuple[FileTask, ...]:
        return tuple(task for share in self.shares for task in share.tasks)


# Given several paths with one of these, Spark reads each of them once for every one (4.3, also when asked
# not to take them for patterns).
_GLOB = frozenset("?*[]{}\\")


# -- which files ----------------------------------------------------------------------------------


def split(
    spark: SparkSession,
    uri: str,
    tasks: Sequence[FileTask],
    schema: Schema,
    columns: Sequence[int],
    predicate: Predicate,
    *,
    placed: bool = False,
) -> Split:
    """Which of a scan's tasks Spark can read, for these columns and this predicate; with `placed` each row
    with its place (`native_frames`)."""
    if not tasks:
        return Split()

    def none(why: str) -> Split:
        return Split(rest=tuple(tasks), why={why: len(tasks)})

    if getattr(spark, "sparkContext", None) is None:
        return none("Spark Connect")
    if "parquet" not in map(str.strip, spark.conf.get(V1_SOURCES).lower().split(",")):
        return none("Spark's second Parquet reader")
    if predicate != TRUE and condition_of(predicate, schema) is None:
        return none("filter")
    looked_at = _looked_at(schema, columns, predicate)
    if not all(_is_readable(schema, field) for field in looked_at):
        return none("column types")
    why: dict[str, str] = {}
    by_deletes: dict[Deleted, list[FileTask]] = {}
    takes_arrow = int(spark.conf.get(BATCH_SETTING)) > 0
    taken = bitmap_bytes = 0
    named = Counter(file_name(task) for task in tasks)
    # The largest files first: if there are too many files or deletes, the small ones are left out.
    for task in sorted(tasks, key=lambda t: -t.file.size):
        deletes = _judged(task, schema, looked_at, placed)
        if isinstance(deletes, str):
            why[task.file.key] = deletes
            continue
        name = file_name(task)
        bits = _bitmap_bytes(task) if deletes.by_position else 0
        is_placed = named[name] == 1 and _PLAIN_NAME.fullmatch(name)
        if placed and not is_placed:
            why[task.file.key] = "file names"
        elif (
            (deletes not in by_deletes and len(by_deletes) == MAX_SHARES)
            or (bits and not (is_placed and bitmap_bytes + bits <= MAX_BITMAP_BYTES))
            or ((deletes.by_position or deletes.keys) and not takes_arrow)
        ):
            why[task.file.key] = "deletes"
        elif taken == MAX_FILES:
            why[task.file.key] = "too many files"
        else:
            by_deletes.setdefault(deletes, []).append(task)
            taken += 1
            bitmap_bytes += bits
    chosen = [task for share in by_deletes.values() for task in share]
    root = hadoop_root(spark, uri, chosen[0].file.key) if chosen else ""
    if root is None:
        return none("Spark has no access")
    if not _GLOB.isdisjoint(root):
        return none("signs of a pattern in the path")
    footers = _footers(spark, uri, chosen)
    for deleted, share in by_deletes.items():
        ids = {f.id for f in _looked_at(schema, columns, predicate, *deleted.where)}
        ids |= _key_columns(deleted.keys)
        why |= {t.file.key: "file types" for t in share if not ids <= footers[t.file.key].exact}
    shares = []
    for deleted, share in by_deletes.items():
        if kept := tuple(t for t in share if t.file.key not in why):
            shares.append(Share(kept, tuple(footers[t.file.key] for t in kept), deleted))
    return Split(
        shares=tuple(shares),
        rest=tuple(t for t in tasks if t.file.key in why),
        why=Counter(why.values()),
        root=root,
    )


def _judged(
    task: FileTask, schema: Schema, looked_at: Iterable[Field], placed: bool
) -> Deleted | str:
    """The deleted rows of a file, or why the source must read it, as far as metadata shows."""
    gone, keys, by_position = task.deletes(schema)
    if any(condition_of(predicate, schema) is None for predicate in gone):
        return "deletes"
    if sum(deleted.rows for deleted in keys) > MAX_KEYS or not all(
        # In another schema a column may have had another name or type.
        k.schema_id == schema.id and _is_joined(k.field_ids, schema)
        for k in keys
    ):
        return "deletes"
    if task.file.adopted:
        # Not the table's: it may be overwritten, and Spark does not pin its content.
        return "adopted"
    files = tuple(sorted(KeyFile(k.field_ids, k.key, k.rows, k.size) for k in keys))
    looked_at = [*looked_at, *_looked_at(schema, tuple(_key_columns(files)), *gone)]
    if not all(_is_readable(schema, field) for field in looked_at):
        return "deletes"
    if (by_position or placed) and any(f.name.lower() == _ROW_INDEX for f in looked_at):
        return "deletes"
    if not all(OtherReader.has_as_it_is(task, column) for column in looked_at):
        return "older schema"
    return Deleted(gone, files, by_position)


def file_name(task: FileTask) -> str:
    """The last part of its key."""
    return task.file.key.rpartition("/")[2]


def _bitmap_bytes(task: FileTask) -> int:
    return task.file.rows // 8 + 1


def _key_columns(keys: Iterable[KeyFile]) -> frozenset[int]:
    return frozenset(column for deleted in keys for column in deleted.among)


def _looked_at(schema: Schema, columns: Sequence[int], *predicates: Predicate) -> list[Field]:
    return ScanParts(schema=schema, ids=tuple(columns)).looks_at(*predicates)


def _is_joined(columns: Sequence[int], schema: Schema) -> bool:
    """Whether Spark reads keys of these columns as they are, and matches rows with them as the format
    does."""
    fields = map(schema.by_id, columns)
    return all(
        f is not None and isinstance(f.type, Primitive) and spark_leaf(f.type).joined
        for f in fields
    )


def _is_readable(schema: Schema, field: Field) -> bool:
    # Spark ignores case in names.
    same = [name for name in schema.names if name.lower() == field.name.lower()]
    alone = Schema(schema.id, (field,))
    return len(same) == 1 and not _hides_floats(alone) and not has_twins(alone)


def _hides_floats(column: Schema) -> bool:
    """Spark prunes row groups by floats within structs, too, see `_guarded`."""
    within = (path for path, leaf in column.walk() if _float(leaf) and len(path) > 1)
    return any(column.resolve(path) is not None for path in within)


def hadoop_root(spark: SparkSession, uri: str, key: str) -> str | None:
    """The table's folder in the notation of Spark's file systems, found by an object `key` in it; None if
    the driver cannot access it."""
    ctx = connect(uri)
    for scheme in _HADOOP_SCHEMES.get(ctx.store.scheme, ()):
        root = f"{scheme}://{ctx.store.bucket}/{ctx.root}".rstrip("/")
        if _exists(spark, f"{root}/{key}"):
            return root
    return None


def hadoop_place(spark: Any, path: str) -> tuple[Any, Any]:
    """A path of Spark's file systems, and its file system."""
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def _exists(spark: Any, path: str) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        place, system = hadoop_place(spark, path)
        return bool(system.exists(place))
    except Py4JJavaError:
        # No such file system, no credentials for it, no such endpoint.
        return False


# -- what their footers say -----------------------------------------------------------------------


def _footers(spark: SparkSession, uri: str, tasks: Sequence[FileTask]) -> Mapping[str, Footer]:
    """By the file's key."""
    cache = connect(uri).cache
    # Files never change: results stay valid.
    cached = {t.file.key: c for t in tasks if (c := cache.get(_CACHED + t.file.key)) is not None}
    new = [task for task in tasks if task.file.key not in cached]
    if len(new) <= DRIVER_FOOTERS:
        read = _footers_of(uri, new)
    else:
        context = spark.sparkContext
        parts = context.defaultParallelism
        shares = context.parallelize([new[n::parts] for n in range(parts)], parts)
        read = shares.flatMap(partial(_footers_of, uri)).collect()
    for key, footer in read:
        size = CACHED_BYTES + _CACHED_GROUP_BYTES * len(footer.group_rows)
        cache.put(_CACHED + key, footer, size)
    return cached | dict(read)


def _footers_of(uri: str, tasks: Sequence[FileTask]) -> list[tuple[str, Footer]]:
    ctx = connect(uri)
    return list(ctx.map(partial(_footer_of, ctx), tasks))


def _footer_of(ctx: Context, task: FileTask) -> tuple[str, Footer]:
    return task.file.key, Footer(*SPARK_READER.exact(ctx, task))


# -- their rows -----------------------------------------------------------------------------------


def native_frames(
    spark: SparkSession,
    uri: str,
    parted: Split,
    schema: Schema,
    columns: Sequence[int],
    predicate: Predicate,
    *,
    placed: bool = False,
) -> list[DataFrame]:
    """The rows of the native files for which `predicate` is TRUE; `columns` in this order. With `placed`
    two more follow: the name of a row's file (`file_name`), and the row's position in it."""
    shares = _scans(parted.shares)
    marked = [task for share in shares for task, _ in share.marked()]
    is_inline = len(marked) <= INLINE_FILES and sum(map(_bitmap_bytes, marked)) <= INLINE_BYTES
    return [
        _frame(spark, uri, parted.root, share, schema, columns, predicate, is_inline, placed)
        for share in shares
    ]


def _scans(shares: Sequence[Share]) -> list[Share]:
    """The same files, those that differ only in that some have rows deleted by position in one scan: Spark
    plans and compiles each scan by itself, which costs a small query more than its rows. Unless most rows
    would be looked up in vain."""
    scans = {share.deleted: share for share in shares}
    for share in shares:
        whole = scans.get(replace(share.deleted, by_position=False))
        if share.deleted.by_position and whole is not None and whole.rows <= share.rows:
            tasks, footers = (*share.tasks, *whole.tasks), (*share.footers, *whole.footers)
            scans[share.deleted] = Share(tasks, footers, share.deleted)
            del scans[whole.deleted]
    return list(scans.values())


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all, by one plan: `DataFrame.union` of one after the other analyses each sum."""
    first: Any = frames[0]
    if len(frames) == 1:
        return frames[0]
    spark = first.sparkSession
    union = java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Union")
    return frame_of(spark, union(to_seq(spark, map(plan_of, frames)), False, False))


def _frame(
    spark: SparkSession,
    uri: str,
    root: str,
    share: Share,
    schema: Schema,
    columns: Sequence[int],
    predicate: Predicate,
    is_inline: bool,
    placed: bool,
) -> DataFrame:
    from pyspark.sql import functions as f

    keys = share.deleted.keys
    looked_at = _looked_at(schema, (*columns, *_key_columns(keys)), predicate, *share.deleted.where)
    asked = spark_schema(schema, [field.name for field in looked_at])
    by_position = share.deleted.by_position
    if by_position or placed:
        asked = asked.add(_ROW_INDEX, "long")
    is_inline = is_inline and _differ_in_size(share)
    files = {f"{root}/{task.file.key}": task.file.size for task in share.tasks}
    frame = _relation(spark, files, asked)
    plan = relation = plan_of(frame)
    output, width = plan.output(), len(looked_at)
    read = output.take(width)
    if floats := [n for n, field in enumerate(looked_at) if _float(field)]:
        guarded = output
        for n in floats:
            guarded = guarded.updated(n, _guarded(spark, looked_at[n], output.apply(n)))
            read = read.updated(n, guarded.apply(n).toAttribute())
        plan = projected(spark, guarded, plan)
    if predicate != TRUE:
        plan = filtered(spark, condition_of(predicate, schema), plan)
    for deleted in share.deleted.where:
        # NULL is not TRUE: such rows stay.
        is_gone = f.coalesce(condition_of(deleted, schema), f.lit(False))
        plan = filtered(spark, ~is_gone, plan)
    words = _words(uri, share) if by_position else []
    if by_position and is_inline:
        is_live = _is_live(frame, share, words, output.last())
        plan = java_class(spark, _LOGICAL + "Filter")(is_live, plan)
    is_located = placed or (by_position and not is_inline)
    if is_located:
        file, position = _of_file(frame, "file_name"), column_of(spark, output.last())
        for added in (renamed(file, FILE), renamed(position, POSITION)):
            read = read.appended(expression_of(spark, added))
    if by_position or placed:
        plan = projected(spark, read, plan)
    if plan is not relation:
        frame = frame_of(spark, plan)
    names = {field.id: field.name for field in schema.fields}
    for among, key_files in groupby(keys, key=lambda file: file.among):
        by = [names[column] for column in among]
        gone = _keys(spark, uri, root, list(key_files), schema, spark_schema(schema, by))
        frame = _without(frame, by, gone)
    if by_position and not is_inline:
        marked = [file_name(task) for task, _ in share.marked()]
        frame = _without_positions(frame, width, _bitmaps(spark, marked, words))
    if [field.id for field in looked_at] == list(columns) and placed == is_located:
        return frame
    kept = [attribute_at(frame, width + n) for n in range(2)] if placed else []
    return frame.select(*(f.col(quoted(names[column])) for column in columns), *kept)


def _keys(
    spark: SparkSession,
    uri: str,
    root: str,
    files: Sequence[KeyFile],
    schema: Schema,
    asked: StructType,
) -> DataFrame:
    """The keys in these files, which have the same columns."""
    few = sum(file.rows for file in files) <= LOCAL_KEYS
    if not few or sum(file.size for file in files) > LOCAL_BYTES:
        paths = [f"{root}/{file.key}" for file in files]
        return spark.read.schema(asked).options(**_OPTIONS).parquet(*paths)
    ctx = connect(uri)
    arrow = arrow_for(asked)
    arrays = [SPARK_READER.deleted_keys(ctx, schema, f.among, f.key, f.size, f.rows) for f in files]
    tables = [pa.Table.from_arrays(list(columns), names=arrow.names) for columns in arrays]
    return spark.createDataFrame(pa.concat_tables(tables).cast(arrow.remove_metadata()), asked)


def _without(frame: DataFrame, by: Sequence[str], gone: DataFrame) -> DataFrame:
    """The rows that equal none of the keys. A NULL equals nothing, so such rows stay."""
    from pyspark.sql import functions as f

    # Columns of either side, not names: these are the same.
    equal = [attribute(frame, name) == attribute(gone, name) for name in by]
    return frame.join(f.broadcast(gone), reduce(operator.and_, equal), "left_anti")


def _of_file(frame: Any, what: str) -> Column:
    """What Spark knows of a row's file: `file_name`, without the folders, or `file_size`."""
    from pyspark.sql.classic.column import Column

    # By this method the column is found beside a column of the table of the same name.
    return Column(frame._jdf.metadataColumn("_metadata").getField(what))


def _words(uri: str, share: Share) -> list[pa.Int64Array]:
    """For each marked file the bitmap of the rows that are deleted by position."""
    ctx = connect(uri)
    return list(
        ctx.map(
            lambda of: SPARK_READER.deleted_places(ctx, of[0], of[1].group_rows), share.marked()
        )
    )


def _differ_in_size(share: Share) -> bool:
    """Whether each file with rows deleted by position has a size that no other file has."""
    sizes = Counter(task.file.size for task in share.tasks)
    return all(sizes[task.file.size] == 1 for task, _ in share.marked())


def _is_live(frame: Any, share: Share, words: Sequence[pa.Int64Array], index: Any) -> Any:
    """The expression of whether a row's bit is not set; `index` is its position in its file. The files
    differ in size (`_differ_in_size`): a number is compared in fewer steps than a name.

    Bits and numbers are objects beside the code that Spark makes of it, which is the same whichever files
    have deletes: it is compiled once in a session.
    """
    from pyspark.sql.classic.column import Column

    spark = frame.sparkSession
    functions = java_class(spark, "org.apache.spark.sql.functions")
    known = java_class(spark, _EXPRESSIONS + "KnownNotNull")
    # The first bits are those of all other files, as many as the longest has rows: none is set.
    longest = max(task.file.rows for task in share.tasks)
    bitmaps = [pa.array([0] * (longest // 64 + 1), pa.int64()), *words]
    starts = [0, *(64 * before for before in accumulate(map(len, bitmaps[:-1])))]
    sizes = [task.file.size for task, _ in share.marked()]
    # A file's number is from 1 on, 0 is no file of these.
    number = functions.array_position(_longs(spark, sizes), _of_file(frame, "file_size")._jc)
    start = functions.get(_longs(spark, starts), number)
    # Neither is ever NULL, of which Spark knows nothing.
    terms = (known(operand) for operand in (expression_of(spark, Column(start)), index))
    first, second = (column_of(spark, term)._jc for term in terms)
    place = expression_of(spark, Column(first.plus(second).cast("int")))
    # As the NULL bits of an array of Spark's without values: the call that asks for one is compiled before.
    bits = _literal(spark, 64 * sum(map(len, bitmaps)), _body(pa.concat_arrays(bitmaps)))
    call = java_class(spark, _EXPRESSIONS + "objects.Invoke")(
        bits,
        "isNullAt",
        getattr(java_class(spark, "org.apache.spark.sql.types.BooleanType$"), "MODULE$"),
        to_seq(spark, [place]),
        to_seq(spark, ()),
        True,  # a NULL gives NULL
        False,  # it does not return NULL
        True,  # and gives the same each time
    )
    return java_class(spark, _EXPRESSIONS + "Not")(call)


def _longs(spark: Any, numbers: Sequence[int]) -> Any:
    """The numbers as one value, an array, as Java's Column."""
    from pyspark.sql.types import ArrayType, LongType

    nulls = bytes(8 * -(-len(numbers) // 64))
    body = nulls + _body(pa.array(numbers, pa.int64()))
    return column_of(
        spark, _literal(spark, len(numbers), body, ArrayType(LongType(), False).json())
    )._jc


def _literal(spark: Any, length: int, body: bytes, kind: str | None = None) -> Any:
    """An array in Spark's own form, which it neither copies nor writes out, as a literal of a type in JSON,
    or as an object: `body` is a bit for each value that is NULL, in whole words, and the values.

    The last of a session are kept, for queries of the same version of a table: the JVM has them by then.
    """
    kept = _LITERALS.setdefault(spark, {})
    made = length.to_bytes(8, sys.byteorder) + body
    if (literal := kept.get((made, kind))) is not None:
        return literal
    array = java_class(spark, _EXPRESSIONS + "UnsafeArrayData")()
    start = java_class(spark, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET
    array.pointTo(made, start, len(made))
    if kind is None:
        java_type = java_class(spark, "org.apache.spark.sql.types.ObjectType")(array.getClass())
    else:
        java_type = spark._jsparkSession.parseDataType(kind)
    if len(kept) >= MAX_LITERALS:
        kept.clear()
    kept[made, kind] = java_class(spark, _EXPRESSIONS + "Literal")(array, java_type)
    return kept[made, kind]


def _body(numbers: pa.Int64Array) -> bytes:
    body: bytes = numbers.buffers()[1].slice(8 * numbers.offset, 8 * len(numbers)).to_pybytes()
    return body


def _bit(spark: Any, words: Any, position: Any) -> Any:
    """The bit of a row that `words` have: 1 where it is deleted."""
    from pyspark.sql import functions as f

    word = f.get(words, f.shiftright(position, 6).cast("int"))
    place = position.bitwiseAND(63).cast("int")
    # PySpark's own `shiftright` takes no column; `getbit` costs a row three times as much.
    shifted = java_class(spark, _EXPRESSIONS + "ShiftRight")
    pair = (expression_of(spark, column) for column in (word, place))
    return column_of(spark, shifted(*pair)).bitwiseAND(1)


def _bitmaps(
    spark: SparkSession, files: Sequence[str], words: Sequence[pa.Int64Array]
) -> DataFrame:
    names = pa.array(files, pa.string())
    starts = pa.array([0, *accumulate(map(len, words))], pa.int32())
    columns = [names, pa.ListArray.from_arrays(starts, pa.concat_arrays(words))]
    return spark.createDataFrame(
        pa.table(columns, ["file", "words"]), "file string, words array<bigint>"
    )


def _without_positions(frame: DataFrame, width: int, gone: DataFrame) -> DataFrame:
    """The rows whose bit is not set; after `width` columns come their file and their position."""
    from pyspark.sql import functions as f

    file, position = (attribute_at(frame, width + n) for n in range(2))
    name, words = (attribute_at(gone, n) for n in range(2))
    is_gone = _bit(frame.sparkSession, words, position) == 1
    # No row has an unknown place, and an anti join keeps the statistics of its left side, by which Spark
    # plans what is joined to it.
    return frame.join(f.broadcast(gone), (file == name) & is_gone, "left_anti")


def _relation(spark: Any, files: Mapping[str, int], asked: StructType) -> Any:
    """The rows of these files, of which the sizes are given, with these columns. Any but a session's first
    relation is made of that, which saves Spark to look for the format, and to analyse."""
    from pyspark.sql import DataFrame

    if (like := _RELATIONS.get(spark)) is None:
        first = spark.read.schema(f"{_ROW_INDEX} bigint").options(**_OPTIONS).parquet(*files)
        _RELATIONS[spark] = like = plan_of(first).relation()
    path = java_class(spark, "org.apache.hadoop.fs.Path")
    none = java_class(spark, "scala.Option").empty()
    cache = getattr(java_class(spark, _FILES + "NoopCache$"), "MODULE$")
    index = java_class(spark, _FILES + "InMemoryFileIndex")(
        spark._jsparkSession,
        to_seq(spark, map(path, files)),
        like.options(),
        none,
        cache,
        none,
        none,
    )
    if index.sizeInBytes() != sum(files.values()):
        # The index leaves out what is missing, of which `parquet` says so.
        spark.read.schema(asked).options(**_OPTIONS).parquet(*files)
        raise CorruptTable("data files have other sizes than their table says")
    # Spark makes all columns of files nullable, without checking. `exact` has checked.
    exact = like.copy(
        index,
        like.partitionSchema(),
        spark._jsparkSession.parseDataType(asked.json()),
        like.bucketSpec(),
        like.fileFormat(),
        like.options(),
        like.sparkSession(),
    )
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(exact), spark)


def _float(field: Field) -> Primitive | None:
    """The type of a column of floats."""
    return field.type if isinstance(field.type, Primitive) and field.type.is_float else None


def _guarded(spark: Any, field: Field, column: Any) -> Any:
    """The column; one times it for floats. Spark skips row groups by the bounds of floats, although these
    do not cover NaN, which is above all numbers, and it distinguishes -0.0 in a dictionary from 0.0. It
    does so for plain columns only, and one times x is x."""
    from pyspark.sql import functions as f

    if (kind := _float(field)) is None:
        return column
    one = f.lit(1.0).cast(kind.name)
    return expression_of(spark, (column_of(spark, column) * one).alias(field.name))
