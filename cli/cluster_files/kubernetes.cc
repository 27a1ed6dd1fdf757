#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster_files/plan.h"
#include "cli/cluster_files/quote.h"
#include "common/core/status.h"

namespace cairn::cli {
namespace {

constexpr char kCluster[] = R"yaml(# @SERVERS@ servers and @WORKERS@ workers, the first of which is the chief.
# Written by
#   @COMMAND@
# To require a job token (docs/security.md), run this first:
#   kubectl create secret generic @STEM@-token --from-literal=token="$(openssl rand -hex 32)"
# Kubernetes 1.29 or later. kubectl apply -f FILE; the end: kubectl wait --for=condition=complete job/@STEM@-chief
apiVersion: v1
kind: ConfigMap
metadata:
  name: @NAME@
  labels: {app.kubernetes.io/name: @NAME@}
data:
  cluster.json: |
    @CLUSTER@
@MODEL@---
# DNS names for pods, ready or not: servers and workers connect to each other while they start.
apiVersion: v1
kind: Service
metadata:
  name: @NAME@
  labels: {app.kubernetes.io/name: @NAME@}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app.kubernetes.io/name: @NAME@}
  ports:
    - {name: grpc, port: @PORT@}
---
# An evicted server loses its variables; the chief restores all servers from the newest checkpoint.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: @STEM@-ps
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: ps}
---
# After training a server exits with 0, and Kubernetes restarts it for the next job.
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: @STEM@-ps
  labels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: ps}
spec:
  replicas: @SERVERS@
  serviceName: @NAME@
  podManagementPolicy: Parallel
  selector:
    matchLabels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: ps}
  template:
    metadata:
      labels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: ps}
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9222"}
    spec:
      terminationGracePeriodSeconds: 30
      securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: ps
          image: @IMAGE@-ps:@TAG@
          imagePullPolicy: IfNotPresent
          command: [sh, -c, 'exec cairn-ps --cluster=/etc/cairn/cluster.json --job_name=ps --task_index="${POD##*-}" --metrics_port=9222']
          env:
            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: CAIRN_JOB_TOKEN, valueFrom: {secretKeyRef: {name: @STEM@-token, key: token, optional: true}}}
          ports:
            - {name: grpc, containerPort: @PORT@}
            - {name: metrics, containerPort: 9222}
          startupProbe: {grpc: {port: @PORT@}, periodSeconds: 1, failureThreshold: 60}
          readinessProbe: {grpc: {port: @PORT@}, periodSeconds: 5, timeoutSeconds: 5}
          livenessProbe: {grpc: {port: @PORT@}, periodSeconds: 10, timeoutSeconds: 10, failureThreshold: 6}
          resources:
            requests: {cpu: 500m, memory: 512Mi}
            limits: {memory: 4Gi}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts:
            - {name: cluster, mountPath: /etc/cairn}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: cluster, configMap: {name: @NAME@}}
        - {name: tmp, emptyDir: {}}
---
# Checkpoints, log and summary; only the chief writes them.
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: @STEM@-checkpoints
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Gi}}
---
)yaml";

constexpr char kJob[] = R"yaml(apiVersion: batch/v1
kind: Job
metadata:
  name: @STEM@-@ROLE@
  labels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: @ROLE@}
spec:
  completionMode: Indexed
  completions: @COUNT@
  parallelism: @COUNT@
  backoffLimit: @RETRIES@
  # Exit codes that a retry cannot fix end the job at once; an eviction does not count as a retry. All others are
  # retried: 138, the cluster was not reached in time; 143, stopped; killed.
  podFailurePolicy:
    rules:
      - action: FailJob
        onExitCodes: {containerName: @ROLE@, operator: In, values: [1, 2, 3]}
      - action: Ignore
        onPodConditions: [{type: DisruptionTarget, status: "True"}]
  template:
    metadata:
      labels: {app.kubernetes.io/name: @NAME@, app.kubernetes.io/component: @ROLE@}
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9222"}
    spec:
      subdomain: @NAME@
      restartPolicy: Never
      terminationGracePeriodSeconds: @GRACE@
      securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
@INIT@      containers:
        - name: @ROLE@
          image: @IMAGE@:@TAG@
          imagePullPolicy: IfNotPresent
          command:
            - cairn-worker
            - --cluster=/etc/cairn/cluster.json
            - --job_name=@ROLE@
            - --task_index=$(JOB_COMPLETION_INDEX)
            - --model=/etc/cairn/model.json
            - --data_dir=/data
            - --train_dir=/checkpoints
            - --metrics_port=9222
@FLAGS@          env:
            - {name: CAIRN_JOB_TOKEN, valueFrom: {secretKeyRef: {name: @STEM@-token, key: token, optional: true}}}
          ports:
            - {name: metrics, containerPort: 9222}
          resources:
            requests: {cpu: "1", memory: 1Gi}
            limits: {@LIMITS@}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts:
            - {name: cluster, mountPath: /etc/cairn}
            - {name: data, mountPath: /data, readOnly: true}
            - {name: checkpoints, mountPath: /checkpoints}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: cluster
          projected:
            sources:
              - configMap: {name: @NAME@}
