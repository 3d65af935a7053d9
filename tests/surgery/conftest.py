"""The helpers beside these tests, `checker` and `corpus`, are imported by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
