"""The page of `inlay inspect --html`: one file that needs nothing else.

Promise: whatever a table, a column or a value is called, the page shows it as text and runs none of it.
The report goes in as JSON in which no `<` is left; the script builds text nodes only, and the page's own
policy lets just this script run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING

from inlay.cli.values import to_json

if TYPE_CHECKING:
    from inlay.ops.inspect.report import Report

_ASSETS = files("inlay.cli") / "assets"


def page_of(report: Report) -> str:
    """The report as HTML."""
    script = (_ASSETS / "inspect.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    parts = {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "title": html.escape(str(report.table["uri"])),
        "style": (_ASSETS / "inspect.css").read_text("utf-8"),
        "data": as_script(asdict(report)),
        "script": script,
    }
    # One pass: what is put in is not looked at again.
    template = (_ASSETS / "inspect.html").read_text("utf-8")
    pieces = template.split("%%")
    return "".join(parts[p] if at % 2 else p for at, p in enumerate(pieces))


def as_script(value: object) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or opens a comment."""
    text = json.dumps(to_json(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
