# One image for worker, dispatcher and Flower:  docker build -t zubble-queue:dev .
#
#   --build-arg BASE_IMAGE=…         any Debian with Python 3.11 or later and its venv
#   --build-arg EXTRAS=worker        extras of the package; default: all
#   --build-arg EXTRA_PACKAGES=s3fs  further Python packages, as a driver for the artifact store
#   --build-arg SYSTEM_PACKAGES=""   when the base has bubblewrap and libseccomp already
#
# The base needs no compiler: where it has none, the wheel `ziglang` compiles the sandboxes' supervisor.
# Where a folder wheelhouse/ with all wheels lies beside this file, the network is not needed and nothing is
# compiled (a wheel of zubble-queue in it is taken in place of the source):
#   pip wheel -c requirements-ci.txt -w wheelhouse '.[all]'
#   docker build --network none --build-arg BASE_IMAGE=… --build-arg SYSTEM_PACKAGES="" -t zubble-queue:dev .

ARG BASE_IMAGE=python:3.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG EXTRAS=all
ARG EXTRA_PACKAGES=""
WORKDIR /src
COPY requirements-ci.txt wheelhouse* /wheelhouse/
COPY pyproject.toml hatch_build.py README.md CHANGELOG.md LICENSE ./
COPY zubble_queue zubble_queue
COPY worker worker
COPY sandbox sandbox
RUN python3 -m venv /opt/zubble \
    && if ls /wheelhouse/*.whl >/dev/null 2>&1; then offline="--no-index --find-links /wheelhouse"; fi \
    && if ls /wheelhouse/zubble_queue-*.whl >/dev/null 2>&1; then package=zubble-queue; fi \
    && /opt/zubble/bin/pip install --no-cache-dir ${offline:-} -c /wheelhouse/requirements-ci.txt \
        "${package:-/src}[${EXTRAS}]" ${EXTRA_PACKAGES} \
    && ln -s /opt/zubble/lib/python3*/site-packages/zubble_sandbox/bin/zubble-box-"$(uname -m)" \
        /opt/zubble/bin/zubble-box \
    && test -x /opt/zubble/bin/zubble-box \
    && /opt/zubble/bin/zubble --help >/dev/null

FROM ${BASE_IMAGE}
ARG SYSTEM_PACKAGES="bubblewrap libseccomp2"
RUN if [ -n "${SYSTEM_PACKAGES}" ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends ${SYSTEM_PACKAGES} \
        && rm -rf /var/lib/apt/lists/*; \
    fi \
    && groupadd --gid 10001 zubble \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/zubble --create-home --shell /usr/sbin/nologin zubble
COPY --from=build /opt/zubble /opt/zubble
ENV PATH=/opt/zubble/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ZUBBLE_HOME=/var/lib/zubble
# Works with a read-only root when these two are writable.
VOLUME ["/var/lib/zubble", "/tmp"]
WORKDIR /var/lib/zubble
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=60s --timeout=20s --start-period=30s CMD ["zubble", "doctor", "--role", "dispatcher"]
ENTRYPOINT ["zubble"]
CMD ["--help"]
