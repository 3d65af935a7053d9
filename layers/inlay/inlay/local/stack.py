"""The whole product on this machine: what `template.yaml` describes, started.

Promise: inside `with LocalStack() as stack:` the bucket, the queues with their dead letters, the six
functions, their event sources and schedules exist and work; afterwards nothing of it runs. The
processes also end when this one is killed.

S3 and SQS are embedded, in a process beside the functions. With `endpoint_url` the bucket is on that
S3 server and only the queues are embedded; the landing zone is then watched, because another server's
notifications cannot reach these queues.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from inlay.engine import EmbeddedS3
from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.functions.dead_letters import Letter, read_letters, release
from inlay.local.event_sources import Attached, EventSources
from inlay.local.runtime import FunctionPool
from inlay.local.runtime_api import Invocation
from inlay.local.s3server import HOST, AwsProcess
from inlay.local.template import Queue, Template, find_template, load_template

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sqs.client import SQSClient
from inlay.local.landing_watch import OLDEST_EVENT, LandingWatch

# How often the landing zone of a server without notifications is listed.
_WATCH_SECONDS = 1.0
_DRAIN_POLL_SECONDS = 0.1
# A function that enqueues for another one has done so before its own message is deleted, so a chain
# of two queues is empty when two looks in a row find nothing.
_IDLE_LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How the local AWS differs from the deployed one.

    `parameters` override the template's; `processes` bounds the processes of each function;
    `retry_seconds` is when a failed message comes back; `schedules` off means that compaction,
    rewriting and GC only run by `invoke`; `schedule_speed` 60 makes an hour a minute; `versioned`
    None means as the template says; `port` is the embedded server's (0: any), `host` where it listens,
    `latency_ms` what each of its S3 requests takes longer; `data_dir` keeps what the embedded S3 holds;
    `home` is where logs go.
    """

    template: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    endpoint_url: str | None = None
    processes: int = 2
    retry_seconds: float = 1.0
    schedules: bool = True
    schedule_speed: float = 1.0
    versioned: bool | None = None
    port: int = 0
    latency_ms: float = 0.0
    host: str = HOST
    data_dir: Path | None = None
    home: Path = Path(".inlay/local")


