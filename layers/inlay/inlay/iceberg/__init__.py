"""Iceberg: an Inlay snapshot as Apache Iceberg metadata, version 3 or 2. Values and bytes, no I/O."""
