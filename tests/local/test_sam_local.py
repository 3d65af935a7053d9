"""`sam local invoke` on the embedded S3 and SQS: with exactly the variables that SAM passes a container.

SAM takes of `--env-vars` only what the template declares for the function. In a container where there is an
engine; else on the same runtime API without one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

import inlay
from inlay.local.runtime import FunctionPool
from inlay.local.runtime_api import Returned
from inlay.local.s3server import AwsProcess
from inlay.local.stack import environment
from inlay.local.template import Template, load_template, read_body

ROOT = Path(__file__).parents[2]
SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
BUCKET = "inlay-123456789012-us-east-1"
IMAGE = "public.ecr.aws/lambda/python:3.13-x86_64"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_REGION": "us-east-1",
}
pytestmark = pytest.mark.functions


def given() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((ROOT / "events" / "env.json").read_text())
    return found


def all_functions() -> Template:
    """The template with every function it can have."""
    return load_template(ROOT / "template.yaml", {"Catalog": "true"})


def event(name: str) -> Any:
    return json.loads((ROOT / "events" / f"{name}.json").read_text())


@pytest.fixture
def aws() -> Iterator[AwsProcess]:
    with AwsProcess(host="0.0.0.0") as running, environment({**running.env(), **CREDENTIALS}):
        s3 = boto3.client("s3", endpoint_url=running.endpoint_url)
        sqs = boto3.client("sqs", endpoint_url=running.endpoint_url)
        s3.create_bucket(Bucket=BUCKET)
        orders = (ROOT / "events" / "orders.parquet").read_bytes()
        s3.put_object(Bucket=BUCKET, Key="ingest/orders/orders.parquet", Body=orders)
        for variables in given().values():
            for value in variables.values():
                if "/123456789012/" in value:
                    sqs.create_queue(QueueName=value.rpartition("/")[2])
        yield running


@pytest.mark.parametrize("function", sorted(given()))
def test_make_sam_local_knows_each_function_and_an_event_of_it(function: str) -> None:
    name = next(f.name for f in all_functions().functions if f.logical_id == function)
    said = subprocess.run(
        ["make", "-n", "sam-local", f"FUNCTION={name}", "SAM_LOCAL_ARGS=--skip-pull-image"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said[-1] == function
    assert (ROOT / said[said.index("--event") + 1]).is_file()
    # What a user adds leaves the address of this machine in place.
    assert "host.docker.internal:host-gateway" in said and "--skip-pull-image" in said


def test_what_local_runs_need_is_declared_in_the_template() -> None:
    template = all_functions()
    functions = {each.logical_id: each for each in template.functions}
    assert functions.keys() == given().keys()
    for logical_id, variables in given().items():
        # Without them a function would ask AWS itself.
        assert {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_SQS", "INLAY_BUCKET"} <= variables.keys()
        undeclared = variables.keys() - functions[logical_id].environment.keys()
        assert undeclared == set(), f"SAM would drop {undeclared} of {logical_id}"


def as_sam_names() -> dict[str, str]:
    """What SAM puts for a reference to each resource, near enough: its logical id."""
    return {name: name for name in read_body(ROOT / "template.yaml")["Resources"]}


def test_whatever_resource_a_function_names_is_a_local_one_or_none() -> None:
    """Without that, a local run would ask AWS for a queue, a secret or a key."""
    template = all_functions()
    resources = as_sam_names()
    local = {each.logical_id: f"/123456789012/{each.logical_id}" for each in template.queues}
    local |= {template.bucket.logical_id: BUCKET, "ErasureKey": "", "ReceiptKey": ""}
    for function in template.functions:
        declared = template.environment(function, resources)
        named = {name: value for name, value in declared.items() if value in resources}
        assert named
        for name, resource in named.items():
            value = given()[function.logical_id].get(name)
            assert value is not None, f"{name} of {function.logical_id} is {resource} of AWS"
            assert value.removeprefix("http://host.docker.internal:4566") == local[resource]


def test_the_functions_work_on_the_embedded_aws_with_the_variables_sam_passes(
    aws: AwsProcess, tmp_path: Path
) -> None:
    template = all_functions()
    address = aws.endpoint_url.removeprefix("http://")
    with ExitStack() as running:
        for function in template.functions:
            declared = template.environment(function, as_sam_names())
            passed = {
                name: given()[function.logical_id].get(name, value)
                for name, value in declared.items()
            }
            passed = {
                name: value.replace("host.docker.internal:4566", address)
                for name, value in passed.items()
            }
            pool = running.enter_context(
                FunctionPool(
                    function,
                    environment={**CREDENTIALS, **passed},
                    log=tmp_path / f"{function.name}.log",
                    size=1,
                )
            )
            for name in {
                "ingest": ("ingest.normal", "ingest.malformed"),
                "delete": ("delete.where", "delete.erase", "delete.malformed"),
                "rewrite": ("rewrite.queue", "rewrite.schedule"),
                "compact": ("compact.schedule",),
                "publish": ("publish.schedule", "publish.malformed"),
                "collect_garbage": ("collect_garbage.schedule",),
                "catalog": ("catalog.config", "catalog.tables"),
            }[function.name]:
                answer = pool.invoke(event(name))
                log = (tmp_path / f"{function.name}.log").read_text()
                assert isinstance(answer, Returned), (name, answer, log[-2_000:])
    # 100 orders; ten of customer 7 deleted, ten more erased, and one by the malformed batch's good one.
    assert inlay.open(f"s3://{BUCKET}/tables/orders").count() < 100


def test_the_server_listens_on_loopback_unless_asked() -> None:
    with AwsProcess() as aws:
        port = int(aws.endpoint_url.rpartition(":")[2])
        others = {
            found[4][0]
            for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            if not str(found[4][0]).startswith("127.")
        }
        for address in others:
            with socket.socket() as probe:
                assert probe.connect_ex((address, port)) != 0


@pytest.mark.slow
def test_sam_local_invoke_in_a_container(aws: AwsProcess, tmp_path: Path) -> None:
    """Where SAM finds an engine and Lambda's image there: nothing is downloaded."""
    engine = "import docker, sys; docker.from_env().images.get(sys.argv[1])"
    asked = [ROOT / ".tools" / "sam" / "bin" / "python", "-c", engine, IMAGE]
    if not SAM.exists() or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip(f"needs a container engine that has {IMAGE}")
    built = ROOT / ".aws-sam" / "build" / "template.yaml"
    if not built.exists():
        pytest.skip("needs `make build`")
    port = aws.endpoint_url.rpartition(":")[2]
    variables = tmp_path / "env.json"
    text = (ROOT / "events" / "env.json").read_text().replace(":4566", f":{port}")
    variables.write_text(text)
    for function, name, said in (
        ("IngestFunction", "ingest.normal", '"batchItemFailures": []'),
        ("DeleteFunction", "delete.where", '"batchItemFailures": []'),
        ("RewriteFunction", "rewrite.queue", '"batchItemFailures": []'),
        ("CompactFunction", "compact.schedule", '"tables": 1'),
        ("PublishFunction", "publish.schedule", '"tables": 1'),
        ("CollectGarbageFunction", "collect_garbage.schedule", '"tables": 1'),
        ("CatalogFunction", "catalog.tables", '"statusCode": 200'),
    ):
        ran = subprocess.run(
            [
                *(SAM, "local", "invoke", "--template", built, "--skip-pull-image"),
                *("--env-vars", variables, "--event", ROOT / "events" / f"{name}.json"),
                *("--add-host", f"host.docker.internal:{_own_address()}", function),
            ],
            env={**os.environ, **CREDENTIALS, "SAM_CLI_TELEMETRY": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0 and "errorMessage" not in ran.stdout, (function, ran)
        assert said in ran.stdout, (function, ran)
    assert 0 < inlay.open(f"s3://{BUCKET}/tables/orders").count() < 100


def _own_address() -> str:
    """Where containers reach this machine. Podman before 4.7 does not know `host-gateway`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; TEST-NET-1, RFC 5737
        return str(probe.getsockname()[0])
