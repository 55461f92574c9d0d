# From records to pictures, tables and the report.
for name, plan in PLANS.items():
    rule:
        name:
            f"draw_{name}"
        localrule: True # on a cluster, too
        input:
            experiment=f"{CHOICES.conf_dir}/experiment/{name}.yaml",
            records=records_of([name]),
            counts=counts_of(COUNTS[name]),
            claims=claim_files(name),
        output:
            [f"{RESULTS}/{file}" for file in FILES[name]],
        log:
            f"{RESULTS}/logs/draw_{name}.log",
        params:
            draw=[*PYTHON, "harness.commands.draw", name, *SAME_CHOICES],
            source=DRAWING_SHA256,
            code=CODE_SHA256 if name in READS_CODE else "",
            # Records that it has outdated are gone; what needs them has to be drawn again.
            measured=[] if PLACE else sorted({source_of(trial.trial_id) for trial in plan}),
        message:
            f"draw {name}"
        shell:
            "{params.draw:q} &> {log:q}"

# Every number of every trial in one tidy table, for analyses of one's own.
rule collect:
    localrule: True
    input:
        records_of(PLANS),
    output:
        f"{RESULTS}/records.csv",
    log:
        f"{RESULTS}/logs/collect.log",
    params:
        collect=[*PYTHON, "harness.commands.collect", word(PLACE or RESULTS / "raw"), "--latest"],
    message:
        "write {output}"
    shell:
        "{params.collect:q} --out={output:q} &> {log:q}"

rule report:
    localrule: True
    input:
        [f"{RESULTS}/{file}" for name in PLANS for file in FILES[name]],
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    params:
        report=[*PYTHON, "harness.commands.report", f"--results-dir={RESULTS}", "--"],
        sheets=[f"{RESULTS}/artefacts/{name}.json" for name in PLANS],
        source=DRAWING_SHA256,
    message:
        "write {output}"
    shell:
        "{params.report:q} {output:q} {params.sheets:q} &> {log:q}"
