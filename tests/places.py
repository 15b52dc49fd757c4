"""Where the project's files are, for tests in any folder."""

from pathlib import Path

__all__ = ["FIXTURES", "PROJECT"]

PROJECT = Path(__file__).parents[1]
FIXTURES = PROJECT / "tests" / "fixtures"
