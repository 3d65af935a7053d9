"""What a landed object is: the only place where that is decided (docs/LANDING.md).

Promise: ingestion, the hourly sweep, erasures, `inlay landing` and the documentation follow this rule.
By its name and size an object is `temporary`, a `marker`, or to be read; then by its first and last
bytes it is `data`, `foreign` or `damaged`; docs/LANDING.md has what each means. Ingestion never takes
anything but data, so only data can keep an erasure waiting.

The conventions are data: docs/LANDING.md lists them with examples, which tests hold to them.
"""

from __future__ import annotations

import re
from collections.abc import Container
from enum import Enum
from typing import Literal

from inlay.format.properties import REFUSED_FOLDER
from inlay.record import Record


class LandedKind(Enum):
    DATA = "data"
    TEMPORARY = "temporary"
    MARKER = "marker"
    FOREIGN = "foreign"
    DAMAGED = "damaged"


IGNORED = frozenset((LandedKind.TEMPORARY, LandedKind.MARKER))


class LandedObject(Record):
    """What an object is, and why: `reason` continues "it is …"."""

    kind: LandedKind
    reason: str

    @property
    def is_ignored(self) -> bool:
        """Whether ingestion leaves it where it is, without a dead letter."""
        return self.kind in IGNORED


class Convention(Record):
    """Objects that producers write beside data. `pattern` is looked for in the path within the landing
    zone, whatever the case of its letters. docs/LANDING.md has examples of each."""

    kind: LandedKind
    producer: str
    what: str
    pattern: str


_TEMPORARY, _MARKER = LandedKind.TEMPORARY, LandedKind.MARKER
_FOREIGN = LandedKind.FOREIGN

