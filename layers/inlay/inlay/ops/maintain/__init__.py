"""Rewriting what is there without changing what it means: rewrite, compact, expire."""
