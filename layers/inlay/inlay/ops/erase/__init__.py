"""Erasure, from the request to the receipt (docs/ERASURE.md)."""