OF_A_TABLE = "metadata of another table format"
# What `ingest.formats` may take, and other texts.
_TEXT = Convention(
    _FOREIGN,
    "everyone",
    "text in columns or documents",
    r"\.(csv|tsv|psv|txt|json|jsonl|ndjson|xml|yaml|yml|html|log|sql)(\.\w{2,6})?$",
)
# The first that matches counts. `^` and `/` begin the name of a folder or file; `$` ends the path.
CONVENTIONS = (
    Convention(
        _TEMPORARY,
        "Hadoop `fs -put`, `-cp`; Sqoop, Oozie",
        "a copy under way (`._COPYING_`)",
        r"\._COPYING_$",
    ),
    Convention(
        _TEMPORARY,
        "Hadoop DistCp",
        "a copy under way, or a part of one",
        r"(^|/)\.distcp\.tmp\.|\.____distcpSplit____\d+\.\d+$",
    ),
    Convention(
        _TEMPORARY,
        "Spark, Hadoop and Hive committers; Impala; S3A magic committer",
        "output of a job that has not committed",
        r"(^|/)(_temporary|_temp|_tmp[^/]*|\.spark-staging-[^/]*|\.hive-staging[^/]*"
        r"|_impala_insert_staging|__magic_job[^/]*|__magic|_scratchdir[^/]*)/"
        r"|\.pendingset$",
    ),
    Convention(
        _TEMPORARY,
        "Kafka Connect (HDFS and Hadoop file systems)",
        "a file under way (`+tmp/`)",
        r"(^|/)\+tmp/",
    ),
    Convention(
        _TEMPORARY,
        "Flink, Beam",
        "a part file under way or not committed",
        r"(\.inprogress(\.[\w-]+)?|\.pending|(^|/)(\.temp-beam|beam-temp-)[^/]*/.*)$",
    ),
    Convention(
        _TEMPORARY,
        "dbt, Gobblin",
        "output of a step that the next one copies",
        r"(^|/)([^/]*__dbt_tmp[^/]*|task-staging|task-output)/",
    ),
    Convention(
        _TEMPORARY,
        "DuckDB (on mounted buckets)",
        "a file that it renames when it is complete (`tmp_`)",
        r"(^|/)tmp_[^/]+\.parquet$",
    ),
    Convention(
        _TEMPORARY,
        "SFTP and FTP clients (Transfer Family); browsers; rclone, curl, lftp, gsutil, mc, NiFi, editors",
        "an upload or a copy under way",
        r"(\.(filepart|part|partial|tmp|temp|crdownload|download|opdownload|dtapart|fdmdownload|cyberduckpart"
        r"|cyberducksegment|!ut|ut!|!qB|!bt|bc!|!sync|xltd|crswap|incomplete|uploading|upload|unfinished|writing|copying|in-?progress|wip"
        r"|aria2|lftp-pget-status|swp|swx|gstmp)|_\.gstmp|\.part\.minio|\.(tmp|temp|partial)[.-][\w-]+"
        r"|\.parquet[_-](tmp|temp|part|partial)|~|(^|/)\.in\.[^/]*)$",
    ),
    Convention(
        _TEMPORARY,
        "boto3 and the AWS CLI (on mounted buckets), gsutil and gcloud, macOS",
        "parts, or a file that is renamed when it is complete",
        r"\.parquet\.([0-9A-Fa-f]{8}|sb-[0-9a-f]{8}-\w{6})$"
        r"|(^|/)(gsutil|gcloud)/tmp/parallel_composite_uploads/",
    ),
    Convention(
        _TEMPORARY,
        "editors, patch, batch scripts; NetApp, Synology, QNAP",
        "a copy that is kept of an older content",
        r"\.(bak|old|orig)$|(^|/)#[^/]+#$|(^|/)(~snapshot|#recycle|#snapshot|@Recycle|lost\+found)/",
    ),
    Convention(
        _MARKER,
        "Delta Lake, Hudi, Iceberg, Paimon, DuckLake",
        OF_A_TABLE,
        r"(^|/)(_delta_log|\.hoodie|_delta_index)/|(^|/)\.hoodie_partition_metadata(\.parquet)?$"
        r"|(^|/)metadata/([^/]*\.metadata\.json|version-hint\.text|snap-[^/]*\.avro|[^/]*-m\d+\.avro"
        r"|[^/]*\.(stats|puffin))$|-\d{5}-deletes\.(parquet|avro|orc|puffin)$"
        r"|(^|/)ducklake-[0-9a-f-]{36}-delete\.parquet$|(^|/)index/index-[0-9a-f-]{36}-\d+$"
        r"|(^|/)(manifest/manifest(-list)?-[^/]*|snapshot/(snapshot-\d+|LATEST|EARLIEST)|schema/schema-\d+)$",
    ),
    Convention(
        _MARKER,
        "Spark, Hadoop, Databricks",
        "the end, or the state, of a job",
        r"(^|/)(_SUCCESS|_started_[^/]*|_committed_[^/]*|_FAILURE|_SUCCESS\.crc)$"
        r"|(^|/)checkpoints?/([^/]+/)?(metadata$|(offsets|commits|sources|state)/)",
    ),
    Convention(
        _MARKER,
        "parquet-mr, pyarrow, Dask",
        "a summary of footers",
        r"(^|/)_(common_)?metadata$",
    ),
    Convention(
        _MARKER,
        "Hadoop's local file system; tools that write checksums and signatures",
        "a checksum or a signature",
        r"\.(crc|crc32c?|md5|md5sum|sha1|sha256|sha512|sha256sum|sfv|asc|sig)$",
    ),
    Convention(
        _MARKER,
        "schedulers and batch transfers; CockroachDB, TiCDC, Materialize, Qlik Replicate",
        "a control file, which says what others hold or that they are complete",
        r"(\.(done|ok|ready|ctl|complete|completed|success|fin|eot|flag|trigger|trg|go|lock|lck|dfm|RESOLVED)"
        r"|(^|/)(INCOMPLETE|BACKUP-CHECKPOINT|meta/(CDC[^/]*\.index|schema_\d+_\d+\.json)))$",
    ),
    Convention(
        _MARKER,
        "EMR, Hadoop's first S3 file systems, S3 consoles, pyarrow, s3fs, Cyberduck",
        "a marker of a folder",
        r"(_\$folder\$|/)$|^$",
    ),
    Convention(
        _MARKER,
        "Kafka Connect (S3)",
        "keys or headers of records, beside the files of their values",
        r"^(?!(.*/)?tombstone/).*\.(keys|headers)\.(avro|json|parquet|bin)(\.\w{2,6})?$",
    ),
    Convention(
        _MARKER,
        "macOS, Windows, Office, NFS, Synology",
        "a file of an operating system",
        r"(^|/)(\.DS_Store|\._[^/]*|(eh)?Thumbs(_vista)?\.db(:[^/]*)?|desktop\.ini|~\$[^/]*|\.nfs[0-9a-f]+|\.Spotlight-V100/.*"
        r"|__MACOSX/.*|\.Trashes/.*|@eaDir/.*|System Volume Information/.*|\$RECYCLE\.BIN/.*)$",
    ),
    Convention(
        _MARKER,
        "AWS Config, Load Balancing, Redshift, DMS, CloudTrail, CloudWatch Logs, SES; Logstash; Stitch",
        "a test of the right to write",
        r"(^|/)(ConfigWritabilityCheckFile|ELBAccessLogTestFile|(aws|logstash)-programmatic-access-test-object[^/]*"
        r"|aws-logs-write-test|AMAZON_SES_SETUP_NOTIFICATION|[^/]*WritabilityCheckFile|awsdms_[^/]*test[^/]*"
        r"|stitch-challenge-file[^/]*)$",
    ),
    Convention(
        _MARKER,
        "Redshift, Timestream UNLOAD; S3 Inventory; Athena; exports of DynamoDB, RDS, Firestore, billing",
        "a manifest: a list of a producer's files",
        r"(^|/)([^/]*manifest|manifest\.(json|csv|checksum)|symlink\.txt"
        r"|manifest-(files|summary)\.json|[^/]*-manifest\.(csv|json)|[^/]*\.(csv|txt)\.metadata"
        r"|[^/]*_\d{8}_(manifest|metadata)\.json"
        r"|cost_and_usage_data_status/[^/]*|export_(tables_)?info_[^/]*\.json|[^/]*\.(overall_)?export_metadata)$",
    ),
    # Readers of folders leave such names out, whatever the format, which is why this comes first. Lists of
    # refused records are among them.
    Convention(
        _MARKER,
        "Spark, Hive, Trino, pyarrow",
        "hidden: a part of its name begins with `_` or `.`",
        r"(^|/)(_|\.(?!\.?(/|$)))",
    ),
    Convention(
        _FOREIGN,
        "Amazon Data Firehose",
        "records that could not be delivered",
        r"(^|/)[a-z-]+-failed/",
    ),
    Convention(
        _FOREIGN,
        "Kafka Connect (S3)",
        "keys of records whose value is NULL: deletes without an order",
        r"(^|/)tombstone/.*\.keys\.(avro|json|parquet|bin)(\.\w{2,6})?$",
    ),
    _TEXT,
    Convention(
        _FOREIGN,
        "Hive, Kafka Connect, Arrow, spreadsheets",
        "rows in another format",
        r"\.(avro|orc|arrow|arrows|feather|ipc|lance|vortex|xlsx?|ods|dbf|sas7bdat|sav|dta|rds|pkl|npz?|h5|hdf5"
        r"|proto|pb|seq|rc|db|sqlite3?|duckdb)(\.\w{2,6})?$",
    ),
    Convention(
        _FOREIGN,
        "everyone",
        "an archive, or a file compressed as a whole",
        r"\.(gz|gzip|zst|zstd|bz2|xz|lz4|lzo|snappy|sz|br|Z|zip|7z|rar|tar|tgz)$",
    ),
)

