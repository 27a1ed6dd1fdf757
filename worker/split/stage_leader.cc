#include "worker/split/stage_leader.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "worker/split/stage_messages.h"

namespace cairn::split {
namespace {

// The number of attempts at a batch before its failure is returned.
constexpr int kMaxTries = 10;
// How long a stage worker has to learn that training is over.
constexpr auto kToHear = std::chrono::seconds(5);

}  // namespace

StageLeader::StageLeader(Options options, const nn::Pipeline::Options& pipeline)
    : connect_timeout_(options.connect_timeout),
      step_timeout_(options.step_timeout),
      model_(pipeline.model),
      objective_(pipeline.objective),
      mailbox_([this](const v1::StageTensorName& tensor, absl::Span<const float> values) {
        SendValues(tensor, values);
      }),
      done_(options.links.stage_workers.size()),
      links_(std::move(options.links), *this) {}

absl::StatusOr<std::unique_ptr<StageLeader>> StageLeader::Create(Options options,
                                                                 nn::Pipeline::Options pipeline) {
  const Duration beat_every = BeatInterval(options.links.lease);
  std::unique_ptr<StageLeader> leader(new StageLeader(std::move(options), pipeline));
  pipeline.remote_stages = &leader->mailbox_;
  CAIRN_ASSIGN_OR_RETURN(leader->pipeline_, nn::Pipeline::Create(pipeline));
  leader->mailbox_.SetPipeline(leader->pipeline_.get());
  leader->FindNeeds();
  leader->beats_ = std::make_unique<Ticker>("split-beat", beat_every, [raw = leader.get()] { raw->Beat(); });
  return leader;
}

StageLeader::~StageLeader() {
  beats_ = nullptr;
  links_.Drop();
}

absl::Status StageLeader::Reach() {
  return links_.Reach(SteadyNow() + connect_timeout_);
}

void StageLeader::FindNeeds() {
  needs_.resize(links_.size());
  const nn::PipelineShape& shape = pipeline_->shape();
  for (size_t stage = 0; stage < shape.stages.size(); ++stage) {
    if (shape.task_of_stage[stage] == 0) continue;
    Needs& needs = needs_[static_cast<size_t>(shape.task_of_stage[stage]) - 1];
    needs.last = needs.last || shape.stages[stage].last;
    needs.variables.insert(needs.variables.end(), shape.stages[stage].variables.begin(),
                           shape.stages[stage].variables.end());
    for (const int input : shape.stages[stage].inputs) {
      if (input < 0) needs.inputs.push_back(nn::Node::OfModelInput(input));
    }
  }
  for (Needs& needs : needs_) {
    for (std::vector<int>* list : {&needs.variables, &needs.inputs}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }
}

// --- A batch ---

absl::StatusOr<nn::BatchResult> StageLeader::ForwardBackward(
    absl::Span<const float> parameters, const nn::BatchView& batch, absl::Span<float> gradients,
    absl::FunctionRef<void(int variable)> on_gradient) {
  CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
  CAIRN_RETURN_IF_ERROR(CheckGradients(model_, batch, gradients));
  if (batch.examples == 0) {
    GiveNoGradients(model_, gradients, on_gradient);
    return nn::BatchResult();
  }
  return RunUntilDone({parameters, batch, gradients, /*training=*/true}, on_gradient);
}

absl::StatusOr<nn::BatchResult> StageLeader::Evaluate(absl::Span<const float> parameters,
                                                      const nn::BatchView& batch) {
  CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
  if (batch.examples == 0) return nn::BatchResult();
  return RunUntilDone({parameters, batch, {}, /*training=*/false}, [](int) {});
}

absl::StatusOr<nn::BatchResult> StageLeader::RunUntilDone(const Batch& batch,
                                                          absl::FunctionRef<void(int variable)> on_gradient) {
  std::set<int> told;
  const auto first = [&](int variable) {
    told.insert(variable);
    on_gradient(variable);
  };
  auto result = RunOnce(batch, first);
  for (int tries = 1; absl::IsAborted(result.status()) && tries < kMaxTries; ++tries) {
    links_.Say(absl::StrCat(result.status().message(),
                            "; the batch will be repeated once that worker responds again"));
    Batch again = batch;
    if (batch.training) {
      // Gradients that were reported as final may be on their way to the servers, and must not change.
      if (again_.size() == 0) again_ = AlignedBuffer(model_.num_parameters());
      again.gradients = again_.span();
    }
    result = RunOnce(again, [&](int variable) {
      if (!told.insert(variable).second) return;
      const nn::ModelVariable& held = model_.variables()[static_cast<size_t>(variable)];
      std::copy_n(again_.data() + held.offset, held.shape.num_elements(),
                  batch.gradients.data() + held.offset);
      on_gradient(variable);
    });
  }
  return result;
}

absl::StatusOr<nn::BatchResult> StageLeader::RunOnce(const Batch& batch,
                                                     absl::FunctionRef<void(int variable)> on_gradient) {
  call_step_ = step_ == nullptr ? 0 : step_();
  links_.SetStep(call_step_);
  CAIRN_RETURN_IF_ERROR(Reach());
  const auto floats = static_cast<size_t>(batch.view.examples * model_.output_shape().num_elements());
  if (static_cast<int64_t>(floats) > outputs_.size()) outputs_ = AlignedBuffer(static_cast<int64_t>(floats));
  mailbox_.Begin(batch.view.examples);
  Expect(batch);
  const nn::Pipeline::Call call = {.parameters = batch.parameters,
                                   .inputs = batch.view.inputs,
                                   .batch = batch.view,
                                   .gradients = batch.gradients,
                                   .training = batch.training,
                                   .outputs = outputs_.data(),
                                   .others = static_cast<int>(links_.size())};
  const auto ours = pipeline_->Run(call, [&] { BeginCall(batch); }, on_gradient);
  nn::Pipeline::Result theirs;
  {
    MutexLock lock(mutex_);
    in_call_ = false;
    theirs = theirs_;
  }
  if (!ours.ok()) links_.Drop();  // ends transfers to and from this process's memory
  incoming_.Clear();
  CAIRN_RETURN_IF_ERROR(ours.status());
  nn::BatchResult result = {.sums = ours->sums, .outputs = absl::MakeConstSpan(outputs_.data(), floats)};
  result.sums += theirs.sums;
  result.sums.loss += (ours->penalty + theirs.penalty) * static_cast<double>(batch.view.examples);
  return result;
}

void StageLeader::BeginCall(const Batch& batch) {
  mailbox_.Started();
  {
    MutexLock lock(mutex_);
    in_call_ = true;
    call_began_ = SteadyNow();
    theirs_ = {};
    done_.assign(done_.size(), false);
  }
  // From here on, OnLost() fails the call if a link is lost.
  if (const absl::Status lost = links_.lost(); !lost.ok()) pipeline_->Fail(lost);
  for (size_t stage_worker = 0; stage_worker < links_.size(); ++stage_worker) Give(stage_worker, batch);
}

void StageLeader::Expect(const Batch& batch) {
  incoming_.Clear();
  for (const Needs& needs : needs_) {
    if (needs.last) {
      incoming_.Expect(Named(v1::SPLIT_KIND_OUTPUT), outputs_.data(),
                       batch.view.examples * model_.output_shape().num_elements());
    }
    if (!batch.training) continue;
    for (const int variable : needs.variables) {
      const nn::ModelVariable& held = model_.variables()[static_cast<size_t>(variable)];
      incoming_.Expect(Named(v1::SPLIT_KIND_GRADIENT, variable), batch.gradients.data() + held.offset,
                       held.shape.num_elements());
    }
  }
}

// Sends only those values that the stage worker does not have yet.
void StageLeader::Give(size_t stage_worker, const Batch& batch) {
  const std::shared_ptr<Link> link = links_.Get(stage_worker);
  const Needs& needs = needs_[stage_worker];
  struct Given {
    v1::StageTensorName tensor;
    absl::Span<const float> values;
    std::shared_ptr<const void> owner;
  };
  std::vector<Given> all;
  for (const int variable : needs.variables) {
    const nn::ModelVariable& held = model_.variables()[static_cast<size_t>(variable)];
    const auto elements = static_cast<size_t>(held.shape.num_elements());
    const absl::Span<const float> now = batch.parameters.subspan(static_cast<size_t>(held.offset), elements);
    std::shared_ptr<float[]>& known = link->known[variable];
    if (known != nullptr && std::memcmp(known.get(), now.data(), elements * sizeof(float)) == 0) continue;
    // The previous values can be overwritten: the stage worker has computed a batch with them, so it has
    // read them.
    if (known == nullptr) known.reset(new float[elements]);
    std::copy(now.begin(), now.end(), known.get());
    all.push_back({Named(v1::SPLIT_KIND_VALUE, variable), {known.get(), elements}, known});
  }
  const auto give = [&](v1::StageTensorName tensor, absl::Span<const float> values) {
    if (values.empty()) return;
    const std::shared_ptr<const float[]> copy = CopyOf(values);
    all.push_back({std::move(tensor), {copy.get(), values.size()}, copy});
  };
  for (const int input : needs.inputs) {
    const auto index = static_cast<size_t>(input);
    const TensorView& values = batch.view.inputs[index];
    const int64_t floats = PackedFloats(model_.inputs()[index], batch.view.examples, RaggedValues(values));
    const std::shared_ptr<const float[]> copy = PackInput(values, floats);
    all.push_back({Named(v1::SPLIT_KIND_INPUT, input), {copy.get(), static_cast<size_t>(floats)}, copy});
  }
  if (needs.last) {
    give(Named(v1::SPLIT_KIND_TARGETS), batch.view.targets);
    give(Named(v1::SPLIT_KIND_WEIGHTS), batch.view.weights);
  }

  v1::SplitHeader header;
  v1::SplitBegin& begin = *header.mutable_begin();
  begin.set_step(call_step_);
  begin.set_training(batch.training);
  begin.set_examples(batch.view.examples);
  begin.set_seed(batch.view.seed);
  begin.set_first_example(batch.view.first_example);
  begin.set_weighted(!batch.view.weights.empty());
  for (const TensorView& input : batch.view.inputs) begin.add_ragged_values(RaggedValues(input));
  int64_t preceding = 0;
  for (const Given& given : all) preceding += static_cast<int64_t>(given.values.size());
  begin.set_preceding(preceding);
  SendHeader(link->stream(), header);
  for (Given& given : all) {
    given.tensor.set_to(static_cast<int>(stage_worker) + 1);
    SendTensor(link->stream(), std::move(given.tensor), given.values, given.owner);
  }
}

void StageLeader::SendValues(const v1::StageTensorName& tensor, absl::Span<const float> values) {
  const std::shared_ptr<Link> to = links_.Get(static_cast<size_t>(tensor.to()) - 1);
  const std::shared_ptr<const float[]> copy = CopyOf(values);
  if (to != nullptr) SendTensor(to->stream(), tensor, {copy.get(), values.size()}, copy);
}

// --- Frames from stage workers ---

absl::Status StageLeader::OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload) {
  switch (header.split().kind_case()) {
    case v1::SplitHeader::kTensor:
      return OnTensor(header.split().tensor(), payload);
    case v1::SplitHeader::kDone:
      OnDone(link, header.split().done());
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("split: unexpected frame of a stage worker, of kind ",
                                                     header.kind_case(), ".", header.split().kind_case()));
  }
}

