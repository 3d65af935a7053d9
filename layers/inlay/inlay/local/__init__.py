"""AWS on this machine: S3 and SQS in this process, the functions as processes, the event pump."""
