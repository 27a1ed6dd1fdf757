#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster_files/plan.h"
#include "cli/cluster_files/quote.h"
#include "common/core/status.h"

namespace cairn::cli {
namespace {

constexpr char kFile[] = R"yaml(# One machine, a container for each task: @TASKS@.
#   docker-compose -f deploy/docker-compose.yml up --build        or, with Compose v2: docker compose
# Written by
#   @COMMAND@
#
# Variables, all optional:
#   CAIRN_MODEL    the model file                     default: examples/mnist_cnn.json next to this file
#   CAIRN_DATA     the folder with the data           default: a volume; synthetic digits if it is empty
#   CAIRN_THREADS  compute threads of each worker     default: 1
#   CAIRN_IMAGE    the images are CAIRN_IMAGE-ps and CAIRN_IMAGE-worker with the tag CAIRN_TAG
#   CAIRN_JOB_TOKEN the job token that clients must present: $(openssl rand -hex 32); default: none
#   CAIRN_SOURCE   the source tree of the images      default: the parent of this file's folder
#
# A task that fails is restarted at most @RETRIES@ times: Compose does not distinguish exit codes. Checkpoints and results are
# in the volume `checkpoints`.

x-cluster: &cluster
  TF_CONFIG: @TF_CONFIG@
  CAIRN_JOB_TOKEN: ${CAIRN_JOB_TOKEN:-}

x-ps: &ps
  image: ${CAIRN_IMAGE:-@IMAGE@}-ps:${CAIRN_TAG:-@TAG@}
  build: {context: "${CAIRN_SOURCE:-..}", dockerfile: deploy/Dockerfile, target: ps}
  entrypoint:
    - cairn-ps
    - --job_name=ps
    - --metrics_port=9222
  environment: *cluster
  networks: {default: {aliases: [ps]}}  # the name under which Prometheus finds all of them
  healthcheck:
    test: [CMD, cairn, health, "localhost:@PORT@"]
    interval: 2s
    timeout: 5s
    retries: 15
  restart: on-failure:@RETRIES@
  stop_grace_period: 30s

x-worker: &worker
  image: ${CAIRN_IMAGE:-@IMAGE@}-@WORKER_IMAGE@:${CAIRN_TAG:-@TAG@}
  build: {context: "${CAIRN_SOURCE:-..}", dockerfile: deploy/Dockerfile, target: @WORKER_IMAGE@}
  entrypoint:
    - cairn-worker
    - --job_name=worker
    - --model=/etc/cairn/model.json
    - --data_dir=/data
    - --train_dir=/checkpoints
    - --summary=/checkpoints/summary.json
    - --threads=${CAIRN_THREADS:-1}
    - --metrics_port=9222
@FLAGS@  environment:
    <<: *cluster
    OMP_WAIT_POLICY: passive  # the tasks share the cores
  networks: {default: {aliases: [worker]}}
  volumes:
    - ${CAIRN_MODEL:-./examples/mnist_cnn.json}:/etc/cairn/model.json:ro
    - ${CAIRN_DATA:-data}:/data:ro
    - checkpoints:/checkpoints
  depends_on:
    data: {condition: service_completed_successfully}
@DEPENDS@@RESERVATION@  restart: on-failure:@RETRIES@
  stop_grace_period: 60s  # the chief saves a checkpoint

services:
@SERVICES@
  # Synthetic digits in MNIST's format, used if there is no other data.
  data:
    image: ${CAIRN_IMAGE:-@IMAGE@}-@WORKER_IMAGE@:${CAIRN_TAG:-@TAG@}
    build: {context: "${CAIRN_SOURCE:-..}", dockerfile: deploy/Dockerfile, target: @WORKER_IMAGE@}
    entrypoint: [sh, -c, '[ -n "$$(ls -A /data)" ] || exec cairn digits /data']
    volumes: ["${CAIRN_DATA:-data}:/data"]

  # With --profile monitoring: Prometheus at localhost:9090, TensorBoard at localhost:6006.
  prometheus:
    profiles: [monitoring]
    image: ${PROMETHEUS_IMAGE:-prom/prometheus:v2.53.2}
    command: [--config.file=/etc/cairn/prometheus-compose.yml, --storage.tsdb.path=/prometheus]
    volumes: ["${CAIRN_SOURCE:-..}/deploy/monitoring:/etc/cairn:ro"]
    ports: ["127.0.0.1:9090:9090"]
  tensorboard:
    profiles: [monitoring]
    image: ${CAIRN_IMAGE:-@IMAGE@}-tensorboard:${CAIRN_TAG:-@TAG@}
    build: {context: "${CAIRN_SOURCE:-..}", dockerfile: deploy/monitoring/tensorboard.Dockerfile}
    volumes: ["checkpoints:/checkpoints:ro"]
    ports: ["127.0.0.1:6006:6006"]

volumes:
  data:
  checkpoints:
)yaml";

constexpr char kReservation[] = R"yaml(  deploy:
    resources:
      reservations:
        devices: [{driver: nvidia, count: @GPUS@, capabilities: [gpu]}]
)yaml";

constexpr int kRetries = 5;

std::string Range(const char* job, int count) {
  return count == 1 ? absl::StrCat(job, "0") : absl::StrCat(job, "0 to ", job, count - 1);
}

}  // namespace

absl::StatusOr<std::string> WriteCompose(const ClusterPlan& plan) {
  ClusterPlan by_service = plan;
  by_service.hosts.clear();  // the host of a task is the name of its service
  CAIRN_ASSIGN_OR_RETURN(const net::ClusterSpec spec, SpecOf(by_service));
  std::string services, depends, flags;
  for (const char* job : {"ps", "worker"}) {
    for (const auto& [index, address] : spec.tasks(job)) {
      absl::StrAppend(&services, "  ", job, index, ": {<<: *", job, ", command: [--task_index=", index,
                      "]}\n");
      if (job[0] == 'p') absl::StrAppend(&depends, "    ps", index, ": {condition: service_healthy}\n");
    }
  }
  for (const std::string& flag : plan.worker_flags)
    absl::StrAppend(&flags, "    - ", QuoteForYaml(EscapeDollars(flag)), "\n");
  return Fill(kFile,
              {{"TASKS", absl::StrCat(Range("ps", plan.servers), ", ", Range("worker", plan.workers))},
               {"COMMAND", plan.command},
               {"RETRIES", absl::StrCat(kRetries)},
               {"TF_CONFIG", QuoteForYaml(absl::StrCat("{\"cluster\": ", spec.ToJson(), "}"))},
               {"PORT", absl::StrCat(plan.port)},
               {"IMAGE", plan.image},
               {"TAG", plan.tag},
               {"WORKER_IMAGE", plan.gpus > 0 ? "worker-gpu" : "worker"},
               {"FLAGS", flags},
               {"DEPENDS", depends},
               {"RESERVATION", plan.gpus > 0 ? Fill(kReservation, {{"GPUS", absl::StrCat(plan.gpus)}}) : ""},
               {"SERVICES", services}});
}

}  // namespace cairn::cli
