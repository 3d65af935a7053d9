"""Receipts are signed with a KMS key, and checked with its public half alone."""

from __future__ import annotations

import boto3
import pytest
from cryptography.hazmat.primitives import serialization
from moto import mock_aws

from inlay.errors import StoreUnavailable
from inlay.functions import settings
from inlay.functions.signing import KmsKey
from inlay.ops.erase.p256 import KeyFile, PublicKey
from inlay.ops.erase.signing import envelope_of, is_signed
from inlay.plan.receipt_chain import Chain, statement_of

STATEMENT = statement_of("a table", Chain(), [b"a receipt"] * 5_000, version=9, ended_us=1)


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_DEFAULT_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ):
        monkeypatch.setenv(name, value)


@mock_aws
def test_a_signature_of_kms_is_checked_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    kms = boto3.client("kms")
    key = kms.create_key(KeySpec="ECC_NIST_P256", KeyUsage="SIGN_VERIFY")["KeyMetadata"]
    der = kms.get_public_key(KeyId=key["KeyId"])["PublicKey"]
    pem = serialization.load_der_public_key(der).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    monkeypatch.setenv("INLAY_RECEIPT_KEY", key["Arn"])
    signer = settings.receipt_signer()
    assert isinstance(signer, KmsKey)
    envelope = envelope_of(STATEMENT, signer)
    assert is_signed(STATEMENT, envelope, PublicKey(pem))
    assert not is_signed(STATEMENT + b" ", envelope, PublicKey(pem))


@mock_aws
def test_a_key_that_is_not_there_keeps_the_erasure_open() -> None:
    with pytest.raises(StoreUnavailable, match="did not sign"):
        KmsKey("arn:aws:kms:eu-west-1:123456789012:key/none").sign(b"x")


def test_without_a_key_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_RECEIPT_KEY", "")
    assert settings.receipt_signer() is None


def test_a_key_file_signs_where_there_is_no_kms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    path = Path(str(tmp_path)) / "key.pem"
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    monkeypatch.setenv("INLAY_RECEIPT_KEY_FILE", str(path))
    signer = settings.receipt_signer()
    assert isinstance(signer, KeyFile)
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert is_signed(STATEMENT, envelope_of(STATEMENT, signer), PublicKey(pem))