_COMPILED = tuple((c, re.compile(c.pattern, re.IGNORECASE)) for c in CONVENTIONS)

TextKind = Literal["csv", "tsv", "json"]


def delimiter_of(kind: TextKind) -> str | None:
    """Between the values of a line; None where a record is no line of values."""
    match kind:
        case "csv":
            return ","
        case "tsv":
            return "\t"
        case "json":
            return None


_KIND_OF: dict[str, TextKind] = {
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
_TEXT_NAME = re.compile(rf"\.({'|'.join(_KIND_OF)})(\.(gz|gzip|zst|zstd))?$", re.IGNORECASE)
# The formats of `ingest.formats` beside Parquet.
TEXT_FORMATS = frozenset(("csv", "json"))

# Enough of the beginning and end of an object to know it by.
HEAD_BYTES = 16
_PARQUET, _ENCRYPTED = b"PAR1", b"PARE"
_MEANT_AS_PARQUET = re.compile(r"\.(parquet|parq|pq|pqt)$", re.IGNORECASE)
# What objects of a format begin with.
_SIGNATURES = (
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x04\x22\x4d\x18", "compressed by lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "compressed by snappy"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"ARROW1", "Arrow IPC"),
    (b"SQLite format 3", "SQLite"),
    (b"SEQ\x06", "a Hadoop sequence file"),
)


