"""Tables, figures and the report, drawn from records."""
