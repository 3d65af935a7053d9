"""Inlay: mutable columnar tables on plain S3, without a catalog.

>>> import inlay, pyarrow as pa
>>> t = inlay.create("memory://doc/tables/people", pa.schema([("id", pa.int64()), ("name", pa.string())]))
>>> t.append(pa.table({"id": [1, 2, 3], "name": ["Ada", "Bob", "Cy"]})).version
2
>>> t.delete("id = 2").requests
2
>>> t.scan(columns=["name"]).to_arrow().column("name").to_pylist()
['Ada', 'Cy']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inlay.lazy import import_now

__version__ = "0.9.0"  # the one place; pyproject.toml reads it

if TYPE_CHECKING:
    from inlay.ops.collect_garbage import CollectResult
    from inlay.ops.commit.driver import WriteResult
    from inlay.ops.erase.check_receipt import ReceiptCheck
    from inlay.ops.erase.request import AdvanceResult
    from inlay.ops.feed import Changes
    from inlay.ops.inspect.report import Report
    from inlay.ops.maintain.compact import CompactResult
    from inlay.ops.maintain.rewrite import RewriteResult
    from inlay.ops.verify.repair import Repaired
    from inlay.ops.verify.table import Verified
    from inlay.parse import lit
    from inlay.plan.surgery import Choice, Cost
    from inlay.plan.verify import Finding
    from inlay.storage.wrapped import Usage
    from inlay.table import Table, connect, create, open
    from inlay.table.by_uri import adopt, drop, exists, repair, tables, verify
    from inlay.table.transaction import snapshot, transaction

__all__ = [
    "AdvanceResult",
    "Changes",
    "Choice",
    "CollectResult",
    "CompactResult",
    "Cost",
    "Finding",
    "ReceiptCheck",
    "Repaired",
    "Report",
    "RewriteResult",
    "Table",
    "Usage",
    "Verified",
    "WriteResult",
    "__version__",
    "adopt",
    "connect",
    "create",
    "drop",
    "errors",
    "exists",
    "lit",
    "open",
    "repair",
    "snapshot",
    "tables",
    "transaction",
    "verify",
]
# By the module that has it; any other is of `inlay.table`.
_HOMES = {
    **dict.fromkeys(
        ("adopt", "drop", "exists", "repair", "tables", "verify"), "inlay.table.by_uri"
    ),
    "AdvanceResult": "inlay.ops.erase.request",
    "Changes": "inlay.ops.feed",
    "Choice": "inlay.plan.surgery",
    "CollectResult": "inlay.ops.collect_garbage",
    "CompactResult": "inlay.ops.maintain.compact",
    "Cost": "inlay.plan.surgery",
    "Finding": "inlay.plan.verify",
    "ReceiptCheck": "inlay.ops.erase.check_receipt",
    "Repaired": "inlay.ops.verify.repair",
    "Report": "inlay.ops.inspect.report",
    "RewriteResult": "inlay.ops.maintain.rewrite",
    "Usage": "inlay.storage.wrapped",
    "Verified": "inlay.ops.verify.table",
    "WriteResult": "inlay.ops.commit.driver",
    "lit": "inlay.parse",
    "snapshot": "inlay.table.transaction",
    "transaction": "inlay.table.transaction",
}


def __getattr__(name: str) -> Any:
    """The public names are imported when first used: a function that imports one operation does not pay
    for the others at its cold start."""
    if name == "errors":
        return import_now("inlay.errors")
    if name in __all__:
        return getattr(import_now(_HOMES.get(name, "inlay.table")), name)
    raise AttributeError(f"module 'inlay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