class LocalStack:
    """The running stack; made by `with LocalStack(options) as stack:`."""

    template: Template
    aws: AwsProcess
    bucket: str
    endpoint_url: str
    sqs_endpoint_url: str
    functions: Mapping[str, FunctionPool]
    s3: S3Client
    sqs: SQSClient

    def __init__(self, options: LocalOptions | None = None) -> None:
        self.options = options or LocalOptions()
        self._cleanup = contextlib.ExitStack()
        self._queue_urls: dict[str, str] = {}
        self._watch: LandingWatch | None = None
        self._say: Callable[[str], None] = lambda what: None

    # -- starting and stopping --------------------------------------------------------------------

    def start(self) -> LocalStack:
        """Start everything; what was started is stopped again if a step fails."""
        path = self.options.template or find_template()
        self.template = load_template(path, self.options.parameters)
        if self.template.bucket.existing and self.options.endpoint_url is None:
            raise InvalidRequest(
                "the local AWS makes its bucket itself",
                next_step="Leave ExistingBucket out, or name the server that has it: --endpoint-url",
            )
        with contextlib.ExitStack() as started:
            try:
                self.aws = started.enter_context(
                    AwsProcess(
                        port=self.options.port,
                        latency_ms=self.options.latency_ms,
                        host=self.options.host,
                        data_dir=self.options.data_dir,
                    )
                )
            except RuntimeError as error:
                raise StoreUnavailable(
                    str(error),
                    next_step=f"Is port {self.options.port} taken? Choose another, or 0 for any",
                ) from error
            started.callback(lambda: self._say("S3 and SQS"))
            self.sqs_endpoint_url = self.aws.endpoint_url
            self.endpoint_url = self.options.endpoint_url or self.aws.endpoint_url
            self.s3 = self._client("s3", self.endpoint_url)
            self.sqs = self._client("sqs", self.sqs_endpoint_url)
            self._create_queues()
            self._create_bucket()
            self.functions = self._start_functions(started)
            self._start_event_sources(started)
            if self.options.endpoint_url:
                self._start_watch(started)
            elif self.options.data_dir is not None:
                self._announce_kept()
            self._cleanup = started.pop_all()
        return self

    def stop(self, say: Callable[[str], None] | None = None) -> None:
        """End everything; `say` is called with the name of each part before it is waited for."""
        if say is not None:
            self._say = say
        self._cleanup.close()

    def __enter__(self) -> LocalStack:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- using it ---------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which boto3, Spark or another process finds this stack's S3 and SQS."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_ENDPOINT_URL_SQS": self.sqs_endpoint_url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            **self._credentials,
        }

    @property
    def region(self) -> str:
        return self.template.parameters["AWS::Region"]

    def table_uri(self, table: str) -> str:
        return f"s3://{self.bucket}/tables/{table}"

    def queue_url(self, queue: str) -> str:
        """The URL of a queue, by its logical id in the template (`DeleteQueue`)."""
        if queue not in self._queue_urls:
            raise InvalidRequest(
                f"the template has no queue {queue}",
                next_step=f"Use one of {', '.join(self._queue_urls)}",
            )
        return self._queue_urls[queue]

    def send(self, queue: str, message: Mapping[str, Any] | str) -> str:
        """Put a message into a queue, by its logical id; returns the message's id."""
        body = message if isinstance(message, str) else json.dumps(message)
        return self.sqs.send_message(QueueUrl=self.queue_url(queue), MessageBody=body)["MessageId"]

    def invoke(self, function: str, event: Any = None) -> Invocation:
        """Run a function now, by its folder's name, as a schedule would; an event may say more."""
        if function not in self.functions:
            raise InvalidRequest(
                f"there is no function {function}",
                next_step=f"Use one of {', '.join(self.functions)}",
            )
        return self.functions[function].invoke({} if event is None else event)

    def drain(self, timeout_seconds: float = 120.0) -> None:
        """Wait until no source queue holds a message and no scheduled run is under way.

        Messages in dead letter queues stay there and do not count.
        """
        deadline = time.monotonic() + timeout_seconds
        quiet = 0
        with self._event_sources.hurry():
            while quiet < _IDLE_LOOKS:
                quiet = 0 if self._busy() else quiet + 1
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"the queues did not drain within {timeout_seconds:.0f} s",
                        next_step=f"Look at the functions' logs in {self.options.home}",
                    )
                time.sleep(_DRAIN_POLL_SECONDS)

    def dead_letter_queues(self) -> list[str]:
        """The logical ids of the queues that dead letters wait in."""
        urls = [queue.dead_letters for queue in self.template.queues if queue.dead_letters]
        return list(dict.fromkeys(urls))  # several queues may share one

    def dead_letters(self, queue: str) -> list[Letter]:
        """What waits in the dead letters of `queue` (a logical id); it stays there."""
        named = next(known for known in self.template.queues if known.logical_id == queue)
        url = self.queue_url(named.dead_letters or queue)
        letters = list(read_letters(self.sqs, url, wait_seconds=0))
        release(self.sqs, url, letters)
        return letters

    def _busy(self) -> bool:
        if self._watch is not None and self._watch.look():
            return True
        if self._event_sources.running_schedules:
            return True
        return any(
            self._waiting(self._queue_urls[source.queue]) for source in self.template.sources
        )

    def _waiting(self, url: str) -> bool:
        counts = self.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
                "ApproximateNumberOfMessagesDelayed",
            ],
        )["Attributes"]
        return any(int(count) for count in counts.values())

    # -- the parts --------------------------------------------------------------------------------

    @functools.cached_property
    def _credentials(self) -> Mapping[str, str]:
        """Yours for your S3 server; the embedded one never sees them."""
        credentials = boto3.Session().get_credentials() if self.options.endpoint_url else None
        if credentials is None:
            return {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        frozen = credentials.get_frozen_credentials()
        token = {"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {}
        return {
            "AWS_ACCESS_KEY_ID": frozen.access_key or "",
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key or "",
            **token,
        }

    def _client(self, service: Any, endpoint_url: str) -> Any:
        credentials: Any = {name.lower(): value for name, value in self._credentials.items()}
        return boto3.client(
            service,
            endpoint_url=endpoint_url,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
            **credentials,
        )

    def _create_queues(self) -> None:
        # Dead letters first: a redrive policy names a queue that exists.
        for queue in sorted(self.template.queues, key=lambda queue: queue.dead_letters is not None):
            self._queue_urls[queue.logical_id] = self.sqs.create_queue(
                QueueName=queue.logical_id, Attributes=self._queue_attributes(queue)
            )["QueueUrl"]

    def _queue_attributes(self, queue: Queue) -> dict[Any, str]:
        attributes = {
            "VisibilityTimeout": str(queue.visibility_seconds),
            "MessageRetentionPeriod": str(queue.retention_seconds),
        }
        if queue.dead_letters is not None:
            attributes["RedrivePolicy"] = json.dumps(
                {
                    "deadLetterTargetArn": self._queue_arn(queue.dead_letters),
                    "maxReceiveCount": queue.max_receives,
                }
            )
        return attributes

    def _queue_arn(self, queue: str) -> str:
        return self.sqs.get_queue_attributes(
            QueueUrl=self._queue_urls[queue], AttributeNames=["QueueArn"]
        )["Attributes"]["QueueArn"]

    def _create_bucket(self) -> None:
        bucket = self.template.bucket
        self.bucket = bucket.name
        if bucket.existing:
            return
        where: Any = (
            {}
            if self.region == "us-east-1"
            else {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
        )
        # Another S3 server may keep the bucket from an earlier run.
        with contextlib.suppress(
            self.s3.exceptions.BucketAlreadyOwnedByYou, self.s3.exceptions.BucketAlreadyExists
        ):
            self.s3.create_bucket(Bucket=bucket.name, **where)
        versioned = bucket.versioned if self.options.versioned is None else self.options.versioned
        if versioned:
            self.s3.put_bucket_versioning(
                Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"}
            )
        if self.options.endpoint_url is None:
            self._notify()

    def _notify(self) -> None:
        configured: Any = [
            {
                "QueueArn": self._queue_arn(notification.queue),
                "Events": list(notification.events),
                "Filter": {
                    "Key": {
                        "FilterRules": [
                            {"Name": name, "Value": value}
                            for name, value in (
                                ("prefix", notification.prefix),
                                ("suffix", notification.suffix),
                            )
                            if value  # a rule that matches everything is refused
                        ]
                    }
                },
            }
            for notification in self.template.bucket.notifications
        ]
        self.s3.put_bucket_notification_configuration(
            Bucket=self.bucket, NotificationConfiguration={"QueueConfigurations": configured}
        )

    def _start_functions(self, started: contextlib.ExitStack) -> dict[str, FunctionPool]:
        created = {
            **self._queue_urls,
            self.template.bucket.logical_id: self.bucket,
            # There is no Secrets Manager here; the variable below holds the key itself.
            "ErasureKey": "local",
            "ReceiptKey": "",  # nor KMS: receipts are not signed
        }
        erasure_key = self._erasure_key()
        logs = {f.name: self.options.home / f"{f.name}.log" for f in self.template.functions}
        for log in logs.values():
            log.unlink(missing_ok=True)
        return {
            function.name: started.enter_context(
                FunctionPool(
                    function,
                    environment={
                        **self.template.environment(function, created),
                        **self.environment,
                        "INLAY_ERASURE_KEY": erasure_key,
                        # The server's log names the function that sent a request.
                        "AWS_SDK_UA_APP_ID": function.name,
                    },
                    log=logs[function.name],
                    size=self.options.processes,
                )
            )
            for function in self.template.functions
        }

    def _erasure_key(self) -> str:
        """Of this stack, and of every later one on the same data: receipts were made with it."""
        if self.options.data_dir is None:
            return secrets.token_hex(32)
        path = self.options.data_dir / "erasure-key"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(32))
        return path.read_text()

    def _start_event_sources(self, started: contextlib.ExitStack) -> None:
        self._event_sources = EventSources(
            sqs=self.sqs,
            region=self.region,
            invoke=self.invoke,
            sources=[
                Attached(source, self._queue_urls[source.queue], self._queue_arn(source.queue))
                for source in self.template.sources
            ],
            schedules=self.template.schedules if self.options.schedules else (),
            retry_seconds=self.options.retry_seconds,
            max_concurrency=self.options.processes,
            schedule_speed=self.options.schedule_speed,
        )
        started.callback(self._event_sources.stop)
        started.callback(lambda: self._say("batches and schedules"))
        # Left in reverse: the event sources take no more, then the functions are killed, so that none of
        # them is waited for.
        for pool in self.functions.values():
            started.callback(pool.close)
        started.callback(lambda: self._say("functions"))
        started.callback(self._event_sources.stop_taking)
        self._event_sources.start()

    def _announce_kept(self) -> None:
        """Send the events of what waits in the landing zone from before: queues do not outlive a stop.
        The ledger knows what was ingested."""
        oldest = datetime.now(UTC) - OLDEST_EVENT
        for rule in (n for n in self.template.bucket.notifications if not n.suffix):
            pages = self.s3.get_paginator("list_object_versions")
            for page in pages.paginate(Bucket=self.bucket, Prefix=rule.prefix):
                for version in page.get("Versions", []):
                    if version["IsLatest"] and version["LastModified"] >= oldest:
                        version_id = version["VersionId"]
                        landed = EmbeddedS3.event_of(
                            self.bucket, version["Key"], version, version_id=version_id
                        )
                        self.send(rule.queue, landed)

    def _start_watch(self, started: contextlib.ExitStack) -> None:
        # Pointers are left to the schedule: listing all tables would cost more than it gives.
        (notification,) = [n for n in self.template.bucket.notifications if not n.suffix]
        watch = self._watch = LandingWatch(
            s3=self.s3,
            sqs=self.sqs,
            bucket=self.bucket,
            prefix=notification.prefix,
            queue_url=self._queue_urls[notification.queue],
        )
        stopping = threading.Event()

        def follow() -> None:
            while not stopping.wait(_WATCH_SECONDS):
                with contextlib.suppress(BotoCoreError, ClientError):
                    watch.look()

        thread = threading.Thread(target=follow, name="landing-watch", daemon=True)
        thread.start()
        started.callback(thread.join)
        started.callback(stopping.set)


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
