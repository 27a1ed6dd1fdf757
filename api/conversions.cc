#include "api/conversions.h"

#include <openssl/sha.h>

#include <array>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/tables.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/wire/wire_choice.h"
#include "nlohmann/json.hpp"

namespace cairn::api {
namespace {

constexpr int kMaxItemsAhead = 64;
constexpr int kMaxGroups = 65536;

std::string Sha256Hex(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

v1::Mode ToProto(Mode mode) {
  switch (mode) {
    case Mode::kSync:
      return v1::MODE_SYNC;
    case Mode::kAsync:
      return v1::MODE_ASYNC;
    case Mode::kBoundedStaleness:
      return v1::MODE_SSP;
  }
  return v1::MODE_UNSPECIFIED;
}

v1::Encoding ToProto(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFloat32:
      return v1::ENCODING_FLOAT32;
    case Encoding::kBfloat16:
      return v1::ENCODING_BFLOAT16;
    case Encoding::kFloat16:
      return v1::ENCODING_FLOAT16;
  }
  return v1::ENCODING_FLOAT32;
}

absl::Status SetWorkQueue(const Job& job, v1::Job& proto) {
  if (!job.work_queue.has_value()) {
    if (job.elastic) return absl::InvalidArgumentError("Job::elastic needs a work_queue");
    return absl::OkStatus();
  }
  const WorkQueue& queue = *job.work_queue;
  if (queue.examples < 1 || queue.batch_size < 1 || queue.epochs < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Job::work_queue: ", queue.examples, " examples, batch size ", queue.batch_size, ", ",
                     queue.epochs, " epochs, must be above 0, above 0, and not negative"));
  }
  if (queue.items_ahead < 1 || queue.items_ahead > kMaxItemsAhead) {
    return absl::InvalidArgumentError(absl::StrCat("WorkQueue::items_ahead: ", queue.items_ahead,
                                                   ", must be in [1, ", kMaxItemsAhead, "]"));
  }
  proto.set_dynamic_sharding(true);
  proto.set_num_examples(queue.examples);
  proto.set_batch_size(queue.batch_size);
  proto.set_epochs(queue.epochs);
  proto.set_work_items_ahead(queue.items_ahead);
  proto.set_seed(queue.seed);
  proto.set_elastic(job.elastic);
  proto.set_min_workers(job.min_workers);
  proto.set_max_workers(job.max_workers);
  return absl::OkStatus();
}

absl::Status SetGroups(const Job& job, v1::Job& proto) {
  for (const Variable& variable : job.variables) {
    if (variable.group < 0 || variable.group >= kMaxGroups) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", variable.name, "': group ", variable.group,
                                                     ", must be in [0, ", kMaxGroups, ")"));
    }
    while (proto.variable_groups_size() <= variable.group) proto.add_variable_groups();
    proto.mutable_variable_groups(variable.group)->add_variables(variable.name);
  }
  return absl::OkStatus();
}

absl::Status CheckWorkers(const Job& job, const SessionOptions& options) {
  if (job.workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("Job::workers: ", job.workers, ", must be above 0"));
  }
  if (options.worker < 0 || (!job.elastic && options.worker >= job.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("SessionOptions::worker: ", options.worker, ", must be in [0, ", job.workers, ")"));
  }
  const std::string numbered = absl::StrCat("worker/", options.worker);
  if (!job.elastic && !options.task.empty() && options.task != numbered) {
    return absl::InvalidArgumentError(absl::StrCat("SessionOptions::task: '", options.task, "', must be '",
                                                   numbered, "' unless Job::elastic is set"));
  }
  if (job.gradients_per_round < 0 || job.gradients_per_round > job.workers) {
    return absl::InvalidArgumentError(absl::StrCat("Job::gradients_per_round: ", job.gradients_per_round,
                                                   ", must be in [0, ", job.workers, "]"));
  }
  if (job.mode == Mode::kBoundedStaleness && job.max_staleness < 0) {
    return absl::InvalidArgumentError("Job::max_staleness: required with kBoundedStaleness");
  }
  if (job.updates < 0) {
    return absl::InvalidArgumentError(absl::StrCat("Job::updates: ", job.updates, ", must not be negative"));
  }
  return absl::OkStatus();
}

}  // namespace

