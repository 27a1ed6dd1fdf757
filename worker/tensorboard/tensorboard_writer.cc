#include "worker/tensorboard/tensorboard_writer.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "worker/tensorboard/graph.h"
#include "worker/tensorboard/histogram.h"

namespace cairn::worker {
namespace {

constexpr char kPlugin[] = "hparams";
constexpr char kValidation[] = "val_";

// Whether an event's step is a version rather than an epoch.
bool CountsSteps(const tensorboard::v1::Event& event) {
  if (event.summary().value_size() == 0) return false;
  const std::string& tag = event.summary().value(0).tag();
  return absl::StartsWith(tag, "batch_") || absl::StartsWith(tag, "evaluation_");
}

// The plugin reads only the metadata, but requires a tensor.
tensorboard::v1::Event SessionEvent(const std::string& tag, const tensorboard::v1::Hparams& content) {
  tensorboard::v1::Event event;
  auto& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  auto& data = *value.mutable_metadata()->mutable_plugin_data();
  data.set_plugin_name(kPlugin);
  data.set_content(content.SerializeAsString());
  value.mutable_tensor()->set_dtype(1);
  value.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(0);
  return event;
}

tensorboard::v1::Event SessionStart(const Hyperparameters& hyperparameters) {
  tensorboard::v1::Hparams content;
  auto& start = *content.mutable_session_start_info();
  start.set_start_time_secs(UnixSeconds());
  for (const auto& [name, value] : hyperparameters) {
    auto& written = (*start.mutable_hparams())[name];
    if (const auto* number = std::get_if<double>(&value)) written.set_number_value(*number);
    if (const auto* text = std::get_if<std::string>(&value)) written.set_string_value(*text);
    if (const auto* flag = std::get_if<bool>(&value)) written.set_bool_value(*flag);
  }
  return SessionEvent("_hparams_/session_start_info", content);
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(Options options, const nn::Model& model, Hyperparameters hyperparameters,
                                     const Clock& clock)
    : options_(std::move(options)),
      model_(model),
      hyperparameters_(std::move(hyperparameters)),
      clock_(clock) {}

void TensorBoardWriter::Begin(int64_t epoch, int64_t version, int64_t examples) {
  if (std::exchange(begun_, true)) return;
  epoch_examples_ = examples;
  Note(TryBegin(epoch, version));
}

absl::Status TensorBoardWriter::TryBegin(int64_t epoch, int64_t version) {
  const auto keep = [&](const tensorboard::v1::Event& event) {
    if (event.what_case() != tensorboard::v1::Event::kSummary) return false;  // the graph is written again
    return CountsSteps(event) ? event.step() <= version : event.step() < epoch;
  };
  CAIRN_RETURN_IF_ERROR(KeepEvents(options_.directory + "/train", keep));
  CAIRN_RETURN_IF_ERROR(KeepEvents(options_.directory + "/validation", keep));
  CAIRN_RETURN_IF_ERROR(KeepEvents(options_.directory, [](const tensorboard::v1::Event&) { return false; }));

  CAIRN_ASSIGN_OR_RETURN(session_, EventFile::Create(options_.directory));
  session_->Add(SessionStart(hyperparameters_));
  CAIRN_ASSIGN_OR_RETURN(train_, EventFile::Create(options_.directory + "/train"));
  tensorboard::v1::Event graph;
  graph.set_graph_def(GraphOf(model_).SerializeAsString());
  train_->Add(std::move(graph));
  CAIRN_ASSIGN_OR_RETURN(log_, CsvLog::Open(log_path(), epoch));
  last_step_ = epoch_version_ = version;
  last_step_at_ = epoch_at_ = clock_.Now();
  return Flush();
}

void TensorBoardWriter::OnStep(int64_t version, const NamedValues& metrics) {
  if (failed_) return;
  const TimePoint now = clock_.Now();
  for (const auto& [name, value] : metrics) {
    train_->AddScalar(absl::StrCat("batch_", name), version, value);
  }
  train_->AddScalar("batch_steps_per_second", version,
                    static_cast<double>(version - last_step_) / ToSeconds(now - last_step_at_));
  last_step_ = version;
  last_step_at_ = now;
  Note(Flush());
}

void TensorBoardWriter::OnEpochEnd(const Epoch& epoch) {
  if (!failed_) Note(TryEpochEnd(epoch));
}

absl::Status TensorBoardWriter::TryEpochEnd(const Epoch& epoch) {
  const TimePoint now = clock_.Now();
  const double seconds = ToSeconds(now - epoch_at_);
  std::map<std::string, double> row;
  for (const auto& [name, value] : epoch.metrics) {
    row[name] = value;
    absl::string_view metric = name;
    if (!absl::ConsumePrefix(&metric, kValidation)) {
      if (metric != "learning_rate") train_->AddScalar(absl::StrCat("epoch_", metric), epoch.epoch, value);
      continue;
    }
    CAIRN_RETURN_IF_ERROR(AddValidationScalar(metric, value, epoch.epoch, epoch.version));
  }
  const auto add = [&](const char* tag, double value) { train_->AddScalar(tag, epoch.epoch, value); };
  if (epoch.learning_rate.has_value()) add("epoch_learning_rate", *epoch.learning_rate);
  add("epoch_steps_per_second", static_cast<double>(epoch.version - epoch_version_) / seconds);
  add("epoch_examples_per_second", static_cast<double>(epoch.examples - epoch_examples_) / seconds);
  add("epoch_gradients_stale", static_cast<double>(epoch.gradients_stale));
  add("epoch_gradients_rejected", static_cast<double>(epoch.gradients_rejected));
  add("epoch_staleness_max", static_cast<double>(epoch.staleness_max));
  if (options_.histogram_freq > 0 && epoch.epoch % options_.histogram_freq == 0) AddHistograms(epoch);
  epoch_version_ = epoch.version;
  epoch_examples_ = epoch.examples;
  epoch_at_ = now;
  CAIRN_RETURN_IF_ERROR(Flush());
  return log_->Add(epoch.epoch, row);
}

absl::Status TensorBoardWriter::AddValidationScalar(absl::string_view name, double value, int64_t epoch,
                                                    int64_t version) {
  if (validation_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(validation_, EventFile::Create(options_.directory + "/validation"));
  }
  validation_->AddScalar(absl::StrCat("epoch_", name), epoch, value);
  validation_->AddScalar(absl::StrCat("evaluation_", name, "_vs_iterations"), version, value);
  return absl::OkStatus();
}

bool TensorBoardWriter::LacksValidation(int64_t epoch) const {
  if (!FileExists(options_.directory + "/train")) return false;  // this is the first process of the run
  const auto log = CsvLog::Open(log_path(), epoch + 1);
  return log.ok() && log->Lacks(epoch, kValidation);
}

void TensorBoardWriter::AddValidation(int64_t epoch, int64_t version, const NamedValues& metrics) {
  if (!failed_) Note(TryAddValidation(epoch, version, metrics));
}

absl::Status TensorBoardWriter::TryAddValidation(int64_t epoch, int64_t version, const NamedValues& metrics) {
  std::map<std::string, double> row;
  for (const auto& [name, value] : metrics) {
    row[absl::StrCat(kValidation, name)] = value;
    CAIRN_RETURN_IF_ERROR(AddValidationScalar(name, value, epoch, version));
  }
  CAIRN_RETURN_IF_ERROR(validation_->Flush());
  validation_.reset();  // closes the file, because Begin() rewrites the files
  if (log_.has_value()) return log_->Complete(epoch, row);
  CAIRN_ASSIGN_OR_RETURN(CsvLog log, CsvLog::Open(log_path(), epoch + 1));
  return log.Complete(epoch, row);
}

void TensorBoardWriter::AddHistograms(const Epoch& epoch) {
  const auto add = [&](const std::string& tag, absl::Span<const float> values) {
    tensorboard::v1::Event event;
    event.set_step(epoch.epoch);
    auto& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    *value.mutable_histo() = HistogramOf(values);
    train_->Add(std::move(event));
  };
  for (const nn::ModelVariable& variable : model_.variables()) {
    const auto begin = static_cast<size_t>(variable.offset);
    const auto count = static_cast<size_t>(variable.shape.num_elements());
    add(absl::StrCat(variable.name, "/histogram"), epoch.parameters.subspan(begin, count));
    if (variable.trainable() && !epoch.last_gradients.empty()) {
      add(absl::StrCat(variable.name, "/gradient_histogram"), epoch.last_gradients.subspan(begin, count));
    }
  }
}

void TensorBoardWriter::End(bool success) {
  if (!begun_ || failed_) return;
  tensorboard::v1::Hparams content;
  content.mutable_session_end_info()->set_status(success ? 1 : 2);
  content.mutable_session_end_info()->set_end_time_secs(UnixSeconds());
  session_->Add(SessionEvent("_hparams_/session_end_info", content));
  Note(Flush());
}

absl::Status TensorBoardWriter::Flush() {
  for (const auto* file : {&session_, &train_, &validation_}) {
    if (*file != nullptr) CAIRN_RETURN_IF_ERROR((*file)->Flush());
  }
  return absl::OkStatus();
}

void TensorBoardWriter::Note(const absl::Status& status) {
  if (status.ok()) return;
  failed_ = true;
  LogWarning("TensorBoard files and log.csv are not written any more: ", status.message());
}

}  // namespace cairn::worker
