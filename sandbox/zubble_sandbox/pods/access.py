"""Which cluster, and with which credentials: from a kubeconfig or from the pod the worker runs in."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, Final

from kubernetes import config
from kubernetes.client import Configuration

from zubble_queue.errors import SandboxUnavailable

_DEFAULT_FILE: Final = Path("~/.kube/config")


class Access:
    """Where the API server is, and what every request to it carries. Holds secrets: never print one."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.host = str(configuration.host).rstrip("/")
        self._tls = _tls(configuration) if self.host.startswith("https:") else None

    @classmethod
    def load(cls, kubeconfig_file: str | None, context: str | None) -> Access:
        """Blocks: reads files and may run a credential plugin. Raises SandboxUnavailable.

        Args:
            kubeconfig_file: When None: $KUBECONFIG, ~/.kube/config, or the service account of our own pod.
            context: Of the kubeconfig; its current one when None.
        """
        configuration = Configuration()
        try:
            if kubeconfig_file or os.environ.get("KUBECONFIG") or _DEFAULT_FILE.expanduser().exists():
                config.load_kube_config(
                    config_file=kubeconfig_file,
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
            else:
                config.load_incluster_config(client_configuration=configuration)
            return cls(configuration)
        except (config.ConfigException, OSError, ssl.SSLError, ValueError, TypeError) as error:
            raise SandboxUnavailable(
                f"No cluster can be reached: {str(error).rstrip('.')}. Set kubeconfig_file in "
                "the backend's table or KUBECONFIG, or run the worker in the cluster."
            ) from error

    def options(self) -> dict[str, Any]:
        """For aiohttp: headers with a token that is valid now, TLS, proxy. Blocks when a token is renewed."""
        configuration = self._configuration
        headers = {"User-Agent": "zubble-queue"}
        bearer = configuration.auth_settings().get("BearerToken")
        if bearer and bearer["value"]:
            headers["Authorization"] = bearer["value"]
        elif configuration.username:
            headers["Authorization"] = configuration.get_basic_auth_token() or ""
        options: dict[str, Any] = {"headers": headers}
        if self._tls is not None:
            options["ssl"] = self._tls
            if configuration.tls_server_name:
                options["server_hostname"] = configuration.tls_server_name
        if configuration.proxy:
            options["proxy"] = configuration.proxy
            options["proxy_headers"] = configuration.proxy_headers
        return options


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
