"""All batches of a stage in one compiled call."""
