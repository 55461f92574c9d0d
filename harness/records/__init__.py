"""Records of trials and counts: storage, checks across records, and tidy frames."""
