# Records of several kinds of machines (bench-collect --merge ... --pack): a separate Snakemake run draws
# each kind, and one report shows them side by side.
OTHERS = [f"{key}={value}" for key, value in config.items() if key not in ("records", "results_dir")]

rule all:
    input:
        f"{RESULTS}/report.html",
    message:
        f"all experiments are drawn: {RESULTS}/report.html"

rule draw_all:
    input:
        [f"{RESULTS}/{kind}/report.html" for kind in KINDS],

rule kind:
    localrule: True # on a cluster, too
    input:
        lambda wildcards: find_packed_files(Path(config["records"], wildcards.kind)),
    output:
        f"{RESULTS}/{{kind}}/report.html",
    log:
        f"{RESULTS}/logs/{{kind}}.log",
    params:
        snakemake=[*PYTHON, "snakemake", "--snakefile", workflow.main_snakefile, "all", "--nolock"],
        config=lambda wildcards: [
            *OTHERS, f"records={config['records']}/{wildcards.kind}", f"results_dir={RESULTS}/{wildcards.kind}",
        ],
    message:
        "draw the records of {wildcards.kind}"
    shell:
        "{params.snakemake:q} --cores 1 --config {params.config:q} &> {log:q}"

rule report:
    localrule: True
    input:
        [f"{RESULTS}/{kind}/report.html" for kind in KINDS],
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    params:
        draw=[*PYTHON, "dynbatch.harness.commands.draw"],
        kinds=[f"--kind={RESULTS}/{kind}" for kind in KINDS],
    message:
        "write {output}"
    shell:
        "{params.draw:q} --report={output:q} {params.kinds:q} &> {log:q}"
