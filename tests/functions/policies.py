"""The template's policies, asked what they allow; and a store that asks them, as S3 would.

Each request of the store is what S3 is asked (AWS: "Actions, resources, and condition keys for Amazon S3").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from inlay.errors import AccessDenied, StoreUnavailable
from inlay.local.template import decided, read_body
from inlay.storage.base import Got, Head, Location, Missing
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, ROOT

ACCOUNT, REGION = "123456789012", "us-east-1"


@cache
def _body() -> dict[str, Any]:
    return read_body(Path(ROOT / "template.yaml"))


def load(**parameters: str) -> dict[str, Any]:
    body = _body()
    known = {name: str(spec.get("Default", "")) for name, spec in body["Parameters"].items()}
    assert parameters.keys() <= known.keys()
    pseudo = {
        "AWS::Partition": "aws",
        "AWS::AccountId": ACCOUNT,
        "AWS::Region": REGION,
        "AWS::StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/inlay/1",
    }
    given = {**pseudo, **known, **parameters}
    return resolve(decided(body, given), given)


def resolve(value: Any, names: Mapping[str, str]) -> Any:
    """What CloudFormation makes of references: ARNs of queues and buckets, names of the rest."""
    if isinstance(value, list):
        return [resolve(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str(name)}:
            return names.get(name, BUCKET if name == "Bucket" else name)
        case {"Fn::GetAtt": str(path)}:
            name, _, what = path.partition(".")
            return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}" if what == "Arn" else name
        case {"Fn::Sub": [str(text), own]}:
            return substitute(text, {**names, **resolve(own, names)})
        case {"Fn::Sub": str(text)}:
            return substitute(text, names)
    return {key: resolve(each, names) for key, each in value.items()}


def substitute(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"${{{name}}}", str(value))
    return text


@dataclass(frozen=True)
class Grant:
    """One action on one kind of resource, as one line of a policy allows it."""

    action: str
    resource: str
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    def allows(self, action: str, resource: str, prefix: str | None) -> bool:
        named = action == self.action and fnmatchcase(resource, self.resource)
        return named and all(self._holds(c, prefix) for c in self.conditions)

    @staticmethod
    def _holds(condition: tuple[str, str, tuple[str, ...]], prefix: str | None) -> bool:
        how, key, patterns = condition
        if key == "kms:ViaService":  # every request here is one of S3, which asks for the key
            assert how == "StringLike"
            return any(fnmatchcase(f"s3.{REGION}.amazonaws.com", each) for each in patterns)
        assert key == "s3:prefix" and how in ("StringLike", "StringLikeIfExists"), condition
        if prefix is None:
            return how.endswith("IfExists")
        return any(fnmatchcase(prefix, each) for each in patterns)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def grants_of(statements: Iterable[Mapping[str, Any]]) -> Iterator[Grant]:
    for statement in statements:
        assert statement["Effect"] == "Allow"
        conditions = tuple(
            (how, key, tuple(as_list(patterns)))
            for how, keys in statement.get("Condition", {}).items()
            for key, patterns in keys.items()
        )
        for action in as_list(statement["Action"]):
            for resource in as_list(statement["Resource"]):
                yield Grant(action, resource, conditions)


def policies(template: Mapping[str, Any]) -> dict[str, tuple[Grant, ...]]:
    """Function's folder → what it may do."""
    resources = template["Resources"]
    found = {}
    for each in resources.values():
        if each["Type"] != "AWS::Serverless::Function":
            continue
        own: list[Grant] = []
        for policy in each["Properties"]["Policies"]:
            document = (
                resources[policy]["Properties"]["PolicyDocument"]
                if isinstance(policy, str)
                else policy
            )
            own += grants_of(document["Statement"])
        found[each["Properties"]["CodeUri"].rpartition("/")[2]] = tuple(own)
    return found


@dataclass
class Guard:
    """Applies the policies to the role that is `acting`, and remembers which lines were used."""

    grants: Mapping[str, tuple[Grant, ...]]
    acting: str = ""
    used: set[tuple[str, Grant]] = field(default_factory=set)
    denied: list[tuple[str, str, str]] = field(default_factory=list)
    keys: Mapping[str, str] = field(default_factory=dict)  # bucket → the key it is encrypted with
    failing_parts: bool = False

    def ask(self, action: str, resource: str, prefix: str | None = None) -> None:
        if not self.acting:
            return
        matching = [g for g in self.grants[self.acting] if g.allows(action, resource, prefix)]
        if not matching:
            self.denied.append((self.acting, action, resource))
            raise AccessDenied(f"{self.acting} may not {action} on {resource}")
        self.used |= {(self.acting, grant) for grant in matching}

    def ask_object(self, action: str, bucket: str, key: str) -> None:
        self.ask(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}")
        key_arn = self.keys.get(bucket)
        if key_arn and action in ("GetObject", "GetObjectVersion"):
            self.ask("kms:Decrypt", key_arn)
        if key_arn and action == "PutObject":
            self.ask("kms:GenerateDataKey", key_arn)

    def unused(self) -> set[tuple[str, str, str]]:
        return {
            (name, grant.action, grant.resource)
            for name, grants in self.grants.items()
            for grant in grants
            if (name, grant) not in self.used
        }


KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/abc"


class GuardedStore(MemoryStore):
    """A memory bucket of S3 whose every request is allowed by the acting function's policy."""

    guard: Guard

    def _ask(self, action: str, key: str) -> None:
        self.guard.ask_object(action, self.bucket, key)

    def at(self, bucket: str) -> GuardedStore:
        return guarded(MemoryStore(bucket, region=self._region), self.guard)

    def _found(self, answer: Any) -> Any:
        if isinstance(answer, Missing):  # else S3 says 403
            self.guard.ask("s3:ListBucket", f"arn:aws:s3:::{self.bucket}")
        return answer

    def get(self, key: str, **pins: Any) -> Any:
        self._ask("GetObjectVersion" if pins.get("version_id") else "GetObject", key)
        return self._found(super().get(key, **pins))

    def get_suffix(self, key: str, length: int, **pins: Any) -> Any:
        self._ask("GetObjectVersion" if pins.get("version_id") else "GetObject", key)
        return self._found(super().get_suffix(key, length, **pins))

    def head(self, key: str, **pins: Any) -> Any:
        version = "Version" if pins.get("version_id") else ""
        self._ask(f"GetObject{version}", key)
        found = self._found(super().head(key, **pins))
        if isinstance(found, Head) and "Tagging" in found.info.headers:
            denied = len(self.guard.denied)
            try:
                self._ask(f"GetObject{version}Tagging", key)
            except AccessDenied:  # as the store of S3 has it: tags are then not carried over
                del self.guard.denied[denied:]
                kept = {n: v for n, v in found.info.headers.items() if n != "Tagging"}
                return replace(found, info=replace(found.info, headers=kept, unread_tags=True))
        return found

    def _list(self, action: str, prefix: str | None) -> None:
        self.guard.ask(f"s3:{action}", f"arn:aws:s3:::{self.bucket}", prefix)

    def list(self, prefix: str, **more: Any) -> Any:
        self._list("ListBucket", prefix)
        return super().list(prefix, **more)

    def list_versions(self, prefix: str) -> Any:
        self._list("ListBucketVersions", prefix)
        return super().list_versions(prefix)

    def list_uploads(self, prefix: str) -> Any:
        # S3 has no s3:prefix for this action: a condition on it denies, whatever is listed.
        self._list("ListBucketMultipartUploads", None)
        return super().list_uploads(prefix)

    def _write(self, key: str, headers: Any) -> None:
        self._ask("PutObject", key)
        if headers and "Tagging" in headers:
            self._ask("PutObjectTagging", key)

    def put(self, key: str, body: Any, **more: Any) -> Any:
        self._write(key, more.get("headers"))
        return super().put(key, body, **more)

    def create_multipart(self, key: str, **more: Any) -> Any:
        self._write(key, more.get("headers"))
        return super().create_multipart(key, **more)

    def upload_part(self, key: str, *rest: Any) -> Any:
        self._ask("PutObject", key)
        if self.guard.failing_parts and self.guard.acting:
            raise StoreUnavailable("S3 does not answer")
        return super().upload_part(key, *rest)

    def complete_multipart(self, key: str, *rest: Any, **more: Any) -> Any:
        self._ask("PutObject", key)
        return super().complete_multipart(key, *rest, **more)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self._ask("AbortMultipartUpload", key)
        super().abort_multipart(key, upload_id)

    def _read_source(self, source: Location, *, tags: bool) -> bool:
        version = "Version" if source.version_id else ""
        self.guard.ask_object(f"GetObject{version}", source.bucket, source.key)
        held = self._region.bucket(source.bucket).find(source.key, source.version_id)
        tagged = tags and held is not None and "Tagging" in held.headers
        if tagged:
            self.guard.ask_object(f"GetObject{version}Tagging", source.bucket, source.key)
        return tagged

    def copy(self, source: Location, key: str, **more: Any) -> Any:
        tagged = self._read_source(source, tags=not more.get("bare"))
        self._write(key, {"Tagging": ""} if tagged else None)
        return self._found(super().copy(source, key, **more))

    def upload_part_copy(self, key: str, *rest: Any, source: Location, **more: Any) -> Any:
        self._read_source(source, tags=False)
        self._ask("PutObject", key)
        return super().upload_part_copy(key, *rest, source=source, **more)

    def delete(self, keys: Iterable[str]) -> Any:
        named = list(keys)
        for key in named:
            self._ask("DeleteObject", key)
        return super().delete(named)

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Any:
        named = list(objects)
        for key, _ in named:
            # AWS, conditional deletes: both permissions.
            self._ask("DeleteObject", key)
            self._ask("GetObject", key)
        return super().delete_unchanged(named)

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Any:
        named = list(versions)
        for key, version_id in named:
            assert version_id  # also where it is "null"
            # AWS, DeleteObjects: "you must always specify the s3:DeleteObject permission".
            self._ask("DeleteObject", key)
            self._ask("DeleteObjectVersion", key)
        return super().delete_versions(named)


def guarded(store: MemoryStore, guard: Guard) -> GuardedStore:
    made = GuardedStore(store.bucket, region=store._region)
    made.guard = guard
    return made


__all__ = ["Got", "Guard", "GuardedStore", "guarded", "load", "policies"]
