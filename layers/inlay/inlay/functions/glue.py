"""Published tables in the AWS Glue catalog, for Athena and whatever else asks it.

Promise: what is registered is a publication of the same table, and never goes back: an update names the
version of the registration it replaces, as Iceberg's own client does, so that of racing publishers the
newest stays. A table of that name that is somebody else's is refused, not replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.functions.verdict import code_of

# Others may register meanwhile: each round begins with what is there then.
MAX_ROUNDS = 8
_TABLE_ID, _VERSION = "inlay.table_id", "inlay.version"
_PLAIN = {
    "long": "bigint",
    "timestamptz": "timestamp",
    "time": "string",
    "uuid": "string",
}


def register(glue: Any, database: str, name: str, pointer: bytes, *, back: bool = False) -> bool:
    """Register the publication whose pointer's bytes are given as `database.name`; whether that changed
    anything. `back` also replaces a newer version of the same table, after a rebuild."""
    said = json.loads(pointer)
    table_input = _table_input(name, said["metadata-location"], said["metadata"])
    own = table_input["Parameters"]
    named = {"DatabaseName": database}
    for _ in range(MAX_ROUNDS):
        try:
            registered = glue.get_table(**named, Name=name)["Table"]
        except glue.exceptions.EntityNotFoundException:
            registered = None
        except Exception as error:
            raise _unavailable(error) from error
        try:
            if registered is None:
                glue.create_table(**named, TableInput=table_input)
                return True
            there = registered.get("Parameters", {})
            if there.get(_TABLE_ID) != own[_TABLE_ID]:
                raise InvalidRequest(
                    f"{database}.{name} in the Glue catalog is another table",
                    next_step="Drop it there, or register under another name",
                )
            if there["metadata_location"] == own["metadata_location"]:
                return False
            if int(there[_VERSION]) > int(own[_VERSION]) and not back:
                return False
            own["previous_metadata_location"] = there["metadata_location"]
            glue.update_table(
                **named, TableInput=table_input, VersionId=registered["VersionId"], SkipArchive=True
            )
            return True
        except (
            glue.exceptions.AlreadyExistsException,
            glue.exceptions.ConcurrentModificationException,
        ):
            continue
        except InvalidRequest:
            raise
        except Exception as error:
            raise _unavailable(error) from error
    raise StoreUnavailable(f"others keep changing {database}.{name} in the Glue catalog")


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"the Glue catalog refuses a request: {code_of(error)}",
        next_step="Does the database exist, and may this role change its tables?",
    )


def _table_input(name: str, location: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    [schema] = [s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]]
    columns = [
        {
            "Name": field["name"],
            "Type": _hive(field["type"]),
            "Parameters": {"iceberg.field.id": str(field["id"]), "iceberg.field.current": "true"},
        }
        for field in schema["fields"]
    ]
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "table_type": "ICEBERG",
            "metadata_location": location,
            _TABLE_ID: metadata["table-uuid"],
            _VERSION: str(metadata["current-snapshot-id"]),
        },
        "StorageDescriptor": {"Location": metadata["location"], "Columns": columns},
    }


def _hive(kind: Any) -> str:
    """How the catalog shows a type of Iceberg; engines go by the metadata."""
    if isinstance(kind, str):
        base = "binary" if kind.startswith("fixed") else kind.replace(" ", "")
        return _PLAIN.get(base, base)
    match kind["type"]:
        case "struct":
            inside = ",".join(f"{f['name']}:{_hive(f['type'])}" for f in kind["fields"])
            return f"struct<{inside}>"
        case "list":
            return f"array<{_hive(kind['element'])}>"
        case _:  # a map: the format has no other nested type
            return f"map<{_hive(kind['key'])},{_hive(kind['value'])}>"


@cache
def client() -> Any:
    """The process's client of Glue, made when first needed."""
    import boto3

    return boto3.client("glue")
