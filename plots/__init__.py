"""From records to tables, figures and one report."""
