"""Conditions and values as users write them: text to the format's trees and back.

`docs/format/predicates.md` is the grammar's reference.
"""

from inlay.format.assignment import Assignment, Assignments
from inlay.parse.grammar import MAX_TEXT
from inlay.parse.setters import parse_assignments
from inlay.parse.show import format_predicate, format_value
from inlay.parse.where import parse_predicate

__all__ = [
    "MAX_TEXT",
    "Assignment",
    "Assignments",
    "format_predicate",
    "format_value",
    "parse_assignments",
    "parse_predicate",
]
