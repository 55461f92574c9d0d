"""Files: a table in every format, an artefact's sheet, the report."""
