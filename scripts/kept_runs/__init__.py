"""Tables of committed runs of `bench -m` that no artefact draws: what a folder's README shows."""
