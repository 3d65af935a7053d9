"""What the five functions share: reading events, settling messages, finding tables, observing.

A function's own file only says which op it calls. Nothing here decides what happens to a table.
"""