# Of those the formats that may keep a text as it is.
_PLAIN = ("SQLite",)


def hides_text(head: bytes) -> bool:
    r"""Whether an object that begins so may have texts that no search of its bytes would find.

    >>> hides_text(b"\x28\xb5\x2f\xfd"), hides_text(b"id,name")
    (True, False)
    """
    if head.startswith(_ENCRYPTED):
        return True
    return any(head.startswith(magic) for magic, what in _SIGNATURES if what not in _PLAIN)


def convention_of(path: str) -> Convention | None:
    """The convention that a path within the landing zone follows."""
    return next((c for c, pattern in _COMPILED if pattern.search(path)), None)


def text_kind(path: str, formats: Container[str]) -> TextKind | None:
    """As what text an object is read that is no Parquet, in a table that takes these `formats`.

    >>> text_kind("a/orders.CSV.gz", {"csv"}), text_kind("events.ndjson", {"csv"})
    ('csv', None)
    """
    if convention_of(path) is not _TEXT:
        return None
    match = _TEXT_NAME.search(path)
    if match is None:
        return None
    kind = _KIND_OF[match[1].lower()]
    taken_as = "json" if delimiter_of(kind) is None else "csv"
    return kind if taken_as in formats else None


def lists_refused(key: str) -> bool:
    """Whether the object lists records that were refused: it may be younger than what they came from."""
    return f"/{REFUSED_FOLDER}/" in key


def landed_object(
    path: str,
    *,
    size: int | None = None,
    head: bytes | None = None,
    tail: bytes | None = None,
    formats: Container[str] = (),
) -> LandedObject:
    """What the object at `path` within the landing zone is. `head` and `tail` are its first and last bytes;
    where neither is known, what is not ignored by its name or size counts as data, which has to be read.
    `formats` are those that the table takes beside Parquet.

    >>> landed_object("run/_SUCCESS").kind
    <LandedKind.MARKER: 'marker'>
    >>> landed_object("run/part-0.parquet", size=0).reason
    'empty: 0 bytes hold no rows'
    >>> landed_object("orders.csv").kind, landed_object("orders.csv", head=b"id;name", tail=b"da").kind
    (<LandedKind.DATA: 'data'>, <LandedKind.FOREIGN: 'foreign'>)
    """
    convention = convention_of(path)
    if convention is not None and convention.kind in IGNORED:
        return LandedObject(convention.kind, f"{convention.what} ({convention.producer})")
    if size == 0:
        return LandedObject(LandedKind.MARKER, "empty: 0 bytes hold no rows")
    if head is None and tail is None:
        return LandedObject(LandedKind.DATA, "to be read")
    begins, ends = (head or b"")[:4], (tail or b"")[-4:]
    if ends == _PARQUET and (head is None or begins == _PARQUET):
        return LandedObject(LandedKind.DATA, "Parquet")
    if kind := text_kind(path, formats):
        return LandedObject(LandedKind.DATA, kind.upper())
    if _ENCRYPTED in (begins, ends):
        return LandedObject(LandedKind.DAMAGED, "Parquet with an encrypted footer")
    if _PARQUET in (begins, ends):
        return LandedObject(
            LandedKind.DAMAGED, "Parquet without one of its ends: cut short or overwritten"
        )
    for signature, name in _SIGNATURES:
        if (head or b"").startswith(signature):
            return LandedObject(_FOREIGN, name)
    if _MEANT_AS_PARQUET.search(path):
        return LandedObject(LandedKind.DAMAGED, "no Parquet, though its name says so")
    if convention is not None:
        return LandedObject(_FOREIGN, f"{convention.what} ({convention.producer})")
    return LandedObject(_FOREIGN, "no Parquet")
