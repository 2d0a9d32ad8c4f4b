"""A Kubernetes node of one machine, in namespaces of its own; nothing of it is left when its process ends.

    python tests/cluster/node.py CACHE -- COMMAND...    run COMMAND with KUBECONFIG set to the node's

CACHE is what script/build-cluster made. All servers live in a pid, mount and network namespace behind one
process; ending that one ends every server, container and mount. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

import images
import product

_OWN: Final = os.getpid() % 250
HOST, NODE, PODS = f"10.77.{_OWN}.1", f"10.77.{_OWN}.2", f"10.78.{_OWN}.0/24"
"""Of this process alone, so that two nodes may run at once."""
SERVICES, API = "10.79.0.0/24", "10.79.0.1"
"""The service `kubernetes` has the first address: the API server listens there itself, without kube-proxy."""
NODE_NAME = "zubble-node"
SANDBOX_IMAGE, PAUSE_IMAGE = "docker.io/zubble/sandbox:test", "docker.io/zubble/pause:test"
PRODUCT_IMAGE, REDIS_IMAGE = "docker.io/zubble/zubble-queue:test", "docker.io/zubble/redis:test"
_PATIENCE_SECONDS = 180.0
_SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""What a kubelet insists on: shown to it, not set on the machine."""

_ENTER = r"""
set -eu
mount --make-rshared /
for folder in /run /var/log /var/lib/kubelet /etc/cni; do
    mkdir -p "$folder"
    mount -t tmpfs none "$folder"
done
for name in "$@"; do
    case $name in --) break ;; esac
    mount --bind "$RUN/sysctl/$name" "/proc/sys/$name"
done
"""


