# Batch counts on a cluster: several at a time on a node, except for timed ones.
rule counts:
    output:
        f"{RESULTS}/counts/{{sweep}}.json",
    log:
        f"{RESULTS}/logs/counts/{{sweep}}.log",
    params:
        measure=[*PYTHON, "dynbatch.harness.commands.measure"],
        order=str(build_order_path(RESULTS, "{sweep}")),
        source=hash_sweep_code,
    threads: count_threads
    resources:
        **COUNT_JOB,
    message:
        "count {wildcards.sweep}"
    shell:
        "{params.measure:q} --done={output:q} -- {params.order:q} 3>&2 &> {log:q}"
