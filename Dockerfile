# The service. Build: docker build -t fawn .    Run: docker run --init -v fawn:/var/lib/fawn --env-file .env fawn
# Settings: mount a config.yaml as /var/lib/fawn/config.yaml, or pass environment variables only. It runs as an ordinary
# user, and works with --read-only --tmpfs /tmp. A base is Debian or Ubuntu with Python 3.11 or later and its venv module.
# Optional packages, from their locks: --build-arg EXTRAS="anthropic ddgs"; fewer channels: --build-arg CHANNELS="slack"
ARG BASE_IMAGE=python:3.12-slim
FROM ${BASE_IMAGE}

RUN command -v bwrap || { apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*; }

LABEL org.opencontainers.image.title=fawn \
    org.opencontainers.image.description="An agent service for a team's chats" \
    org.opencontainers.image.version=0.1.0 \
    org.opencontainers.image.licenses=MIT

WORKDIR /opt/fawn
ARG CHANNELS=
ARG EXTRAS=
# Wheels beside the locks replace the index: --build-arg PIP_NO_INDEX=1 (packaging/image).
ARG PIP_NO_INDEX=
COPY requirements.lock packaging/extras/ locks/
RUN python3 -m venv .venv \
    && locks=$(for name in ${CHANNELS:-all} $EXTRAS; do \
        case $name in (mcp) ;; (all) for each in discord feishu matrix slack telegram; do echo "-r locks/$each.lock"; done;; \
            (*) echo "-r locks/$name.lock";; esac; done) \
    && PIP_NO_INDEX=$PIP_NO_INDEX .venv/bin/pip install --no-cache-dir --no-compile \
        --require-hashes --find-links locks -r locks/requirements.lock $locks \
    && rm -rf locks
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY bot bot
COPY catalogue catalogue
COPY channels channels
COPY fawn fawn
COPY sandbox sandbox
COPY skills skills
# The compiled files know their sources by content, not by time: the same build gives the same bytes.
RUN .venv/bin/pip install --no-cache-dir --no-compile --no-deps --no-build-isolation -e . \
    && { .venv/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash -x lark_oapi/api \
        .venv/lib agent bot catalogue channels fawn sandbox >/dev/null || true; } \
    && useradd --uid 10001 --home-dir /var/lib/fawn --create-home fawn

USER fawn
WORKDIR /var/lib/fawn
VOLUME /var/lib/fawn
ENV PATH=/opt/fawn/.venv/bin:$PATH PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["fawn", "status"]
ENTRYPOINT ["fawn"]
CMD ["run"]
