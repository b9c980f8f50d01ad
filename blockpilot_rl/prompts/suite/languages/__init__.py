"""The languages of the suite other than English: one module of texts and one of topics each."""

from __future__ import annotations

from blockpilot_rl.prompts.suite.languages import french, german, italian, portuguese, spanish
from blockpilot_rl.prompts.suite.languages.language import Language

__all__ = ["LANGUAGES", "Language"]

LANGUAGES: tuple[Language, ...] = (
    german.LANGUAGE,
    french.LANGUAGE,
    spanish.LANGUAGE,
    italian.LANGUAGE,
    portuguese.LANGUAGE,
)
