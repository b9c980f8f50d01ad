"""Small invented tables, rendered as CSV, Markdown, JSON, lines or sentences."""

from __future__ import annotations

import json
from dataclasses import dataclass

from blockpilot_rl.prompts.suite.writer import Writer

# What the rows are, and a template for each column.
_TABLES: tuple[tuple[str, dict[str, str]], ...] = (
    ("people", {"name": "{first}", "age": "{18..80}", "town": "{town}", "job": "{job}"}),
    ("members", {"name": "{person}", "hobby": "{hobby}", "joined": "{year}", "town": "{town}"}),
    ("orders", {"customer": "{first}", "item": "{product}", "amount": "{1..20}", "date": "{date}"}),
    ("prices", {"item": "{product}", "price": "{price}", "color": "{color}", "stock": "{0..99}"}),
    ("appointments", {"day": "{weekday}", "time": "{time}", "name": "{person}", "room": "{1..60}"}),
    ("events", {"event": "{event}", "place": "{town}", "date": "{date}", "tickets": "{20..400}"}),
    ("results", {"player": "{first}", "points": "{1..120}", "team": "{color}", "age": "{6..70}"}),
    ("animals", {"animal": "{animal}", "color": "{color}", "kilograms": "{1..90}"}),
    ("trips", {"from": "{town}", "to": "{town}", "departure": "{time}", "price": "{price}"}),
    ("lessons", {"subject": "{subject}", "tutor": "{last}", "day": "{weekday}", "hour": "{1..8}"}),
    ("meals", {"day": "{weekday}", "lunch": "{food}", "dinner": "{food}", "cook": "{first}"}),
    ("jobs", {"company": "{company}", "job": "{job}", "town": "{town}", "hours": "{10..40}"}),
    ("weather", {"town": "{town}", "low": "{1..9}", "high": "{10..35}", "rain": "{0..60} mm"}),
    ("errors", {"time": "{10..23}:{10..59}", "team": "{team}", "code": "{100..599}"}),
)  # fmt: skip


@dataclass(frozen=True)
class Records:
    """A table of strings.

    Args:
        kind: What the rows are, in the plural.
        columns: Names of the columns.
        rows: One value per column each.
    """

    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def csv(self) -> str:
        """The table as comma-separated lines with a header."""
        return "\n".join(",".join(row) for row in (self.columns, *self.rows))

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self) -> str:
        """The rows as a JSON array of objects, one per line."""
        objects = [json.dumps(dict(zip(self.columns, row, strict=True))) for row in self.rows]
        return "[" + ",\n ".join(objects) + "]"

    def lines(self) -> str:
        """One line per row, each value after its column's name."""
        return "\n".join(
            ", ".join(f"{name}: {value}" for name, value in zip(self.columns, row, strict=True))
            for row in self.rows
        )

    def render(self, writer: Writer) -> str:
        """The table in one of its forms."""
        return writer.pick((self.csv, self.csv, self.markdown, self.json, self.lines))()


def records(writer: Writer) -> Records:
    """Invent a table of two to six rows and two or more columns."""
    kind, templates = writer.pick(_TABLES)
    columns = tuple(list(templates)[: writer.number(2, len(templates))])
    rows = tuple(
        tuple(writer.write(templates[name]).replace(",", "") for name in columns)
        for _ in range(writer.number(2, 6))
    )
    return Records(kind, columns, rows)