Status FromAbsl(const absl::Status& status) {
  if (status.ok()) return Status();
  return Status(static_cast<StatusCode>(status.code()), std::string(status.message()));
}

absl::Status ToAbsl(const Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

absl::StatusOr<std::vector<net::VariableInfo>> VariablesOf(const Job& job) {
  if (job.variables.empty()) return absl::InvalidArgumentError("Job::variables: there are none");
  std::vector<net::VariableInfo> variables;
  std::set<std::string> names;
  int64_t offset = 0;
  for (const Variable& variable : job.variables) {
    if (variable.name.empty()) return absl::InvalidArgumentError("Job::variables: a name is empty");
    if (!names.insert(variable.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("Job::variables: two are named '", variable.name, "'"));
    }
    const auto shape = Shape::FromUntrusted(variable.shape);
    if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("variable '", variable.name, "'"));
    const std::optional<float> momentum = variable.moving_average_momentum;
    if (momentum.has_value() && !(*momentum >= 0 && *momentum <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable '", variable.name, "': moving_average_momentum ", *momentum, ", must be in [0, 1]"));
    }
    variables.push_back({variable.name, *shape, offset, momentum});
    offset += shape->num_elements();
  }
  return variables;
}

v1::OptimizerConfig ToProto(const Optimizer& optimizer) {
  v1::OptimizerConfig proto;
  proto.set_name(optimizer.name);
  proto.mutable_hyperparameters()->insert(optimizer.hyperparameters.begin(), optimizer.hyperparameters.end());
  if (!optimizer.schedule.has_value()) return proto;
  v1::LearningRateSchedule& schedule = *proto.mutable_learning_rate_schedule();
  schedule.set_name(optimizer.schedule->name);
  schedule.mutable_numbers()->insert(optimizer.schedule->numbers.begin(), optimizer.schedule->numbers.end());
  schedule.mutable_boundaries()->Add(optimizer.schedule->boundaries.begin(),
                                     optimizer.schedule->boundaries.end());
  schedule.mutable_values()->Add(optimizer.schedule->values.begin(), optimizer.schedule->values.end());
  return proto;
}

std::string DescribeModel(const Job& job) {
  auto variables = nlohmann::json::array();
  for (const Variable& variable : job.variables) {
    nlohmann::json described = {{"name", variable.name}, {"shape", variable.shape}};
    if (variable.moving_average_momentum.has_value()) {
      described["moving_average_momentum"] = *variable.moving_average_momentum;
    }
    variables.push_back(std::move(described));
  }
  // Names that are not UTF-8 are refused when the job's checkpoints are written.
  return nlohmann::json{{"variables", variables}}.dump(-1, ' ', false,
                                                       nlohmann::json::error_handler_t::replace);
}

std::string ModelHash(const Job& job) {
  return Sha256Hex(DescribeModel(job));
}

absl::StatusOr<v1::Job> ToProto(const Job& job, const SessionOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckWorkers(job, options));
  v1::Job proto;
  proto.set_mode(ToProto(job.mode));
  proto.set_model_sha256(ModelHash(job));
  for (int worker = 0; worker < job.workers; ++worker) proto.add_workers(absl::StrCat("worker/", worker));
  for (const std::string& server : options.connect.servers) proto.add_servers(server);
  if (job.mode == Mode::kSync && !job.work_queue.has_value()) {
    proto.set_replicas_to_aggregate(job.gradients_per_round > 0 ? job.gradients_per_round : job.workers);
  }
  if (job.max_staleness >= 0) proto.set_max_staleness(job.max_staleness);
  proto.set_final_version(job.updates);
  *proto.mutable_optimizer() = ToProto(job.optimizer);
  proto.set_lease_seconds(std::chrono::duration<double>(job.lease).count());
  proto.set_wait_for_return(job.wait_for_lost_workers);
  proto.set_restorable(!options.checkpoint_directory.empty());
  proto.set_ps_replication(job.backups);
  proto.set_wire(ToProto(job.encoding));
  proto.set_skip_empty_updates(job.skip_empty_updates);
  CAIRN_RETURN_IF_ERROR(SetGroups(job, proto));
  CAIRN_RETURN_IF_ERROR(AddTables(job, proto));
  CAIRN_RETURN_IF_ERROR(SetWorkQueue(job, proto));
  return proto;
}

}  // namespace cairn::api
