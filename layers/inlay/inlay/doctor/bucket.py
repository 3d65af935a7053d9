"""What a bucket must be, to hold tables: of the right kind, in the right region, with the configuration
that commits, landing files and erasures rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from inlay.doctor.finding import Deployment, Finding, Severity

# Names that S3 gives to what is not a general purpose bucket, and why tables cannot be there. The
# template's parameter ExistingBucket refuses the same.
OTHER_KINDS = (
    ("--x-s3", "a directory bucket", "it keeps no versions, sends no events and lists in no order"),
    (
        "-s3alias",
        "the alias of an access point",
        "events and versions are configured on its bucket",
    ),
    ("--ol-s3", "an Object Lambda access point", "what it reads is not what was written"),
    (".mrap", "a multi-region access point", "a swap needs one region"),
)
# SQS keeps a message so long; an overwritten landing file is ingested by its version until then.
MESSAGE_DAYS = 14
# Requests that are signed with a clock further off are refused (15 minutes); leases and grace are days.
_CLOCK_SECONDS = 60.0


def refused_kind(name: str) -> Finding | None:
    """The finding for a name that is no general purpose bucket's."""
    for ending, kind, why in OTHER_KINDS:
        if name.endswith(ending):
            return Finding(
                "kind",
                Severity.ERROR,
                f"{name} is {kind}: {why}",
                "Name a general purpose bucket: aws s3api list-buckets",
            )
    if name.startswith("arn:"):
        return Finding(
            "kind",
            Severity.ERROR,
            f"{name} is an ARN, not a bucket's name",
            "Name the bucket itself: aws s3api list-buckets",
        )
    return None


def region(at: Deployment) -> Iterator[Finding]:
    location = at.clients("s3").get_bucket_location(Bucket=at.bucket).get("LocationConstraint")
    own = {None: "us-east-1", "EU": "eu-west-1"}.get(location, location)
    if own != at.region:
        yield Finding(
            "region",
            Severity.ERROR,
            f"the bucket is in {own}, this is {at.region}: queues take events of their own region only",
            f"AWS_REGION={own} inlay doctor {at.stack or at.bucket}",
        )


def clocks(at: Deployment) -> Iterator[Finding]:
    answer = at.clients("s3").get_bucket_location(Bucket=at.bucket)
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if said is None:
        return
    skew = at.now - parsedate_to_datetime(said).timestamp()
    if abs(skew) > _CLOCK_SECONDS:
        yield Finding(
            "clocks",
            Severity.ERROR,
            f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} S3's: "
            "commits by hand carry wrong times, and past 15 minutes requests are refused",
            "sudo timedatectl set-ntp true",
        )


def versions(at: Deployment) -> Iterator[Finding]:
    versioning = at.clients("s3").get_bucket_versioning(Bucket=at.bucket)
    if versioning.get("MFADelete") == "Enabled":
        yield Finding(
            "versions",
            Severity.ERROR,
            "MFA delete is on: an erasure cannot remove versions, and never ends",
            f"aws s3api put-bucket-versioning --bucket {at.bucket} "
            "--versioning-configuration Status=Enabled,MFADelete=Disabled --mfa 'SERIAL CODE'",
        )
    if versioning.get("Status") != "Enabled":
        yield Finding(
            "versions",
            Severity.WARNING,
            "no versions are kept: a landing file that is overwritten before it was ingested is lost, and "
            "a deleted pointer cannot be restored",
            f"aws s3api put-bucket-versioning --bucket {at.bucket} "
            "--versioning-configuration Status=Enabled",
        )


