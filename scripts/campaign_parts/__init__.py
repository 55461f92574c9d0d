"""What the campaign of injected faults is made of; `python -m scripts.campaign` runs it."""
