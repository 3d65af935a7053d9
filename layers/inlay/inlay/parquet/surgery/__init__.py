"""Row-group surgery: a Parquet object without some of its rows, at the price of those row groups."""
