# The service. Build: docker build -t fawn .    Run: docker run --init -v fawn:/var/lib/fawn --env-file .env fawn
# Settings: mount a config.yaml as /var/lib/fawn/config.yaml, or pass environment variables only.
# Optional packages, from their locks: --build-arg EXTRAS="anthropic ddgs"
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
ARG EXTRAS=
COPY requirements.lock ./
COPY packaging/extras extras
RUN python3 -m venv .venv \
    && for lock in requirements.lock $(printf 'extras/%s.lock ' $EXTRAS); do \
        case $lock in extras/.lock|extras/mcp.lock) continue;; esac; \
        .venv/bin/pip install --no-cache-dir --no-compile --require-hashes -r "$lock" || exit 1; done
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY bot bot
COPY catalogue catalogue
COPY channels channels
COPY sandbox sandbox
COPY skills skills
RUN .venv/bin/pip install --no-cache-dir --no-compile --no-deps --no-build-isolation -e . \
    && { .venv/bin/python -m compileall -q -j 0 -x lark_oapi/api .venv/lib agent bot catalogue channels sandbox || true; } \
    && useradd --uid 10001 --home-dir /var/lib/fawn --create-home fawn

USER fawn
WORKDIR /var/lib/fawn
VOLUME /var/lib/fawn
ENV PATH=/opt/fawn/.venv/bin:$PATH PYTHONUNBUFFERED=1
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s CMD ["fawn", "status"]
ENTRYPOINT ["fawn"]
CMD ["run"]
