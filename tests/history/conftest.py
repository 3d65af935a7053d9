from tests.cli.conftest import inlay, people

__all__ = ["inlay", "people"]
