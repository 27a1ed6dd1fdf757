#include "worker/split/stage_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "worker/split/stage_messages.h"
#include "worker/split/stage_worker_inlet.h"

namespace cairn::split {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);
// How often a waiting call checks whether to end.
constexpr auto kLookEvery = std::chrono::milliseconds(200);

void SendDone(allreduce::RingStream& leader, const absl::StatusOr<nn::Pipeline::Result>& result) {
  v1::SplitHeader header;
  v1::SplitDone& done = *header.mutable_done();
  if (result.ok()) {
    done.set_loss(result->sums.loss);
    done.set_examples(result->sums.examples);
    done.mutable_losses_of_outputs()->Add(result->sums.of_outputs.begin(), result->sums.of_outputs.end());
    done.set_penalty(result->penalty);
  } else {
    done.set_code(static_cast<int>(result.status().code()));
    done.set_message(std::string(result.status().message()));
  }
  SendHeader(leader, header);
}

}  // namespace

StageWorker::StageWorker(Options options, const nn::Pipeline::Options& pipeline)
    : options_(std::move(options)),
      model_(pipeline.model),
      objective_(pipeline.objective),
      mailbox_([this](const v1::StageTensorName& tensor, absl::Span<const float> values) {
        Send(tensor, values);
      }),
      inputs_(pipeline.model.inputs().size()),
      heard_(SteadyNow()),
      alone_since_(SteadyNow()),
      last_beat_(SteadyNow()) {
  const auto elements = static_cast<size_t>(std::max<int64_t>(1, model_.num_parameters()));
  values_.reset(static_cast<float*>(std::calloc(elements, sizeof(float))));
  gradients_.reset(static_cast<float*>(std::calloc(elements, sizeof(float))));
  CAIRN_CHECK(values_ != nullptr && gradients_ != nullptr);
}

absl::StatusOr<std::unique_ptr<StageWorker>> StageWorker::Create(Options options,
                                                                 nn::Pipeline::Options pipeline) {
  std::unique_ptr<StageWorker> stage_worker(new StageWorker(std::move(options), pipeline));
  pipeline.remote_stages = &stage_worker->mailbox_;
  CAIRN_ASSIGN_OR_RETURN(stage_worker->pipeline_, nn::Pipeline::Create(pipeline));
  stage_worker->mailbox_.SetPipeline(stage_worker->pipeline_.get());
  stage_worker->FindNeeds();
  stage_worker->beats_ = std::make_unique<Ticker>("split-beat", BeatInterval(stage_worker->options_.lease),
                                                  [raw = stage_worker.get()] { raw->Beat(); });
  return stage_worker;
}

StageWorker::~StageWorker() {
  beats_ = nullptr;
}

