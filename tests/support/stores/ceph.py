"""A Ceph gateway on this machine, from the packages of a Debian or Ubuntu:

apt-get install --no-install-recommends ceph-mon ceph-mgr ceph-osd ceph-common radosgw

A machine can run one at a time.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.stores.azurite import free_port

_PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_SECONDS = 120


@contextmanager
def serving(folder: Path, port: int, key: str, secret: str) -> Iterator[None]:
    """Start the gateway with one user. The test is skipped if Ceph is not installed."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"Ceph is not installed ({', '.join(missing)}): see {__name__}")
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _start(folder, port, daemons)
        _run(
            folder, "radosgw-admin", "user", "create", "--uid=u", "--display-name=u",
            f"--access-key={key}", f"--secret={secret}",
        )  # fmt: skip
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()


def _start(folder: Path, port: int, daemons: list[subprocess.Popen[bytes]]) -> None:
    from tests.support.stores.s3_programs import wait_for

    monitor = f"v1:127.0.0.1:{free_port()}"
    cluster = str(uuid.uuid4())
    for name in ("run", "mon", "osd", "mgr"):
        (folder / name).mkdir()
    (folder / "ceph.conf").write_text(
        f"""[global]
fsid = {cluster}
mon host = {monitor}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
run dir = {folder}/run
log file = {folder}/$name.log
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
ms bind msgr2 = false
bluestore block size = 8589934592
osd memory target = 939524096
[mon.a]
host = localhost
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
[mgr.x]
mgr data = {folder}/mgr
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{port}
"""
    )
    user = getpass.getuser()
    owner = ("--setuser", user, "--setgroup", user)

    def daemon(*command: str) -> None:
        with (folder / "log").open("ab") as log:
            started = subprocess.Popen(
                [*command, *owner, "-f"], env=_environment(folder), stdout=log, stderr=log
            )
        daemons.append(started)

    map_file = str(folder / "monmap")
    _run(
        folder, "monmaptool", "--create", "--addv", "a", f"[{monitor}]", "--fsid", cluster, map_file
    )
    _run(folder, "ceph-mon", "--mkfs", "-i", "a", "--monmap", map_file, *owner)
    daemon("ceph-mon", "-i", "a")
    disk = str(uuid.uuid4())
    _run(folder, "ceph", "osd", "new", disk)
    daemon("ceph-mgr", "-i", "x")
    _run(folder, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk, *owner)
    _run(folder, "ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
    daemon("ceph-osd", "-i", "0")
    daemon("radosgw", "-n", "client.rgw.a")
    wait_for(port)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command)}: {done.stdout.decode()[-500:]}")
