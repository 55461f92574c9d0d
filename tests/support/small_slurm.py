"""Slurm cluster of two nodes on this machine: real daemons with their own ports and files.

Only its own processes are killed: those with the path of its slurm.conf in their environment.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.processes import wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scancel", "scontrol")
NODES = ("bench1", "bench2")
MARK = "BENCH_TEST_NODE"  # in the environment of a node's daemon and its descendants
PARTITION = "tests"
PATIENCE_S = 120.0
CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=0
SlurmdTimeout=10
KillWait=2
MinJobAge=3600
PartitionName={partition} Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
    " CPUs={n_cpus} RealMemory={mib} State=UNKNOWN\n"
)


def why_no_slurm() -> str | None:
    """Return the reason if this machine cannot start Slurm, or None."""
    missing = [name for name in (*DAEMONS, *COMMANDS) if _which(name) is None]
    if missing:
        return (
            f"{missing[0]} is not installed (apt-get install munge slurmctld slurmd slurm-client)"
        )
    if os.geteuid() != 0:
        return "slurmd starts jobs as root only"
    return None


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class SmallSlurm:
    """Slurm's daemons, their directory, and the environment in which commands find them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._conf = folder / "slurm.conf"

    def start(self) -> None:
        self._write_conf()
        self._start_munge()
        self._daemons["slurmctld"] = self._daemon([_which("slurmctld"), "-D"])
        for name in NODES:
            self.start_node(name)
        assert wait_until(lambda: sorted(self.idle()) == list(NODES), PATIENCE_S), "no nodes"

    def start_node(self, name: str) -> None:
        self._daemons[name] = self._daemon([_which("slurmd"), "-D", "-N", name], {MARK: name})

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon and all processes on the node, as if the node failed."""
        self._daemons.pop(name).kill()
        _kill(list(self._processes(name)))

    def stop(self) -> None:
        _kill(list(self._processes(None)))
        for process in self._daemons.values():
            process.terminate()
        for process in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()

    def environment(self, others: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for commands, and for a Snakemake that uses them."""
        path = f"{self._folder / 'bin'}{os.pathsep}{others.get('PATH', os.environ['PATH'])}"
        return {**others, "SLURM_CONF": str(self._conf), "PATH": path}

    def ask(self, *command: str) -> list[str]:
        """Return the lines that one of Slurm's commands prints."""
        own = self.environment(os.environ)
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.splitlines()

    def idle(self) -> list[str]:
        with suppress(subprocess.CalledProcessError):
            return self.ask("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
        return []

    def node_of_each_job(self) -> list[str]:
        """Return the nodes of all jobs that started, including finished ones."""
        return [node for node in self.ask("squeue", "--states=all", "-h", "-o", "%N") if node]

    def busy_nodes(self) -> list[str]:
        return self.ask("squeue", "--states=running", "-h", "-o", "%N")

    def _write_conf(self) -> None:
        (self._folder / "state").mkdir()
        host = socket.gethostname()
        ports = [_free_port() for _ in range(1 + len(NODES))]
        values = {"host": host, "folder": self._folder, "port": ports[0], "user": "root"}
        text = CONF.format(**values, partition=PARTITION, nodes=",".join(NODES))
        for name, port in zip(NODES, ports[1:], strict=True):
            size = {"n_cpus": psutil.cpu_count(), "mib": 4096}
            text += NODE.format(name=name, host=host, port=port, **size)
        self._conf.write_text(text)
        # A step of Snakemake drops most of Slurm's variables, including SLURM_CONF, so that srun
        # would use the machine's own slurm.conf.
        (self._folder / "bin").mkdir()
        for name in COMMANDS:
            wrapper = self._folder / "bin" / name
            wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={self._conf} exec {_which(name)} "$@"\n')
            wrapper.chmod(0o755)

    def _start_munge(self) -> None:
        folder = self._folder / "munge"
        folder.mkdir()
        folder.chmod(0o755)
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        places = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{option}={folder / name}" for option, name in places.items()]
        log = f"--log-file={folder / 'log'}"
        self._daemons["munged"] = self._daemon([_which("munged"), "--foreground", *options, log])
        assert wait_until((folder / "socket").exists, PATIENCE_S), "no munge"

    def _daemon(
        self, command: list[str | None], more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        environment = self.environment(os.environ) | dict(more or {})
        words = [word for word in command if word is not None]
        no_streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(words, env=environment, **no_streams)

    def _processes(self, node: str | None) -> Iterator[psutil.Process]:
        """Yield the processes of a node, or of all for None; a job's parents come before it."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                found = process.environ()
                where = {found.get(MARK), found.get("SLURMD_NODENAME")} - {None}
                is_there = where if node is None else node in where
                if is_there and found.get("SLURM_CONF") == str(self._conf):
                    # slurmstepd overwrites its environment with its title.
                    yield from (p for p in process.parents() if p.name() == "slurmstepd")
                    yield process


@contextmanager
def small_slurm() -> Iterator[SmallSlurm]:
    """Start a cluster, and stop it at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="small-slurm-"))
    folder.chmod(0o755)  # munge requires that all users can reach its socket
    slurm = SmallSlurm(folder)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
