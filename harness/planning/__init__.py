"""Plans of trials, batch counts and jobs, made from conf/ and command-line settings."""
