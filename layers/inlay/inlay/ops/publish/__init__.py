"""Publishing an Inlay table as an Iceberg table beside it."""
