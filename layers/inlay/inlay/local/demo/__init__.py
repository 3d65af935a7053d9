"""The demo: the main job of the product, from files that land to objects that are deleted, checked.

Promise: after every step the table is read with Arrow, DuckDB and Spark, and each must give the rows,
sums and keys that DuckDB gives for the source files with the same deletes applied to them. The first
difference ends the demo with exit code 1.

`run` plays `steps` in a `world`; `truth` is what must come out, `readers` what does; `meter` counts
requests at the embedded server; `show` prints.
"""