def lifecycle(at: Deployment) -> Iterator[Finding]:
    s3 = at.clients("s3")
    try:
        rules = s3.get_bucket_lifecycle_configuration(Bucket=at.bucket)["Rules"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
            raise
        rules = []
    shown = f"aws s3api get-bucket-lifecycle-configuration --bucket {at.bucket}"
    enabled = [rule for rule in rules if rule.get("Status") == "Enabled"]
    for rule in enabled:
        name = rule.get("ID", "without a name")
        mend = f"Correct the rule {name!r}: {shown}, then put-bucket-lifecycle-configuration"
        expiry = rule.get("Expiration", {})
        ends = "Days" in expiry or "Date" in expiry
        if _meets(rule, at.tables) and ends:
            yield Finding(
                "lifecycle",
                Severity.ERROR,
                f"the rule {name!r} deletes objects under {at.tables} by age: files that tables refer to",
                mend,
            )
        if _meets(rule, at.tables) and (
            cold := {t.get("StorageClass") for t in rule.get("Transitions", [])} & _COLD
        ):
            yield Finding(
                "lifecycle",
                Severity.ERROR,
                f"the rule {name!r} moves files of tables to {', '.join(sorted(cold))}: no scan reads it",
                mend,
            )
        if _meets(rule, at.landing) and expiry.get("Days", MESSAGE_DAYS + 1) <= MESSAGE_DAYS:
            yield Finding(
                "lifecycle",
                Severity.ERROR,
                f"the rule {name!r} deletes landed files after {expiry['Days']} days: their messages "
                f"wait up to {MESSAGE_DAYS}",
                mend,
            )
        kept = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
        if kept is not None and kept <= MESSAGE_DAYS and _meets(rule, at.landing):
            yield Finding(
                "lifecycle",
                Severity.ERROR,
                f"the rule {name!r} deletes overwritten landing files after {kept} days, before they are "
                "sure to be ingested",
                mend,
            )
    if not any("NoncurrentVersionExpiration" in r and _covers(r, at.tables) for r in enabled):
        yield Finding(
            "lifecycle",
            Severity.WARNING,
            f"no rule expires noncurrent versions under {at.tables}: each commit leaves one of its pointer",
            "Add the rules of Bucket in template.yaml: docs/DEPLOY.md, An existing bucket",
        )
    if not any("AbortIncompleteMultipartUpload" in r and _covers(r, at.tables) for r in enabled):
        yield Finding(
            "lifecycle",
            Severity.WARNING,
            "no rule ends unfinished uploads: what a killed writer left is paid for",
            "Add the rules of Bucket in template.yaml: docs/DEPLOY.md, An existing bucket",
        )


_COLD = {"GLACIER", "DEEP_ARCHIVE"}


def _prefix_of(rule: Mapping[str, Any]) -> str:
    chosen = rule.get("Filter") or {}
    prefix: str = (
        rule.get("Prefix") or chosen.get("Prefix") or chosen.get("And", {}).get("Prefix") or ""
    )
    return prefix


def _meets(rule: Mapping[str, Any], prefix: str) -> bool:
    """Whether a rule reaches objects under `prefix`; one by tags or sizes reaches some of them."""
    own = _prefix_of(rule)
    return own.startswith(prefix) or prefix.startswith(own)


def _covers(rule: Mapping[str, Any], prefix: str) -> bool:
    return prefix.startswith(_prefix_of(rule))


def encryption(at: Deployment) -> Iterator[Finding]:
    answer = at.clients("s3").get_bucket_encryption(Bucket=at.bucket)
    for rule in answer["ServerSideEncryptionConfiguration"]["Rules"]:
        default = rule.get("ApplyServerSideEncryptionByDefault", {})
        algorithm, key = default.get("SSEAlgorithm", "AES256"), default.get("KMSMasterKeyID")
        if algorithm == "AES256":
            continue
        if not rule.get("BucketKeyEnabled") and algorithm == "aws:kms":
            mended = {"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}
            yield Finding(
                "encryption",
                Severity.WARNING,
                "each object costs a request to KMS: the bucket key is off",
                f"aws s3api put-bucket-encryption --bucket {at.bucket} "
                f"--server-side-encryption-configuration '{json.dumps({'Rules': [mended]})}'",
            )
        if at.stack is None or key is None:
            continue
        given = at.parameters.get("KmsKeyArn", "")
        if given.rpartition("/")[2] != key.rpartition("/")[2]:
            yield Finding(
                "encryption",
                Severity.ERROR,
                f"the bucket encrypts with {key}, which the functions may not use "
                f"(KmsKeyArn is {given or 'empty'})",
                f"sam deploy --stack-name {at.stack} --parameter-overrides KmsKeyArn={key}",
            )


# What the policy of a bucket can refuse to take, by the key of the condition.
_UNREADABLE = {
    "s3:x-amz-server-side-encryption-customer-algorithm": "encrypted with keys of their producers (SSE-C)",
    "s3:x-amz-server-side-encryption-aws-kms-key-id": "encrypted with another key of KMS",
    "s3:x-amz-storage-class": "in an archive (Glacier)",
}


def unreadable_files(at: Deployment) -> Iterator[Finding]:
    """Objects that no function can read may be data, so an erasure waits for them: whoever may put files
    could keep it open."""
    try:
        policy = at.clients("s3").get_bucket_policy(Bucket=at.bucket)["Policy"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucketPolicy":
            raise
        policy = "{}"
    statements = json.loads(policy).get("Statement", [])
    denied = json.dumps([s for s in statements if s.get("Effect") == "Deny"])
    taken = {key: what for key, what in _UNREADABLE.items() if key not in denied}
    if taken:
        yield Finding(
            "unreadable files",
            Severity.WARNING,
            f"files may land that no function reads: {', or '.join(taken.values())}",
            f"Deny s3:PutObject by {', '.join(taken)}, as BucketPolicy in template.yaml does: "
            f"aws s3api put-bucket-policy --bucket {at.bucket} --policy file://policy.json",
        )


def object_lock(at: Deployment) -> Iterator[Finding]:
    try:
        answer = at.clients("s3").get_object_lock_configuration(Bucket=at.bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ObjectLockConfigurationNotFoundError":
            raise
        return
    lock = answer.get("ObjectLockConfiguration", {})
    if lock.get("ObjectLockEnabled") != "Enabled":
        return
    default = lock.get("Rule", {}).get("DefaultRetention")
    if default is None:
        yield Finding(
            "object lock",
            Severity.WARNING,
            "objects of this bucket can be locked: an erasure waits for those that are",
            "Lock nothing under tables/ and ingest/; inlay erase-status TABLE names what it waits for",
        )
        return
    period = f"{default['Days']} days" if "Days" in default else f"{default['Years']} years"
    yield Finding(
        "object lock",
        Severity.ERROR,
        f"new objects are locked for {period} ({default['Mode']}): no erasure ends sooner, "
        "and nothing is collected",
        f"aws s3api put-object-lock-configuration --bucket {at.bucket} "
        "--object-lock-configuration ObjectLockEnabled=Enabled",
    )


def requester_pays(at: Deployment) -> Iterator[Finding]:
    if at.clients("s3").get_bucket_request_payment(Bucket=at.bucket).get("Payer") == "Requester":
        yield Finding(
            "requester pays",
            Severity.ERROR,
            "requesters pay: S3 refuses readers of other accounts, which do not send x-amz-request-payer",
            f"aws s3api put-bucket-request-payment --bucket {at.bucket} "
            "--request-payment-configuration Payer=BucketOwner",
        )


def rights(at: Deployment) -> Iterator[Finding]:
    """What whoever asks may do; of the functions' roles: `stack.roles`."""
    s3 = at.clients("s3")
    policy = at.outputs.get("ReaderPolicy")
    mend = (
        f"aws iam attach-role-policy --role-name YOUR-ROLE --policy-arn {policy}"
        if policy
        else f"Allow s3:ListBucket of {at.bucket} and s3:GetObject of {at.bucket}/{at.tables}*"
    )
    try:
        listed = s3.list_objects_v2(Bucket=at.bucket, Prefix=at.tables, MaxKeys=1)
        for listed_object in listed.get("Contents", []):
            s3.head_object(Bucket=at.bucket, Key=listed_object["Key"])
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("AccessDenied", "403"):
            raise
        yield Finding("rights", Severity.ERROR, "you may not read the tables", mend)


def notifications(at: Deployment) -> Iterator[Finding]:
    answer = at.clients("s3").get_bucket_notification_configuration(Bucket=at.bucket)
    by_rule = "EventBridgeConfiguration" in answer and at.parameters.get("EventBridgeRules")
    for queue, prefix, suffix, severity, then in (
        ("IngestQueue", at.landing, "", Severity.ERROR, "landed files wait for the hourly sweep"),
        (
            "PublishQueue",
            at.tables,
            "/_latest_manifest",
            Severity.WARNING,
            "tables are published by schedule",
        ),
    ):
        if queue == "IngestQueue" and by_rule:
            continue
        arn = at.outputs.get(f"{queue}Arn")
        if any(
            _notifies(configuration, arn, prefix, suffix)
            for configuration in answer.get("QueueConfigurations", [])
        ):
            continue
        filters = [
            {"Name": n, "Value": v} for n, v in (("prefix", prefix), ("suffix", suffix)) if v
        ]
        add = {
            "QueueArn": arn or f"ARN-OF-{queue}",
            "Events": ["s3:ObjectCreated:*"],
            "Filter": {"Key": {"FilterRules": filters}},
        }
        yield Finding(
            "notifications",
            severity if at.stack else Severity.WARNING,
            f"new objects under {prefix} are not notified to {arn or 'any queue'}: {then}",
            "Add this to QueueConfigurations (S3 replaces the whole configuration): "
            f"aws s3api put-bucket-notification-configuration --bucket {at.bucket} … {json.dumps(add)}",
        )


def _notifies(configured: Mapping[str, Any], arn: str | None, prefix: str, suffix: str) -> bool:
    rules = configured.get("Filter", {}).get("Key", {}).get("FilterRules", [])
    said = {rule["Name"].lower(): rule["Value"] for rule in rules}
    created = any(event.startswith("s3:ObjectCreated:*") for event in configured["Events"])
    reaches = prefix.startswith(said.get("prefix", "")) and suffix.endswith(said.get("suffix", ""))
    return created and reaches and arn in (None, configured["QueueArn"])
