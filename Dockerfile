# One node in a small image: only the run-time packages, an unprivileged user, data in a volume.
FROM python:3.12-slim

WORKDIR /opt/barnabas
COPY pyproject.toml README.md LICENSE ./
COPY protocol ./protocol
COPY storage ./storage
COPY controller ./controller
COPY broker ./broker
COPY config ./config
COPY cli ./cli
COPY pipeline ./pipeline
RUN pip install --no-cache-dir . \
    && useradd --system --uid 10001 barnabas \
    && mkdir -p /var/lib/barnabas \
    && chown barnabas /var/lib/barnabas

USER barnabas
VOLUME /var/lib/barnabas
EXPOSE 9092

# Healthy means answering: an ApiVersions request gets a response without an error code.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["python", "-c", "import socket, struct; s = socket.create_connection(('127.0.0.1', 9092), 2); s.sendall(struct.pack('>ihhih', 10, 18, 0, 1, -1)); f = s.makefile('rb'); assert struct.unpack('>iih', f.read(10))[1:] == (1, 0)"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["barnabas", "server-start", "config/server.properties"]
CMD ["--override", "log.dirs=/var/lib/barnabas"]