absl::Status StageLeader::OnTensor(const v1::StageTensorName& tensor, net::Payload payload) {
  if (tensor.to() > 0) {  // the fragment is for another stage worker
    if (tensor.to() > static_cast<int>(links_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("split: unexpected tensor fragment for task ", tensor.to()));
    }
    const auto floats = static_cast<size_t>(net::PayloadBytes(payload)) / sizeof(float);
    const std::shared_ptr<float[]> copy(new float[floats + 1]);
    CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, copy.get()));
    const std::shared_ptr<Link> to = links_.Get(static_cast<size_t>(tensor.to()) - 1);
    v1::RingHeader header;
    *header.mutable_split()->mutable_tensor() = tensor;
    const absl::Span<const float> values(copy.get(), floats);
    if (to != nullptr) to->stream().Send(header, {&values, 1}, copy);
    return absl::OkStatus();
  }
  switch (tensor.kind()) {
    case v1::SPLIT_KIND_ACTIVATION:
    case v1::SPLIT_KIND_ACTIVATION_GRADIENT:
      return mailbox_.OnTensor(tensor, payload);
    default: {
      CAIRN_ASSIGN_OR_RETURN(const Incoming::Taken taken, incoming_.Take(tensor, payload));
      if (taken.whole && tensor.kind() == v1::SPLIT_KIND_GRADIENT) pipeline_->Announce(tensor.index());
      return absl::OkStatus();
    }
  }
}

