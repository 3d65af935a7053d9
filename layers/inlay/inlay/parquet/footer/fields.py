"""The names of Parquet's metadata: thrift field keys, enum values.

Promise: one constant for each field of apache/parquet-format's `parquet.thrift` that Inlay reads or
writes, grouped by struct, in the order of the ids. No other module contains a field id.
"""

from __future__ import annotations

from enum import IntEnum

from inlay.parquet.footer.thrift import binary, boolean, i16, i32, i64, items, nested


class Physical(IntEnum):
    """How values are stored; the logical type defines what they mean."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Repetition(IntEnum):
    REQUIRED = 0
    REPEATED = 2


class Codec(IntEnum):
    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5  # Hadoop's framing; deprecated
    ZSTD = 6
    LZ4_RAW = 7


class Encoding(IntEnum):
    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


class PageType(IntEnum):
    DATA = 0
    DICTIONARY = 2
    DATA_V2 = 3


class Converted(IntEnum):
    """The deprecated annotations that change how bytes compare."""

    UTF8 = 0
    MAP = 1
    MAP_KEY_VALUE = 2
    LIST = 3
    DECIMAL = 5
    DATE = 6
    TIME_MICROS = 8
    TIMESTAMP_MICROS = 10
    UINT_8 = 11
    UINT_16 = 12
    UINT_32 = 13
    UINT_64 = 14
    INTERVAL = 21


class File:
    VERSION = i32(1)
    SCHEMA = items(2)
    ROWS = i64(3)
    GROUPS = items(4)
    KEY_VALUES = items(5)
    CREATED_BY = binary(6)
    ORDERS = items(7)
    ENCRYPTION = nested(8)
    SIGNING_KEY = binary(9)


class KeyValue:
    KEY = binary(1)
    VALUE = binary(2)


# The key under which Arrow's writers keep their own schema.
ARROW_SCHEMA = b"ARROW:schema"


class Element:
    """One node of the schema, which is a tree written depth first."""

    TYPE = i32(1)
    LENGTH = i32(2)
    REPETITION = i32(3)
    NAME = binary(4)
    CHILDREN = i32(5)
    CONVERTED = i32(6)
    SCALE = i32(7)
    PRECISION = i32(8)
    FIELD_ID = i32(9)
    LOGICAL = nested(10)


class Logical:
    """A union: the one field that is set names the type."""

    STRING = nested(1)
    MAP = nested(2)
    LIST = nested(3)
    DECIMAL = nested(5)
    TIME = nested(7)
    TIMESTAMP = nested(8)
    INTEGER = nested(10)
    FLOAT16 = nested(15)


class Order:
    """A union: how min_value and max_value of a column compare."""

    BY_TYPE = nested(1)


class Group:
    COLUMNS = items(1)
    BYTES = i64(2)
    ROWS = i64(3)
    SORTING = items(4)
    FILE_OFFSET = i64(5)
    COMPRESSED = i64(6)
    ORDINAL = i16(7)


class Chunk:
    FILE_PATH = binary(1)
    FILE_OFFSET = i64(2)
    META = nested(3)
    OFFSET_INDEX = i64(4)
    OFFSET_INDEX_LENGTH = i32(5)
    COLUMN_INDEX = i64(6)
    COLUMN_INDEX_LENGTH = i32(7)
    CRYPTO = nested(8)
    ENCRYPTED_META = binary(9)


class Meta:
    """ColumnMetaData."""

    TYPE = i32(1)
    ENCODINGS = items(2)
    PATH = items(3)
    CODEC = i32(4)
    VALUES = i64(5)
    UNCOMPRESSED = i64(6)
    COMPRESSED = i64(7)
    KEY_VALUES = items(8)
    DATA_PAGE = i64(9)
    INDEX_PAGE = i64(10)
    DICTIONARY_PAGE = i64(11)
    STATISTICS = nested(12)
    ENCODING_STATS = items(13)
    BLOOM = i64(14)
    BLOOM_LENGTH = i32(15)
    SIZES = nested(16)


class Sizes:
    """SizeStatistics."""

    TEXT_BYTES = i64(1)
    REPETITION_LEVELS = items(2)
    DEFINITION_LEVELS = items(3)


class Stats:
    """Statistics. The first two are deprecated: they compare signed, whatever the type."""

    OLD_MAX = binary(1)
    OLD_MIN = binary(2)
    NULLS = i64(3)
    DISTINCT = i64(4)
    MAX = binary(5)
    MIN = binary(6)
    MAX_EXACT = boolean(7)
    MIN_EXACT = boolean(8)
    NANS = i64(9)


class Page:
    """PageHeader."""

    TYPE = i32(1)
    UNCOMPRESSED = i32(2)
    COMPRESSED = i32(3)
    CRC = i32(4)
    DATA = nested(5)
    DICTIONARY = nested(7)
    DATA_V2 = nested(8)


class DataPage:
    VALUES = i32(1)
    ENCODING = i32(2)


class DictionaryPage:
    VALUES = i32(1)


class DataPageV2:
    VALUES = i32(1)
    ENCODING = i32(4)


class Bloom:
    """BloomFilterHeader."""

    BYTES = i32(1)


class OffsetIndex:
    PAGES = items(1)


class PageLocation:
    OFFSET = i64(1)
    SIZE = i32(2)
    FIRST_ROW = i64(3)


class ColumnIndex:
    NULL_PAGES = items(1)
    MIN = items(2)
    MAX = items(3)
    NULLS = items(5)
