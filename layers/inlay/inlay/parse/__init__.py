"""Conditions and values as people write them: text to trees and back.

`docs/SQL.md` is the grammar's reference.
"""

from inlay.format.expression import Assignment, Assignments, Condition
from inlay.parse.condition import condition_of, parse_condition, parse_predicate
from inlay.parse.grammar import MAX_TEXT
from inlay.parse.setters import parse_assignments
from inlay.parse.show import format_predicate, format_value
from inlay.parse.values import Literal, Values, lit

__all__ = [
    "MAX_TEXT",
    "Assignment",
    "Assignments",
    "Condition",
    "Literal",
    "Values",
    "condition_of",
    "format_predicate",
    "format_value",
    "lit",
    "parse_assignments",
    "parse_condition",
    "parse_predicate",
]
