# From records to tables, figures and the report. One job draws everything (rule report); a rule
# drawn_NAME draws a single experiment, for `snakemake draw_NAME`.
DRAW = [*PYTHON, "dynbatch.harness.commands.draw"]

DRAWING_CODE = f"{RESULTS}/logs/drawing_code.sha256"
REPORT = f"{RESULTS}/report.html"
# Files that were removed after the report was written, which would not be drawn again with it.
REMOVED = [
    path
    for declaration in (DECLARATIONS.values() if Path(REPORT).exists() else ())
    for path in (f"{RESULTS}/{file}" for file in declaration.files)
    if not Path(path).exists()
]

# Hash of the drawing code, in a file: Snakemake stores parameters only for declared outputs, and the
# rule of the report does not declare the tables and figures that it draws.
rule drawing_code:
    localrule: True
    output:
        DRAWING_CODE,
    params:
        sha256=hash_drawing_code(CHOICES.conf_dir), # a change redraws everything
    log:
        f"{RESULTS}/logs/drawing_code.log",
    message:
        "hash the drawing code"
    shell:
        "echo {params.sha256} > {output:q} 2> {log:q}"

for name in PLANS:
    rule:
        name:
            f"draw_{name}"
        input:
            [f"{RESULTS}/{file}" for file in DECLARATIONS[name].files],
            to_measure(name),

    rule:
        name:
            f"drawn_{name}"
        localrule: True # on a cluster, too
        input:
            experiment=find_experiment_files([name]),
            records=find_record_files(name),
            counts=find_count_files([name]),
            code=DRAWING_CODE,
        output:
            [f"{RESULTS}/{file}" for file in DECLARATIONS[name].files],
        log:
            f"{RESULTS}/logs/draw_{name}.log",
        params:
            draw=[*DRAW, name, *SAME_CHOICES],
        message:
            f"draw {name}"
        shell:
            "{params.draw:q} &> {log:q}"

# Every number of every trial in one tidy table, for the user's own analyses.
rule collect:
    localrule: True
    input:
        find_record_files(),
    output:
        f"{RESULTS}/records.csv",
    log:
        f"{RESULTS}/logs/collect.log",
    params:
        collect=[*PYTHON, "dynbatch.harness.commands.collect", "--latest"],
        place=PLACE or str(RESULTS / "raw"),
    message:
        "write {output}"
    shell:
        "{params.collect:q} --out={output:q} -- {params.place:q} &> {log:q}"

# All tables, figures and the report in one job, so that planning and imports happen once.
rule report:
    localrule: True
    input:
        experiments=find_experiment_files(PLANS),
        records=find_record_files(),
        counts=find_count_files(PLANS),
        code=DRAWING_CODE,
    output:
        REPORT,
    log:
        f"{RESULTS}/logs/report.log",
    params:
        draw=[*DRAW, *SAME_CHOICES],
    message:
        f"draw {len(PLANS)} experiments, write {{output}}"
    shell:
        "{params.draw:q} --report={output:q} &> {log:q}"
