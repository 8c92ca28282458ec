"""Review sheets: labels to decide on as a workbook and as CSV, written by ``export`` and read by ``import-sheet``."""
