# TensorBoard for the volume with the checkpoints: profile `monitoring` of deploy/docker-compose.yml.
ARG DEBIAN=debian:bookworm-slim
FROM ${DEBIAN}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/tensorboard \
 && /opt/tensorboard/bin/pip install --no-cache-dir tensorboard==2.21.0 \
 && useradd --uid 1000 --user-group cairn
USER 1000:1000
EXPOSE 6006
ENTRYPOINT ["/opt/tensorboard/bin/tensorboard", "--logdir=/checkpoints", "--bind_all", "--port=6006"]
