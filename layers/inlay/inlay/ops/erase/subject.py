"""The search for a person: every place of a table that has one of some texts.

Promise: `search_subject` reads each live file of main, branches and tags once, whatever deletes hide, and
finds each row with one of the texts within a text or bytes, in whatever column, in lists, structs, keys and
values of maps too, and in columns that have been dropped since the file was written. It also finds what
names a text beside the rows (dictionaries, bounds, key-values, gaps, metadata of objects) and in the
table's own metadata, as the last look of an erasure does (`ops.erase.last_look`), for texts of four
characters or more. It writes nothing. Numbers and dates are not texts: ask for those by a condition.

A condition selects rows by the columns that it names; this is for what it does not name: another row's
`invited_by`, a note. It costs all columns of text of the table, once for however many texts; older versions
that are not a branch or tag are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest
from inlay.format.predicate import Like, Or, Predicate
from inlay.format.schema import Primitive, Type, fields_within
from inlay.format.values import is_value
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.last_look import KeptPlace, LastCheck, findings_of, search_files
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.refs import LiveFile, RefContents, each_content, live_files
from inlay.parquet.arrow.types import is_list
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.plan.scan import FileTask
from inlay.record import Mutable, Record, field

# Positions that are listed of each file and column; all are counted.
MAX_POSITIONS = 100
_NAME = "subject"
_TEXT = Primitive("string")
# Up to so many are looked for one by one.
FEW_TEXTS = 4

_TEXTS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


class SubjectRows(Record, kw_only=True):
    """Rows of one file with a text in one column. `positions` are the first of them, from 0 in the file;
    `column` is the path, with `element`, `key` and `value` for what is in lists and maps."""

    text: int
    file: str
    column: str
    rows: int
    positions: tuple[int, ...]


class SubjectReport(Record, kw_only=True):
    """`rows` by file, column and text (its place among those asked for); `elsewhere` are places beside
    rows. Neither has a value."""

    version: int
    files: int
    rows: tuple[SubjectRows, ...]
    elsewhere: tuple[KeptPlace, ...]

    @property
    def is_nowhere(self) -> bool:
        return not self.rows and not self.elsewhere

    def by_column(self) -> Mapping[tuple[int, str], int]:
        """How many rows have each text in each column."""
        counts: Counter[tuple[int, str]] = Counter()
        for rows in self.rows:
            counts[rows.text, rows.column] += rows.rows
        return counts


def search_subject(
    ctx: Context, texts: Sequence[str], *, ignore_case: bool = False
) -> SubjectReport:
    """Raises `InvalidRequest` without a text, or for one that is empty or that no row can hold."""
    if not texts or not all(texts):
        raise InvalidRequest(
            "there is no text to search for", next_step="Name one or more, none of them empty"
        )
    if not all(is_value(_TEXT, text) for text in texts):
        raise InvalidRequest("half of a surrogate pair is not a character that rows can hold")
    loaded = with_entries(ctx, load_pointer(ctx))
    contents = list(each_content(ctx, loaded))
    live = live_files(contents).values()

    def search(file: LiveFile) -> list[SubjectRows]:
        return list(_search_rows(ctx, file, texts, ignore_case))

    rows = [rows_of_file for of_file in ctx.map(search, live) for rows_of_file in of_file]
    elsewhere = _beside_rows(ctx, contents, loaded, texts)
    return SubjectReport(
        version=loaded.snapshot.version,
        files=len(live),
        rows=tuple(rows),
        elsewhere=tuple(elsewhere),
    )


def search_for_each(
    ctx: Context,
    contents: RefContents,
    asked: Mapping[str, frozenset[str]],
    searched: dict[str, tuple[SubjectRows, ...]],
) -> dict[str, tuple[tuple[str, int, int], ...]]:
    """By erasure, (column, rows, files) with one of its texts, however many they are: each live file is
    read once. `searched` remembers files for the next time; a row counts for each text that it has."""
    texts = sorted(frozenset[str]().union(*asked.values()))
    live = live_files(contents)
    unsearched = {key: file for key, file in live.items() if key not in searched}

    def search(file: LiveFile) -> tuple[SubjectRows, ...]:
        return tuple(_search_rows(ctx, file, texts, ignore_case=False))

    searched.update(zip(unsearched, ctx.map(search, unsearched.values()), strict=True))
    by_text: dict[str, list[SubjectRows]] = {}
    for key, rows in searched.items():
        for hit in rows if key in live else ():
            by_text.setdefault(texts[hit.text], []).append(hit)
    return {
        name: tuple(
            (column, sum(f.rows for f in rows), len({f.file for f in rows}))
            for column, rows in _by_column(f for t in own for f in by_text.get(t, ()))
        )
        for name, own in asked.items()
    }


def _by_column(hits: Iterable[SubjectRows]) -> list[tuple[str, list[SubjectRows]]]:
    columns: dict[str, list[SubjectRows]] = {}
    for hit in hits:
        columns.setdefault(hit.column, []).append(hit)
    return sorted(columns.items())


# -- rows -----------------------------------------------------------------------------------------


class _Hits(Mutable):
    rows: int = 0
    positions: list[int] = field(default_factory=list)

    def add(self, positions: pa.Array, at: pa.Array) -> None:
        self.rows += len(at)
        room = MAX_POSITIONS - len(self.positions)
        self.positions += positions.take(at[:room]).to_pylist()


def _search_rows(
    ctx: Context, file: LiveFile, texts: Sequence[str], ignore_case: bool
) -> Iterator[SubjectRows]:
    entry, schema = file.entry, file.recorded
    columns = tuple(f.id for f in schema.fields if _has_text(f.type))
    if not columns:
        return
    task = FileTask(file=entry, schema=schema)
    projection = Projection(schema=schema, columns=columns, position=True)
    hits: dict[tuple[str, int], _Hits] = {}
    # Of many texts, most values have none.
    any_text = "|".join(map(_as_regex, texts)) if len(texts) > FEW_TEXTS else None
    # This runs in a task of the executor: waiting for other tasks of it could block for ever.
    for batch in Reader(ctx.objects, InlineExecutor()).rows([task], projection):
        positions = batch.column(len(columns))
        numbers = pa.array(range(batch.num_rows), pa.int64())
        for name, column in zip(batch.schema.names, batch.columns[:-1], strict=False):
            for path, values, rows in _texts_within(name, column, numbers):
                if any_text is not None:
                    hit_any = pc.match_substring_regex(values, any_text, ignore_case=ignore_case)
                    hit_any = hit_any.fill_null(False)
                    values, rows = values.filter(hit_any), rows.filter(hit_any)
                for place, text in enumerate(texts) if len(values) else ():
                    matches = pc.match_substring(values, text, ignore_case=ignore_case)
                    if pc.any(matches, min_count=0).as_py():
                        at = pc.unique(rows.filter(matches.fill_null(False)))
                        hits.setdefault((path, place), _Hits()).add(positions, at)
    for (path, place), hit in sorted(hits.items()):
        yield SubjectRows(
            text=place,
            file=entry.key,
            column=path,
            rows=hit.rows,
            positions=tuple(hit.positions),
        )


def _as_regex(text: str) -> str:
    """A pattern of RE2 that means just the text: every other ASCII character is a mark, and escaped."""
    return "".join(
        c if c.isalnum() or c == "_" or not c.isascii() else f"\\x{ord(c):02x}" for c in text
    )


def _has_text(kind: Type) -> bool:
    if isinstance(kind, Primitive):
        return kind.family in ("text", "bytes")
    return any(_has_text(child.type) for child in fields_within(kind))


def _texts_within(
    path: str, array: pa.Array, rows: pa.Array
) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """(path, texts or bytes, the row of each) of a column and of everything within it."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from _texts_within(f"{path}.{child.name}", values, rows)
    elif pa.types.is_map(kind):
        whole = array.take(pa.array(range(len(array)), pa.int64()))  # from its first entry on
        lengths = pc.subtract(whole.offsets.slice(1), whole.offsets.slice(0, len(whole)))
        of_entries = _repeated(rows, lengths)
        yield from _texts_within(f"{path}.key", whole.keys, of_entries)
        yield from _texts_within(f"{path}.value", whole.items, of_entries)
    elif is_list(kind):
        of_elements = rows.take(pc.list_parent_indices(array))
        yield from _texts_within(f"{path}.element", array.flatten(), of_elements)
    elif pa.types.is_fixed_size_binary(kind):
        yield path, array.cast(pa.binary()), rows
    elif any(test(kind) for test in _TEXTS):
        yield path, array, rows


