"""Shared by the functions: reading events, settling messages, finding tables, observability.

A function's own file only names the operation it calls. Nothing here decides what happens to a table.
"""
