# What measure.smk does, as jobs of a cluster: submitted on the head node, done on a node as ordered.

# All rounds of the trials of some points, alone on a node.
rule sitting:
    output:
        str(sitting_path(RESULTS, "{sitting}", "{round}")),
    log:
        f"{RESULTS}/logs/sittings/{{sitting}}/{{round}}.log",
    params:
        at_node=[*PYTHON, "harness.commands.at_node"],
        order=str(order_path(RESULTS, "{sitting}")),
        sources=sources_of,
    threads: N_CPUS
    resources:
        **SITTING_JOB,
    priority: priority_of
    message:
        "measure {wildcards.sitting}"
    shell:
        "{params.at_node:q} {params.order:q} --done={output:q} 3>&2 &> {log:q}"

# Batch counts, several on a node; timed ones alone.
rule counts:
    output:
        f"{RESULTS}/counts/{{sweep}}.json",
    log:
        f"{RESULTS}/logs/counts/{{sweep}}.log",
    params:
        at_node=[*PYTHON, "harness.commands.at_node"],
        order=str(order_path(RESULTS, "{sweep}")),
        source=source_of_sweep,
    threads: count_threads
    resources:
        **COUNT_JOB,
    message:
        "count {wildcards.sweep}"
    shell:
        "{params.at_node:q} {params.order:q} --done={output:q} 3>&2 &> {log:q}"
