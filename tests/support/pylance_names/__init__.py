"""The page docs/reference/pylance.md: every public name of pylance, and what this package has."""
