"""`inlay doctor`: what is wrong with a stack or a bucket, and the command that mends it. Reads only."""
