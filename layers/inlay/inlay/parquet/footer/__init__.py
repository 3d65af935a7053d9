"""The footer of a Parquet file: Thrift, typed views, the layout of everything it points to."""