@MODEL_SOURCE@        - {name: data, @DATA@}
        - {name: checkpoints, @CHECKPOINTS@}
        - {name: tmp, emptyDir: {}}
)yaml";

// Fills the data volume with synthetic digits, identical in every worker.
constexpr char kDigits[] = R"yaml(      initContainers:
        - name: digits
          image: @IMAGE@:@TAG@
          imagePullPolicy: IfNotPresent
          command: [cairn, digits, /data]
          resources:
            requests: {cpu: 100m, memory: 256Mi}
            limits: {memory: 1Gi}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts:
            - {name: data, mountPath: /data}
)yaml";

struct Role {
  const char* name;
  int count;
};

// The model file as an entry of the ConfigMap.
std::string ModelOf(const ClusterPlan& plan) {
  if (plan.model.empty()) return "";
  if (!IsPlainText(plan.model)) return absl::StrCat("  model.json: ", QuoteForYaml(plan.model), "\n");
  // Without an explicit indentation, YAML derives it from the spaces at the start of the first line.
  const bool indented = absl::StartsWith(plan.model, " ") || absl::StartsWith(plan.model, "\n");
  return absl::StrCat("  model.json: |", indented ? "2" : "", "\n", Indent(plan.model, 4));
}

std::string WriteJob(const ClusterPlan& plan, const Role& role) {
  const bool chief = absl::string_view(role.name) == "chief";
  const std::string image = absl::StrCat(plan.image, plan.gpus > 0 ? "-worker-gpu" : "-worker");
  std::string flags;
  if (chief) flags = "            - --summary=/checkpoints/summary.json\n";
  for (const std::string& flag : plan.worker_flags) {
    absl::StrAppend(&flags, "            - ", QuoteForYaml(EscapeDollars(flag)), "\n");
  }
  const std::string limits =
      plan.gpus > 0 ? absl::StrCat("memory: 8Gi, nvidia.com/gpu: ", plan.gpus) : "memory: 4Gi";
  const bool digits = plan.data_claim.empty();
  return Fill(
      kJob,
      {{"NAME", NameForYaml(plan.name)},
       {"STEM", plan.name},
       {"ROLE", role.name},
       {"COUNT", absl::StrCat(role.count)},
       {"RETRIES", absl::StrCat(5 * role.count)},
       {"GRACE", chief ? "60" : "30"},
       {"INIT", digits ? Fill(kDigits, {{"IMAGE", image}, {"TAG", plan.tag}}) : ""},
       {"IMAGE", image},
       {"TAG", plan.tag},
       {"FLAGS", flags},
       {"LIMITS", limits},
       {"MODEL_SOURCE",
        plan.model.empty() ? absl::StrCat("              - configMap: {name: ", plan.name, "-model}\n") : ""},
       {"DATA", digits ? "emptyDir: {}"
                       : absl::StrCat("persistentVolumeClaim: {claimName: ", NameForYaml(plan.data_claim),
                                      ", readOnly: true}")},
       {"CHECKPOINTS", chief ? absl::StrCat("persistentVolumeClaim: {claimName: ", plan.name, "-checkpoints}")
                             : "emptyDir: {}"}});
}

// Pods of a StatefulSet, and of an indexed Job whose subdomain is the service, are called POD-INDEX.SERVICE.
absl::StatusOr<net::ClusterSpec> PodsOf(const ClusterPlan& plan) {
  net::ClusterSpec spec;
  const auto add = [&](const char* job, int count) -> absl::Status {
    for (int i = 0; i < count; ++i) {
      const std::string text = absl::StrCat(plan.name, "-", job, "-", i, ".", plan.name, ":", plan.port);
      CAIRN_ASSIGN_OR_RETURN(const auto address, net::HostPort::Parse(text));
      CAIRN_RETURN_IF_ERROR(spec.Add({job, i}, address));
    }
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(add("ps", plan.servers));
  CAIRN_RETURN_IF_ERROR(add("chief", 1));
  CAIRN_RETURN_IF_ERROR(add("worker", plan.workers - 1));
  return spec;
}

}  // namespace

absl::StatusOr<std::string> WriteKubernetes(const ClusterPlan& plan) {
  CAIRN_ASSIGN_OR_RETURN(const net::ClusterSpec spec, PodsOf(plan));
  std::string out = Fill(kCluster, {{"SERVERS", absl::StrCat(plan.servers)},
                                    {"WORKERS", absl::StrCat(plan.workers)},
                                    {"COMMAND", plan.command},
                                    {"NAME", NameForYaml(plan.name)},
                                    {"STEM", plan.name},
                                    {"CLUSTER", spec.ToJson()},
                                    {"MODEL", ModelOf(plan)},
                                    {"PORT", absl::StrCat(plan.port)},
                                    {"IMAGE", plan.image},
                                    {"TAG", plan.tag}});
  absl::StrAppend(&out, "# The first worker is the chief; it mounts the volume for checkpoints.\n",
                  WriteJob(plan, {"chief", 1}));
  if (plan.workers > 1) absl::StrAppend(&out, "---\n", WriteJob(plan, {"worker", plan.workers - 1}));
  return out;
}

}  // namespace cairn::cli
