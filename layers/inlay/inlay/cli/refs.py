"""Verbs for tags and branches, and for going back: refs, tag, branch, drop-ref, merge, restore."""

from __future__ import annotations

from typing import Annotated

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, AsOf, Message, Metadata, Ref, TableUri, Version, noted
from inlay.cli.output import print_record, print_rows, print_write
from inlay.cli.tables import opened
from inlay.errors import InvalidRequest

PANEL = "Branch"
_REFS = ("name", "kind", "version", "hold", "base", "since", "written")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Of the tag or branch.", show_default=False)
]


@verb(PANEL, Example("refs ./people", "what there is"))
def refs(table: TableUri, as_json: AsJson = False) -> None:
    """List main, the tags and the branches.

    A tag names a version and keeps it from expiring. A branch is a line of its own: what is written to
    it is not seen on main until it is merged. `base` is the version of main that a branch began at, or
    was last merged at; without one it cannot be merged. Of a published table, the last line is the
    version that other engines read, and how many versions it is behind main.
    """
    with opened(table) as t:
        rows, status = t.inspect.ref_records(), t.inspect.publication()
    columns: tuple[str, ...] = _REFS
    if status is not None:
        columns = (*_REFS, "behind")
        published = {"name": "(published)", "kind": "published", "version": status.version}
        rows.append(published | {"behind": status.behind})
        rows = [dict.fromkeys(columns) | row for row in rows]
    print_rows(rows, as_json=as_json, columns=columns)


@verb(
    PANEL,
    Example("tag ./people before-summer", "the newest version"),
    Example("tag ./people evidence --version 3 --hold", "an older one, under a legal hold"),
    Example("tag ./people evidence --release", "lift the hold"),
)
def tag(
    table: TableUri,
    name: Name,
    version: Version = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="A legal hold: no drop and no erasure gets past it.")
    ] = False,
    release: Annotated[bool, typer.Option("--release", help="Lift the hold of this tag.")] = False,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Name the newest version, or another, so that it stays readable until the tag is dropped.

    With --hold a tag that is there already is put under a legal hold.
    """
    if hold and release:
        raise InvalidRequest("--hold and --release say opposite things")
    with opened(table, ref=ref) as t:
        there = name in t.snapshot.refs
        if release or (hold and there and version is None):
            result = t.refs.set_hold(name, hold)
        else:
            result = t.refs.tag(name, version, hold=hold)
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("branch ./people trial", "then `--ref trial` reads it and writes to it"),
    Example("branch ./people again --at 3", "on version 3"),
)
def branch(
    table: TableUri,
    name: Name,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="VERSION|REF", help="Begin there instead of at main."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Begin a branch: a line of the table that is written to on its own, by --ref NAME.

    It costs one commit of metadata, however large the table is. `inlay merge` brings it back.
    """
    with opened(table) as t:
        where = int(at) if at is not None and at.isdigit() else at
        made = t.refs.branch(name, at=where)
    print_record({"branch": name, "version": made.version}, as_json=as_json)


@verb(PANEL, Example("drop-ref ./people trial", "not needed any more"))
def drop_ref(table: TableUri, name: Name, as_json: AsJson = False) -> None:
    """Forget a tag or branch. What only it kept goes with a later `inlay gc`. A legal hold refuses."""
    with opened(table) as t:
        result = t.refs.drop(name)
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("merge ./people trial", "whatever happened on main"),
    Example("merge ./people trial --fast-forward", "only if nothing did"),
)
def merge(
    table: TableUri,
    name: Name,
    forward: Annotated[
        bool,
        typer.Option("--fast-forward", help="Only if main has not changed since the branch began."),
    ] = False,
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Bring what a branch did into main: the rows it added, without the rows it deleted.

    Afterwards both are even, and the branch goes on. Deletes of the branch hit the rows they saw there
    and no others; a row that both updated is there as each made it. A file that both rewrote, or that one
    rewrote and the other deleted from, is a conflict: nothing is changed, and the file is named.
    """
    with opened(table) as t:
        into_main = t.refs.fast_forward if forward else t.refs.merge
        result = into_main(name, **noted(message, metadata))
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("restore ./people --version 3", "as it was at version 3"),
    Example("restore ./people --ref before-summer", "as tagged"),
)
def restore(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="BRANCH", help="Restore this branch, not main.")
    ] = None,
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Make rows and columns what they were at a version, time, tag or branch, as a new commit.

    The history stays, so that a restore can be undone by another. Requests and events that were applied
    stay applied.
    """
    with opened(table, ref=on) as t:
        result = t.refs.restore(version=version, as_of=as_of, ref=ref, **noted(message, metadata))
    print_write(result, as_json=as_json)
