#include "worker/task/evaluator_task.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/flags.h"
#include "common/memory/out_of_memory.h"
#include "common/system/standard_streams.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/train_dir.h"
#include "worker/embedding/table_replica.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/data_record.h"
#include "worker/export/weights.h"
#include "worker/inputs/length_buckets.h"
#include "worker/options/job.h"
#include "worker/tensorboard/event_file.h"
#include "worker/training/evaluator.h"

namespace cairn::worker {
namespace {

constexpr auto kLook = std::chrono::milliseconds(200);

// The state of one evaluator task: the checkpoints that it has seen, and the results that it has written.
class CheckpointEvaluator {
 public:
  explicit CheckpointEvaluator(const EvaluatorTask& task)
      : task_(task),
        evaluator_(DataOf(task.inputs.data), task.inputs.trained(), WithTables(task), task.inputs.metrics,
                   BucketsOf(task.inputs)) {}

  // Evaluates all new checkpoints, by increasing step.
  absl::Status EvaluateNew() {
    CAIRN_ASSIGN_OR_RETURN(const auto directories, ListCheckpoints(task_.options.train_dir));
    for (const std::string& directory : directories) {
      if (StepOf(directory.substr(directory.rfind('/') + 1)) <= last_step_.value_or(-1)) continue;
      const auto checkpoint = Checkpoint::Open(directory);
      if (absl::IsNotFound(checkpoint.status())) continue;  // removed since; newer checkpoints exist
      CAIRN_RETURN_IF_ERROR(checkpoint.status());
      if (!last_step_.has_value()) CAIRN_RETURN_IF_ERROR(CheckData());
      CAIRN_RETURN_IF_ERROR(Annotate(Evaluate(*checkpoint), directory));
    }
    return absl::OkStatus();
  }

  std::optional<int64_t> last_step() const { return last_step_; }
  // Whether the checkpoint of the job's last step has been evaluated.
  bool done() const { return done_; }

 private:
  // The replica to evaluate: of the whole model.
  nn::Replica& WithTables(const EvaluatorTask& task) {
    if (!task.inputs.tables.has_value()) return task.replica;
    return with_tables_.emplace(*task.inputs.tables, task.replica, rows_, TableReplica::Options{});
  }

  static const data::Dataset& DataOf(const data::TrainingData& data) {
    return data.validation != nullptr ? *data.validation : *data.train;
  }

  static const data::LengthBuckets* BucketsOf(const Inputs& inputs) {
    return PointerTo(inputs.data.validation != nullptr ? inputs.validation_buckets : inputs.train_buckets);
  }

  // The job may have started, and recorded how it reads its data, after this task read its own data.
  absl::Status CheckData() const {
    CAIRN_ASSIGN_OR_RETURN(const DataRecord trained, ReadDataRecord(task_.options.train_dir));
    const absl::Status same = CheckSameData(trained, task_.inputs.record);
    return same.ok() ? same : absl::FailedPreconditionError(same.message());
  }

  absl::Status Evaluate(const Checkpoint& checkpoint) {
    const nn::Model& model = task_.inputs.trained();
    std::vector<float> parameters(static_cast<size_t>(model.num_parameters()));
    std::vector<TrainedTable> tables;
    CAIRN_RETURN_IF_ERROR(CatchOutOfMemory(checkpoint.directory(), [&]() -> absl::Status {
      if (task_.inputs.tables.has_value()) {
        CAIRN_ASSIGN_OR_RETURN(tables, LoadPlannedTables(checkpoint, *task_.inputs.tables));
      }
      return FillParameters(checkpoint, model, absl::MakeSpan(parameters));
    }));
    rows_.Use(tables);
    CAIRN_ASSIGN_OR_RETURN(const nn::MetricValues metrics, evaluator_.Run(parameters, task_.stop));
    const int64_t step = checkpoint.run().global_step;
    CAIRN_RETURN_IF_ERROR(Print(step, metrics));
    CAIRN_RETURN_IF_ERROR(WriteEvents(step, metrics));
    last_step_ = step;
    done_ = checkpoint.run().final_version > 0 && step >= checkpoint.run().final_version;
    return absl::OkStatus();
  }

  absl::Status Print(int64_t step, const nn::MetricValues& metrics) const {
    if (LogFormatOf(task_.options.log_format) == LogFormat::kJson) {
      nlohmann::ordered_json event = {{"event", "evaluation"}, {"step", step}};
      for (const auto& [name, value] : metrics) event["metrics"][name] = value;
      std::printf("%s\n", event.dump().c_str());
    } else {
      std::string line = absl::StrCat("step ", step);
      for (const auto& [name, value] : metrics) absl::StrAppendFormat(&line, " - %s: %.4f", name, value);
      std::printf("%s\n", line.c_str());
    }
    return FlushStandardOutput();
  }

  absl::Status WriteEvents(int64_t step, const nn::MetricValues& metrics) {
    if (events_ == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(events_, EventFile::Create(absl::StrCat(task_.options.train_dir, "/eval")));
    }
    for (const auto& [name, value] : metrics) {
      events_->AddScalar(absl::StrCat("evaluation_", name, "_vs_iterations"), step, value);
    }
    return events_->Flush();
  }

  const EvaluatorTask& task_;
  StoredRows rows_{{}};                      // of the checkpoint that is being evaluated
  std::optional<TableReplica> with_tables_;  // if the model has tables
  Evaluator evaluator_;
  std::unique_ptr<EventFile> events_;
  std::optional<int64_t> last_step_;
  bool done_ = false;
};

}  // namespace

absl::Status RunEvaluator(const EvaluatorTask& task) {
  CheckpointEvaluator evaluator(task);
  const std::string& train_dir = task.options.train_dir;
  TimePoint last_new = std::chrono::steady_clock::now();
  while (!evaluator.done()) {
    const std::optional<int64_t> before = evaluator.last_step();
    const absl::Status status = evaluator.EvaluateNew();
    if (task.stop()) return absl::CancelledError("stopped by a signal");
    CAIRN_RETURN_IF_ERROR(status);
    const TimePoint now = std::chrono::steady_clock::now();
    if (evaluator.last_step() != before) {
      last_new = now;
      continue;
    }
    if (now - last_new > task.patience) {
      const std::string waited =
          absl::StrCat(" checkpoint in '", train_dir, "' within ", ToSeconds(task.patience), " s");
      if (!before.has_value()) return absl::DeadlineExceededError(absl::StrCat("no", waited));
      LogWarning("no new", waited, ": step ", *before, " was the last");
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(kLook);
  }
  LogInfo("the job's last step has been evaluated");
  return absl::OkStatus();
}

}  // namespace cairn::worker
