"""Shared by the functions: reading events, batches of messages, finding tables, observability.

A function's own file only names the operation it calls. Nothing here decides what happens to a table.
"""
