"""Arguments and options that several commands take, each described once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.errors import InvalidRequest

if TYPE_CHECKING:
    from inlay.engine import LocalFiles

TableUri = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Where the table is: s3://…, gs://…, az://…, file:///… or a local path.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON for programs; rows and lists as one object a line."),
]
Version = Annotated[
    int | None, typer.Option("--version", min=1, help="The table as it was at this version.")
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The table as it was then: 2026-01-31T12:00:00Z (UTC if no zone).",
    ),
]
Ref = Annotated[str | None, typer.Option("--ref", help="A tag or branch instead of a version.")]
Branch = Annotated[
    str | None, typer.Option("--ref", metavar="BRANCH", help="Write to this branch, not to main.")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", "-w", metavar="SQL", help="Only rows for which this condition is TRUE."
    ),
]
OnDamaged = Annotated[
    str,
    typer.Option(
        "--on-damaged",
        metavar="raise|skip",
        help="skip: leave out files that cannot be read, with all of their rows, and name them.",
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="[NAME=]VALUE",
        help="A value for a ? (in their order) or a :name of the condition; may be repeated. A number, "
        "true, false or null, else a text; '\"7\"' is the text 7.",
    ),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="ID",
        help="Names this request: repeated with the same id, it changes nothing.",
    ),
]
Message = Annotated[
    str | None,
    typer.Option(
        "--message", "-m", metavar="TEXT", help="Why: kept with the version, shown by its history."
    ),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        metavar="NAME=TEXT",
        help="Kept with the version, as job=17; may be repeated.",
    ),
]

Null = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="TEXT",
        help="CSV: unquoted text that stands for NULL, besides an empty field; may be repeated.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", metavar="CHARACTER", help="CSV: what is between fields; tab for a tab."
    ),
]
Encoding = Annotated[
    str, typer.Option("--encoding", metavar="NAME", help="CSV and JSON: the encoding of the text.")
]
DateFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--date-format",
        metavar="[COLUMN=]FORMAT",
        help="CSV and JSON: how dates are written that are not ISO's, as %d.%m.%Y or "
        "'%b %d %Y %H:%M:%S'; of one column, at=%d.%m.%Y, may be repeated.",
    ),
]
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="csv, tsv, json, jsonl, parquet or arrow, where the file's name does not say; - is csv.",
    ),
]


def local_files(
    paths: Iterable[str],
    null: list[str] | None,
    delimiter: str | None,
    encoding: str,
    format: str | None = None,
    date_format: list[str] | None = None,
) -> LocalFiles:
    """Files, read or written by the options above."""
    from inlay.engine import LocalFiles

    return LocalFiles.of(
        *paths,
        null=null or (),
        delimiter=delimiter,
        encoding=encoding,
        format=format,
        date_formats=date_format or (),
    )


def assignments(given: Iterable[str] | None, what: str, *, empty: bool = True) -> dict[str, str]:
    """`NAME=VALUE`, given several times. Raises `InvalidRequest` also for a name given twice: which of its
    values counts would be a guess."""
    from inlay.engine import cut_at_equals

    values: dict[str, str] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in cut_at_equals(text))
        if not equals or not name or not (empty or value):
            raise InvalidRequest(f"{what} is written NAME=VALUE, not {text[:80]!r}")
        if name in values:
            raise InvalidRequest(
                f"{what} is given twice for {name[:80]!r}", next_step="Give it once"
            )
        values[name] = value
    return values


def bound_values(given: list[str] | None, *texts: str | None) -> list[Any] | dict[str, Any] | None:
    """`--param 5 --param ada`, or `--param id=5 --param name=ada` where the texts have names."""
    if given is None:
        return None
    named = re.findall(r"(?<!:):([^\W\d]\w*)", " ".join(text or "" for text in texts))
    strange = [name for text in given if (name := text.partition("=")[0].strip()) not in named]
    if len(strange) < len(given):  # else `:name` is within a text of the condition
        if strange:
            raise InvalidRequest(
                f"--param {strange[0][:80]!r} is no name of the texts",
                next_step=f"Their names are: {', '.join(dict.fromkeys(named))}",
            )
        return {n: _plain(v) for n, v in assignments(given, "--param").items()}
    return [_plain(text) for text in given]


def _plain(text: str) -> Any:
    try:
        value = json.loads(text, parse_float=Decimal)
    except ValueError:
        return text
    return value if isinstance(value, str | int | Decimal | None) else text


def noted(message: str | None, metadata: list[str] | None) -> dict[str, Any]:
    """The two options above as a `Table` takes them."""
    return {"message": message, "metadata": assignments(metadata, "--metadata") or None}


def split_partitions(given: list[str] | None) -> tuple[str, ...]:
    """`--partition-by "day(ts), bucket(16, id)" --partition-by region` → the three fields."""
    from inlay.engine import listed_names

    return tuple(field for text in given or () for field in listed_names(text, calls=True))


def split_names(given: list[str] | None) -> list[str]:
    """`--columns a,b --columns c` → a, b, c; a comma within double quotes is part of a name.

    >>> split_names(['a,"b,c"', "d"])
    ['a', '"b,c"', 'd']
    """
    from inlay.engine import listed_names

    return [name for text in given or () for name in listed_names(text)]