class Node:
    """Started by `with`; `kubeconfig` is an administrator's."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self._cache, self._folder = cache, folder
        self._namespace = f"zubble-{os.getpid()}"
        self._link = f"zb{os.getpid()}"[:13]
        self._init: subprocess.Popen[bytes] | None = None
        self._servers: list[subprocess.Popen[bytes]] = []
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", "kubelet", "manager", "scheduler")}
        self.kubeconfig = folder / "admin.kubeconfig"
        self.started_seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End process 1 of the node, and with it all that runs there."""
        if self._init is not None:
            self._init.kill()
            self._init.wait()
        for server in self._servers:
            server.kill()
            server.wait()
        subprocess.run(["ip", "link", "del", self._link], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self._namespace], capture_output=True, check=False)
        _remove_cgroups(f"zubble-{os.getpid()}")

    def _start(self) -> None:
        began = time.monotonic()
        self._make_keys()
        self._make_network()
        self._make_namespaces()
        self._run("etcd", *self._etcd())
        self._run("kube-apiserver", *self._api_server())
        _until(self._answers, "the API server answers")
        self.started_seconds["api"] = time.monotonic() - began
        self._run("kube-controller-manager", *self._manager())
        self._run("kube-scheduler", f"--kubeconfig={self._config_file('scheduler')}", "--leader-elect=false")
        self._run("containerd", f"--config={self._containerd()}", where="debian/usr/bin")
        self._import_images()
        self._serve_names()
        self._run("kubelet", *self._kubelet())
        _until(self._ready, "the node is ready")
        self.started_seconds["node"] = time.monotonic() - began

    # --- keys, network, namespaces ------------------------------------------------------------------------

    def _make_keys(self) -> None:
        keys = self._folder / "keys"
        keys.mkdir()

        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=keys, capture_output=True, check=True)

        openssl("genrsa", "-out", "accounts.key", "2048")
        authority = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=zubble"
        openssl(*authority.split())
        for name, subject, names in (
            ("server", "/CN=kube-apiserver", f"IP:{NODE},IP:127.0.0.1,IP:{API},DNS:localhost"),
            ("client", "/O=system:masters/CN=kube-apiserver", "DNS:client"),
        ):
            (keys / f"{name}.ext").write_text(f"subjectAltName={names}\n")
            openssl(
                *f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}".split()
            )
            openssl(
                *f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2".split(),
                *f"-extfile {name}.ext -out {name}.crt".split(),
            )
        users = {
            "admin": ("admin", "system:masters"),
            "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
            "manager": ("system:kube-controller-manager", "system:masters"),
            "scheduler": ("system:kube-scheduler", "system:masters"),
        }
        lines = [f'{self._tokens[name]},{user},{user},"{group}"' for name, (user, group) in users.items()]
        (keys / "tokens.csv").write_text("\n".join(lines) + "\n")
        for name in users:
            path = self._folder / f"{name}.kubeconfig"
            path.write_text(self._config(self._tokens[name]))
            path.chmod(0o600)

    def _config(self, token: str) -> str:
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {
                        "name": "node",
                        "cluster": {
                            "server": f"https://{NODE}",
                            "certificate-authority": str(self._folder / "keys/ca.crt"),
                        },
                    }
                ],
                "users": [{"name": "user", "user": {"token": token}}],
                "contexts": [{"name": "node", "context": {"cluster": "node", "user": "user"}}],
                "current-context": "node",
            }
        )

    def _config_file(self, name: str) -> Path:
        return self._folder / f"{name}.kubeconfig"

    def _make_network(self) -> None:
        for command in (
            f"ip netns add {self._namespace}",
            f"ip link add {self._link} type veth peer name eth0 netns {self._namespace}",
            f"ip addr add {HOST}/24 dev {self._link}",
            f"ip link set {self._link} up",
            f"ip -n {self._namespace} addr add {NODE}/24 dev eth0",
            f"ip -n {self._namespace} link set eth0 up",
            f"ip -n {self._namespace} link set lo up",
            f"ip -n {self._namespace} addr add {API}/32 dev lo",
            f"ip -n {self._namespace} route add default via {HOST}",
            f"ip route add {PODS} via {NODE}",
        ):
            subprocess.run(command.split(), check=True, capture_output=True)

    def _make_namespaces(self) -> None:
        for name, value in _SYSCTLS.items():
            path = self._folder / "sysctl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value + "\n")
        ready = self._folder / "entered"
        script = f"{_ENTER}\n: >{ready}\nexec sleep infinity\n"
        self._init = subprocess.Popen(
            [
                *("nsenter", f"--net=/var/run/netns/{self._namespace}"),
                *(
                    "unshare",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "--propagation",
                    "slave",
                ),
                *("sh", "-c", script, "sh", *_SYSCTLS),
            ],
            env={**os.environ, "RUN": str(self._folder)},
            start_new_session=True,
        )
        _until(ready.exists, "the namespaces of the node are made")

    def _inside(self) -> list[str]:
        """Enter the node's namespaces: those of the child of `unshare`."""
        assert self._init is not None
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
        return ["nsenter", "--target", children[0], "--mount", "--pid", "--net", "--"]

    def _run(self, name: str, *arguments: str, where: str = "bin") -> None:
        """Start a server; what it says is in a file named after it."""
        if name == "etcd":
            where = "debian/usr/bin"
        path = f"{self._cache}/debian/usr/sbin:{self._cache}/debian/usr/bin:{os.environ['PATH']}"
        with (self._folder / f"{name}.log").open("wb") as log:
            server = subprocess.Popen(
                [*self._inside(), "nice", "-n", "5", str(self._cache / where / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": path, "HOME": str(self._folder)},
                start_new_session=True,
            )
        self._servers.append(server)

    # --- servers ------------------------------------------------------------------------------------------

    def _etcd(self) -> list[str]:
        return [
            f"--data-dir={self._folder}/etcd",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        keys = self._folder / "keys"
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={NODE}",
            f"--service-cluster-ip-range={SERVICES}",
            "--secure-port=443",
            f"--tls-cert-file={keys}/server.crt",
            f"--tls-private-key-file={keys}/server.key",
            f"--client-ca-file={keys}/ca.crt",
            f"--token-auth-file={keys}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://zubble.test",
            f"--service-account-key-file={keys}/accounts.key",
            f"--service-account-signing-key-file={keys}/accounts.key",
            f"--kubelet-client-certificate={keys}/client.crt",
            f"--kubelet-client-key={keys}/client.key",
            f"--cert-dir={self._folder}/certificates",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _manager(self) -> list[str]:
        keys = self._folder / "keys"
        return [
            f"--kubeconfig={self._config_file('manager')}",
            f"--service-account-private-key-file={keys}/accounts.key",
            f"--root-ca-file={keys}/ca.crt",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
        ]

    def _containerd(self) -> Path:
        plugin = 'plugins."io.containerd.grpc.v1.cri"'
        network = self._folder / "cni"
        network.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": "zubble0",
            "isGateway": True,
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self._folder / "addresses"),
            },
        }
        (network / "10-zubble.conflist").write_text(
            json.dumps({"cniVersion": "0.4.0", "name": "zubble", "plugins": [bridge, {"type": "loopback"}]})
        )
        path = self._folder / "containerd.toml"
        path.write_text(
            f"""version = 2
root = "{self._folder}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[{plugin}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
max_container_log_line_size = 16384
[{plugin}.cni]
bin_dir = "{self._cache}/debian/usr/lib/cni"
conf_dir = "{network}"
[{plugin}.containerd]
default_runtime_name = "runc"
snapshotter = "overlayfs"
[{plugin}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{plugin}.containerd.runtimes.runc.options]
BinaryName = "{self._cache}/debian/usr/sbin/runc"
"""
        )
        return path

    def _kubelet(self) -> list[str]:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self._folder / "keys/ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/zubble-{os.getpid()}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "podLogsDir": "/var/log/pods",
            "resolvConf": "",
            "clusterDNS": [NODE],
            "clusterDomain": "cluster.local",
            "enforceNodeAllocatable": [],
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "registerNode": True,
            "fileCheckFrequency": "10s",
            "syncFrequency": "10s",
        }
        path = self._folder / "kubelet.json"
        path.write_text(json.dumps(config))
        for controller in _controllers():
            (controller / f"zubble-{os.getpid()}").mkdir(exist_ok=True)
        _inherit_cpuset(f"zubble-{os.getpid()}")
        return [
            f"--config={path}",
            f"--kubeconfig={self._config_file('kubelet')}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE}",
            "--root-dir=/var/lib/kubelet",
        ]

    def _import_images(self) -> None:
        socket = ["--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"]
        ctr = [*self._inside(), str(self._cache / "debian/usr/bin/ctr"), *socket]
        _until(
            lambda: not subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode,
            "containerd answers",
        )
        path = self._folder / "image.tar"
        for image in (
            images.pause_image(PAUSE_IMAGE),
            images.sandbox_image(SANDBOX_IMAGE),
            images.redis_image(REDIS_IMAGE),
        ):
            path.write_bytes(image)
            subprocess.run([*ctr, "images", "import", path], check=True, capture_output=True)
        if product.buildable():
            product.write(PRODUCT_IMAGE, self._cache, path)
            subprocess.run([*ctr, "images", "import", path], check=True, capture_output=True)
        path.unlink()

    def _serve_names(self) -> None:
        with (self._folder / "resolver.log").open("wb") as log:
            program = [sys.executable, Path(__file__).with_name("resolver.py")]
            resolver = subprocess.Popen(
                [*self._inside(), *program, self.kubeconfig, NODE],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._servers.append(resolver)

    # --- readiness ----------------------------------------------------------------------------------------

    def _get(self, path: str) -> object:
        context = ssl.create_default_context(cafile=str(self._folder / "keys/ca.crt"))
        request = urllib.request.Request(
            f"https://{NODE}{path}", headers={"Authorization": f"Bearer {self._tokens['admin']}"}
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=5) as answer:
            return answer.read()

    def _answers(self) -> bool:
        self._check_alive()
        try:
            return self._get("/readyz") == b"ok"
        except (OSError, urllib.error.URLError):
            return False

    def _ready(self) -> bool:
        self._check_alive()
        try:
            node = json.loads(self._get(f"/api/v1/nodes/{NODE_NAME}"))
        except (OSError, urllib.error.URLError):
            return False
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
        return conditions.get("Ready") == "True"

    def _check_alive(self) -> None:
        for server in self._servers:
            if server.poll() is not None:
                raise RuntimeError(
                    f"{server.args[-1]} ended with {server.returncode}; see the logs in {self._folder}"
                )


def _controllers() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [folder for folder in root.iterdir() if folder.is_dir() and (folder / "cgroup.procs").exists()]


def _inherit_cpuset(name: str) -> None:
    """A new group of the first version has no processors of its own, and so takes no process."""
    folder = Path("/sys/fs/cgroup/cpuset")
    for file in ("cpuset.cpus", "cpuset.mems"):
        with contextlib.suppress(OSError):
            (folder / name / file).write_text((folder / file).read_text())


def _remove_cgroups(name: str) -> None:
    for controller in _controllers():
        for folder, _, _ in os.walk(controller / name, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"never happened: {what}")
        time.sleep(0.2)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Kept when something fails, for its logs; made where Unix socket paths are short."""
    folder = Path(tempfile.mkdtemp(prefix="zubble-node-"))
    try:
        yield folder
    except BaseException:
        sys.stderr.write(f"== logs of the node: {folder}\n")
        raise
    shutil.rmtree(folder, ignore_errors=True)


def main(cache: str, command: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with _folder() as folder, Node(Path(cache), folder) as node:
        times = ", ".join(f"{name} after {seconds:.1f} s" for name, seconds in node.started_seconds.items())
        sys.stderr.write(f"== a node runs: {times}\n")
        environ = {
            **os.environ,
            "KUBECONFIG": str(node.kubeconfig),
            "CLUSTER_IMAGE": SANDBOX_IMAGE,
            "CLUSTER_PULL_POLICY": "Never",
            "CLUSTER_HOST": HOST,
            **(
                {"CLUSTER_PRODUCT": PRODUCT_IMAGE, "CLUSTER_REDIS": REDIS_IMAGE}
                if product.buildable()
                else {}
            ),
            "CLUSTER_CANARY": f"{NODE}:443",
        }
        return subprocess.run(command, env=environ, check=False).returncode


if __name__ == "__main__":
    split = sys.argv.index("--")
    sys.exit(main(sys.argv[1], sys.argv[split + 1 :]))
