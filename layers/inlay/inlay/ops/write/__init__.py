"""What adds, changes and deletes rows: append, ingest, delete, update, upsert."""
