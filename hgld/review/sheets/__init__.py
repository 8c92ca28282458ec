"""Review sheets as workbooks and CSV files: export and import."""