void StageLeader::OnDone(Link& link, const v1::SplitDone& done) {
  if (done.code() != 0) {
    links_.Lose(link, Annotate(allreduce::SentStatus(done.code(), done.message()),
                               absl::StrCat(links_.name(link.stage_worker()), links_.InStep())));
    return;
  }
  {
    MutexLock lock(mutex_);
    if (done_[link.stage_worker()]) return;
    done_[link.stage_worker()] = true;
    theirs_.sums += {.loss = done.loss(),
                     .examples = done.examples(),
                     .of_outputs = {done.losses_of_outputs().begin(), done.losses_of_outputs().end()}};
    theirs_.penalty += done.penalty();
  }
  pipeline_->OtherDone();
}

void StageLeader::OnLost(const Link& link, const absl::Status& why) {
  bool missed;
  {
    MutexLock lock(mutex_);
    missed = in_call_ && !done_[link.stage_worker()];
  }
  if (missed) pipeline_->Fail(why);
}

void StageLeader::Beat() {
  links_.Beat();
  absl::Status late;
  if (links_.stopped()) late = absl::CancelledError("stopped by a signal");
  {
    MutexLock lock(mutex_);
    const bool overdue = in_call_ && SteadyNow() - call_began_ > step_timeout_;
    for (size_t stage_worker = 0; overdue && stage_worker < done_.size(); ++stage_worker) {
      if (done_[stage_worker]) continue;
      late = absl::DeadlineExceededError(absl::StrCat(links_.name(stage_worker),
                                                      " has not finished its stages of a batch within ",
                                                      ToSeconds(step_timeout_), " s"));
    }
  }
  if (!late.ok()) pipeline_->Fail(late);
}

// --- The end ---

void StageLeader::End(const absl::Status& status) {
  const bool again = ExitCodeOf(status) == ExitCode::kRetryable || absl::IsCancelled(status);
  if (!again) {
    if (status.ok()) {
      const absl::Status reached = links_.Reach(SteadyNow() + kToHear);
      if (!reached.ok()) {
        links_.Say(absl::StrCat("not all stage workers could be notified that training is over: ",
                                reached.message()));
      }
    }
    v1::SplitHeader header;
    header.mutable_end()->set_code(static_cast<int>(status.code()));
    header.mutable_end()->set_message(std::string(status.message()));
    links_.SendLast(header, kToHear);
  }
  links_.Drop();
}

}  // namespace cairn::split