def _repeated(rows: pa.Array, lengths: pa.Array) -> pa.Array:
    """Each row as often as its length."""
    return pa.array(
        [
            row
            for row, n in zip(rows.to_pylist(), lengths.to_pylist(), strict=True)
            for _ in range(n)
        ],
        pa.int64(),
    )


# -- beside rows ----------------------------------------------------------------------------------


def _beside_rows(
    ctx: Context,
    contents: RefContents,
    table: LoadedTable,
    texts: Sequence[str],
) -> Iterator[KeptPlace]:
    """Each place once. Of a file written by this library nothing is beside its rows."""
    schema = table.snapshot.schema
    columns = [
        f.id for f in schema.fields if isinstance(f.type, Primitive) and f.type.family == "text"
    ]
    if not columns:
        return
    parts: list[Predicate] = [Like(column, f"%{_quoted(t)}%") for column in columns for t in texts]
    predicate = parts[0] if len(parts) == 1 else Or(tuple(parts))
    look = LastCheck({_NAME: predicate}, {_NAME: table.snapshot.version}, table)
    search_files(ctx, look, contents)
    yield from Counter(findings_of(ctx, look)[_NAME].kept)


def _quoted(text: str) -> str:
    """A text as a LIKE pattern that means just it."""
    return "".join(f"\\{character}" if character in "\\%_" else character for character in text)
