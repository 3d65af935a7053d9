"""Looks at a stack, or at a bucket, check by check.

Promise: nothing is changed; every check has an outcome: findings, sound, or that it could not be looked at
and which permission that takes. A name that is no general purpose bucket's is refused first.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from inlay.doctor import bucket, stack
from inlay.doctor.finding import Clients, Deployment, Examined, Finding, Severity
from inlay.errors import InvalidRequest
from inlay.functions.verdict import of_aws


@dataclass(frozen=True, slots=True)
class Check:
    """`needs` are the permissions that looking takes."""

    name: str
    run: Callable[[Deployment], Iterator[Finding]]
    needs: str


OF_A_BUCKET = (
    Check("region", bucket.region, "s3:GetBucketLocation"),
    Check("clocks", bucket.clocks, "s3:GetBucketLocation"),
    Check("rights", bucket.rights, "s3:ListBucket, s3:GetObject"),
    Check("versions", bucket.versions, "s3:GetBucketVersioning"),
    Check("lifecycle", bucket.lifecycle, "s3:GetLifecycleConfiguration"),
    Check("encryption", bucket.encryption, "s3:GetEncryptionConfiguration"),
    Check("unreadable files", bucket.unreadable_files, "s3:GetBucketPolicy"),
    Check("object lock", bucket.object_lock, "s3:GetBucketObjectLockConfiguration"),
    Check("requester pays", bucket.requester_pays, "s3:GetBucketRequestPayment"),
    Check("notifications", bucket.notifications, "s3:GetBucketNotification"),
)
OF_A_STACK = (
    Check("roles", stack.roles, "iam:GetRole, iam:SimulatePrincipalPolicy"),
    Check(
        "concurrency",
        stack.concurrency,
        "lambda:GetAccountSettings, lambda:ListEventSourceMappings",
    ),
    Check("event sources", stack.sources, "lambda:ListEventSourceMappings"),
    Check("aliases", stack.aliases, "lambda:GetFunctionConfiguration"),
    Check("schedules", stack.schedules, "events:DescribeRule"),
    Check("dead letters", stack.letters, "sqs:GetQueueAttributes"),
    Check("alarms", stack.alarms, "cloudwatch:DescribeAlarms, sns:ListSubscriptionsByTopic"),
    Check("metrics", stack.metrics, "cloudwatch:GetMetricStatistics"),
)


def examine_here(target: str, *, prefix: str = "") -> Examined:
    """`examine` with the standard AWS environment and this machine's clock."""
    session = boto3.Session()
    services: Any = session
    try:
        return examine(
            target,
            clients=functools.cache(services.client),
            region=session.region_name or "us-east-1",
            now=time.time(),
            prefix=prefix,
        )
    except (BotoCoreError, ClientError) as error:
        raise of_aws(
            error,
            "AWS does not answer",
            "Check the region and the credentials: aws sts get-caller-identity. Where there is S3 alone, "
            "as on this machine, name the bucket: inlay doctor s3://NAME",
        ) from error


def examine(
    target: str, *, clients: Clients, region: str, now: float, prefix: str = ""
) -> Examined:
    """`target` is a stack's name, or a bucket's (`s3://NAME`: of no stack is asked); `prefix` is where
    tables/ are in a bucket that is named alone. Raises `InvalidRequest` where there is neither."""
    name = target.removeprefix("s3://").rstrip("/")
    refused = bucket.refused_kind(name)
    if refused is not None:
        return Examined(target, name, None, (refused,), ())
    described = None if target.startswith("s3://") else _described(name, clients)
    at = _find(name, described, clients=clients, region=region, now=now, prefix=prefix)
    findings, sound = list[Finding](), list[str]()
    for check in (*OF_A_BUCKET, *(OF_A_STACK if at.stack else ())):
        of_check = list(_looked(check, at))
        findings += of_check
        if not of_check:
            sound.append(check.name)
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Examined(target, at.bucket, at.stack, tuple(findings), tuple(sound))


def _looked(check: Check, at: Deployment) -> Iterator[Finding]:
    try:
        yield from check.run(at)
    except (ClientError, EndpointConnectionError) as error:
        said = error.response["Error"]["Code"] if isinstance(error, ClientError) else "no answer"
        yield Finding(
            check.name,
            Severity.UNKNOWN,
            f"could not be looked at: {said}",
            f"Ask as somebody who has {check.needs}",
        )


def _described(name: str, clients: Clients) -> Any | None:
    """The stack of that name; None where there is none, or it may not be asked."""
    try:
        return clients("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        # No such stack, a name that no stack can have (dots), or one that may not ask.
        if error.response["Error"]["Code"] not in ("ValidationError", "AccessDenied"):
            raise
    return None


def _find(
    name: str, described: Any | None, *, clients: Clients, region: str, now: float, prefix: str
) -> Deployment:
    where = f"in {region}, with these credentials"
    if described is None:
        try:
            clients("s3").head_bucket(Bucket=name)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchBucket"):
                raise InvalidRequest(
                    f"there is no stack and no bucket {name} {where}",
                    next_step="Name the stack: aws cloudformation list-stacks --query "
                    "StackSummaries[].StackName",
                ) from error
        return Deployment(name, prefix, region, None, {}, {}, {}, clients, now)
    parameters = {
        parameter["ParameterKey"]: parameter.get("ParameterValue", "")
        for parameter in described.get("Parameters", [])
    }
    outputs = {
        output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])
    }
    if "Bucket" not in outputs or "IngestQueueArn" not in outputs:
        raise InvalidRequest(
            f"the stack {name} is none of Inlay: it has no outputs Bucket and IngestQueueArn",
            next_step=f"Is it complete? aws cloudformation describe-stack-events --stack-name {name}",
        )
    pages = clients("cloudformation").get_paginator("list_stack_resources")
    resources = {
        resource["LogicalResourceId"]: resource["PhysicalResourceId"]
        for resource in chain.from_iterable(
            page["StackResourceSummaries"] for page in pages.paginate(StackName=name)
        )
        if "PhysicalResourceId" in resource
    }
    return Deployment(
        outputs["Bucket"],
        parameters.get("Prefix", ""),
        region,
        name,
        parameters,
        outputs,
        resources,
        clients,
        now,
    )