void StageWorker::FindNeeds() {
  const nn::PipelineShape& shape = pipeline_->shape();
  for (size_t stage = 0; stage < shape.stages.size(); ++stage) {
    if (!shape.is_here(static_cast<int>(stage))) continue;
    last_ = last_ || shape.stages[stage].last;
    variables_.insert(variables_.end(), shape.stages[stage].variables.begin(),
                      shape.stages[stage].variables.end());
    for (const int input : shape.stages[stage].inputs) {
      if (input < 0) reads_.push_back(nn::Node::OfModelInput(input));
    }
  }
  for (std::vector<int>* list : {&variables_, &reads_}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
}

absl::Span<float> StageWorker::ValuesOf(const Flat& flat, int variable) const {
  const nn::ModelVariable& held = model_.variables()[static_cast<size_t>(variable)];
  return {flat.get() + held.offset, static_cast<size_t>(held.shape.num_elements())};
}

absl::Status StageWorker::Serve() {
  for (;;) {
    auto begin = AwaitBatch();
    {
      MutexLock lock(mutex_);
      if (over_.has_value()) return *over_;
    }
    if (!begin.ok()) return begin.status();
    RunBatch(*begin);
  }
}

absl::StatusOr<v1::SplitBegin> StageWorker::AwaitBatch() {
  MutexLock lock(mutex_);
  TimePoint log_at = SteadyNow() + kLogEvery;
  while (!over_.has_value()) {
    if (options_.stop && options_.stop()) return absl::CancelledError("stopped by a signal");
    if (begun_.has_value() && preceding_ == 0) {
      running_ = true;
      return *begun_;
    }
    const TimePoint now = SteadyNow();
    if (link_ != nullptr) {
      log_at = now + kLogEvery;
    } else if (now > alone_since_ + options_.connect_timeout) {
      return absl::UnavailableError(absl::StrCat("timed out waiting for ", options_.leader_name,
                                                 ", the stage leader of this group, to connect"));
    } else if (now >= log_at) {
      Say(absl::StrCat("waiting for ", options_.leader_name, ", the stage leader of this group, to connect"));
      log_at += kLogEvery;
    }
    changed_.WaitUntil(mutex_, now + kLookEvery);
  }
  return absl::CancelledError("training is over");
}

void StageWorker::RunBatch(const v1::SplitBegin& begin) {
  std::shared_ptr<allreduce::RingStream> leader;
  {
    MutexLock lock(mutex_);
    leader = link_;
  }
  if (options_.trace != nullptr && begin.training()) options_.trace->AtStep(begin.step());
  const auto result = Run(begin, leader);
  if (options_.faults != nullptr && begin.training()) options_.faults->Pass("computed");
  if (result.ok() && last_ && leader != nullptr) SendOutputs(*leader, begin.examples());
  {
    MutexLock lock(mutex_);
    running_ = false;
    begun_.reset();
  }
  if (leader != nullptr) SendDone(*leader, result);
}

absl::StatusOr<nn::Pipeline::Result> StageWorker::Run(const v1::SplitBegin& begin,
                                                      const std::shared_ptr<allreduce::RingStream>& leader) {
  TensorViews inputs(inputs_.size());
  for (const int read : reads_) {
    const auto index = static_cast<size_t>(read);
    CAIRN_ASSIGN_OR_RETURN(inputs[index], UnpackInput(model_.inputs()[index], begin.examples(),
                                                      RaggedValues(begin, read), inputs_[index].data()));
  }
  return pipeline_->Run(
      CallOf(begin, inputs),
      [&] {
        mailbox_.Started();
        bool lost;
        {
          MutexLock lock(mutex_);
          lost = leader == nullptr || link_ != leader;
        }
        if (lost) pipeline_->Fail(absl::AbortedError("the stage leader is lost"));
      },
      [&](int variable) {
        v1::StageTensorName tensor;
        tensor.set_kind(v1::SPLIT_KIND_GRADIENT);
        tensor.set_index(variable);
        const absl::Span<const float> gradient = ValuesOf(gradients_, variable);
        const auto copy = CopyOf(gradient);
        if (leader != nullptr) SendTensor(*leader, tensor, {copy.get(), gradient.size()}, copy);
        if (options_.faults != nullptr) options_.faults->Pass("announced");
      });
}

nn::Pipeline::Call StageWorker::CallOf(const v1::SplitBegin& begin, absl::Span<const TensorView> inputs) {
  const auto floats = static_cast<size_t>(model_.num_parameters());
  const auto examples = static_cast<size_t>(begin.examples());
  const size_t targets = last_ ? static_cast<size_t>(objective_.TargetsPerExample(model_)) : 0;
  return {.parameters = {values_.get(), floats},
          .inputs = inputs,
          .batch = {.examples = begin.examples(),
                    .targets = targets_.span().subspan(0, examples * targets),
                    .weights = weights_.span().subspan(0, last_ && begin.weighted() ? examples : 0),
                    .seed = begin.seed(),
                    .first_example = begin.first_example()},
          .gradients = {gradients_.get(), begin.training() ? floats : 0},
          .training = begin.training(),
          .outputs = outputs_.data()};
}

void StageWorker::SendOutputs(allreduce::RingStream& leader, int64_t examples) {
  v1::StageTensorName tensor;
  tensor.set_kind(v1::SPLIT_KIND_OUTPUT);
  const auto floats = static_cast<size_t>(examples * model_.output_shape().num_elements());
  const auto copy = CopyOf(outputs_.span().subspan(0, floats));
  SendTensor(leader, tensor, {copy.get(), floats}, copy);
}

void StageWorker::Send(const v1::StageTensorName& tensor, absl::Span<const float> values) {
  std::shared_ptr<allreduce::RingStream> leader;
  {
    MutexLock lock(mutex_);
    leader = link_;
  }
  if (leader == nullptr) return;
  const auto copy = CopyOf(values);
  SendTensor(*leader, tensor, {copy.get(), values.size()}, copy);
}

void StageWorker::Beat() {
  std::shared_ptr<allreduce::RingStream> leader;
  bool silent = false;
  {
    MutexLock lock(mutex_);
    const TimePoint now = SteadyNow();
    // After a suspension of this process, frames that arrived meanwhile have not been read yet. The stage
    // leader is not treated as silent then.
    if (now - std::exchange(last_beat_, now) > options_.lease / 2) heard_ = now;
    leader = link_;
    silent = now - heard_ > options_.lease;
  }
  if (leader == nullptr) return;
  SendBeat(*leader);
  if (!silent) return;
  const std::string why = absl::StrCat("not heard from for ", ToSeconds(options_.lease), " s");
  Lose(leader.get(), why);
  leader->End(absl::AbortedError(why));
}

}  // namespace cairn::split
