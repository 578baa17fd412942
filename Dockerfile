# One image for every role: `broker serve`, `broker worker`, and the CLI.
# The base may be any Debian-like image with Python >= 3.11 and its venv module.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /opt/fleet-broker
COPY . .
RUN /opt/fleet-broker/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt .

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/fleet-broker /opt/fleet-broker
COPY docker/make-secrets.py /usr/local/bin/make-secrets
COPY docker/broker.toml /etc/fleet-broker/broker.toml

# A user of our own. A new named volume takes over the owner of these two folders.
RUN groupadd --gid 10001 broker \
 && useradd --uid 10001 --gid broker --no-create-home --home-dir /var/lib/fleet-broker broker \
 && install -d -m 0700 -o broker -g broker /run/fleet-broker /var/lib/fleet-broker

ENV PATH=/opt/fleet-broker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    BROKER_CONFIG=/etc/fleet-broker/broker.toml
USER broker
WORKDIR /var/lib/fleet-broker
EXPOSE 7070
ENTRYPOINT ["broker"]
CMD ["--help"]
