"""The embedded S3: the memory store behind S3's REST protocol, kept in a directory or not.

It is of development and tests: the layer of the functions does not carry it.
"""
