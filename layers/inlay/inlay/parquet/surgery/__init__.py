"""Row-group surgery: a Parquet object without some of its rows, at the cost of the affected row groups."""
