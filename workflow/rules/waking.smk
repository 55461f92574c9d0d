# While Snakemake limits how many jobs it starts in a second, every look for the next job starts a
# timer that makes it look again a second later: once a second for every job that ever ran. After 250
# jobs that filled a core beside what was measured. Jobs here come one by one: no limit is needed.
onstart:
    workflow.scheduler.job_rate_limiter = None
