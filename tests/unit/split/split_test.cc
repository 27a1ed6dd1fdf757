// Stage leaders and stage workers in one process, each with a device of its own, connected by this host's
// sockets; compared with the same model on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <utility>

#include "common/core/mutex.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/thread.h"
#include "tests/support/data_sockets.h"
#include "tests/unit/nn/several_devices.h"
#include "worker/peer/data_link.h"
#include "worker/split/stage_leader.h"
#include "worker/split/stage_worker.h"

namespace cairn::split {
namespace {

using nn::Examples;
using nn::ExpectNear;
using nn::ExpectSameStep;
using nn::RunStep;
using nn::Train;
using ::testing::HasSubstr;

// The address of a stage worker, while it exists.
struct Slot {
  Mutex mutex;
  allreduce::RingHost* host = nullptr;
};

// Carries handshakes within the process.
class Greeter final : public allreduce::RingPeer {
 public:
  explicit Greeter(Slot& slot) : slot_(slot) {}
  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds) override {
    MutexLock lock(slot_.mutex);
    if (slot_.host == nullptr) return absl::UnavailableError("no host is reachable");
    return slot_.host->OnGreet(request, response);
  }
  // The socket is closed, which ends the stream.
  std::unique_ptr<allreduce::RingStream> Open(const v1::GreetResponse&,
                                              allreduce::RingHandler& handler) override {
    struct Dead final : allreduce::RingStream {
      void Send(const v1::RingHeader&, net::FloatSpans, const std::shared_ptr<const void>&) override {}
      void End(const absl::Status&) override {}
    };
    handler.OnClosed(absl::UnavailableError("no host is reachable"));
    return std::make_unique<Dead>();
  }

 private:
  Slot& slot_;
};

// A model whose layers are assigned to the tasks in turn.
struct Divided {
  Divided(const nn::Model& model, int tasks) {
    std::map<std::string, int> known;
    for (const nn::Node& node : model.nodes()) {
      const auto count = static_cast<int>(known.size());
      const auto [place, fresh] = known.try_emplace(node.layer->name(), count % tasks);
      places.location_of.push_back(place->second);
    }
    for (int task = 0; task < tasks; ++task) places.task_of.push_back(task);
    places.device_of.assign(static_cast<size_t>(tasks), -1);
  }
  nn::PipelineLocations On(int task) const {
    nn::PipelineLocations on = places;
    on.device_of[static_cast<size_t>(task)] = 0;
    return on;
  }
  nn::PipelineLocations places;
};

v1::SplitPlan Plan(const std::string& model) {
  v1::SplitPlan plan;
  plan.set_model_sha256(model);
  return plan;
}

class StageWorkerProcess {
 public:
  StageWorkerProcess(Slot& slot, const nn::Model& model, const Divided& divided, int task,
                     int64_t micro_batches)
      : slot_(slot), devices_("n") {
    static std::atomic<uint64_t> lives{100};
    const uint64_t life = ++lives;
    net::DataListeners listeners = test::Listeners();
    stage_worker_ = StageWorker::Create({.worker = task,
                                         .leader = 0,
                                         .leader_name = "worker/0 at here:0",
                                         .incarnation = life,
                                         .data_endpoint = listeners.address(),
                                         .plan = Plan("m"),
                                         .stop = [this] { return stop_.load(); }},
                                        {.model = model,
                                         .objective = nn::kLogits,
                                         .threads = devices_.pointers(),
                                         .locations = divided.On(task),
                                         .micro_batches = micro_batches})
                        .value();
    service_ = std::make_unique<allreduce::DataRingService>(*stage_worker_, std::move(listeners), life);
    {
      MutexLock lock(slot_.mutex);
      slot_.host = stage_worker_.get();
    }
    thread_ = Thread("stage-worker", [this] { served_ = stage_worker_->Serve(); });
  }
  ~StageWorkerProcess() {
    stop_ = true;
    thread_.Join();
    Cut();
  }
  // Acts as if the stage worker were killed.
  void Cut() {
    {
      MutexLock lock(slot_.mutex);
      if (slot_.host == stage_worker_.get()) slot_.host = nullptr;
    }
    service_.reset();
  }
  absl::Status Join() {
    thread_.Join();
    return served_;
  }

 private:
  Slot& slot_;
  nn::Devices devices_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<StageWorker> stage_worker_;
  std::unique_ptr<allreduce::DataRingService> service_;
  absl::Status served_ = absl::UnknownError("it has not ended");
  Thread thread_;
};

// A single group.
class Group {
 public:
  Group(const nn::Model& model, int tasks, int64_t micro_batches, Duration limit = std::chrono::seconds(60))
      : model_(model),
        divided_(model, tasks),
        micro_batches_(micro_batches),
        slots_(static_cast<size_t>(tasks)),
        devices_("n") {
    StageLeader::Options options = {.links = {.incarnation = 1, .plan = Plan("m"), .stage_workers = {}},
                                    .connect_timeout = limit};
    for (int task = 1; task < tasks; ++task) {
      options.links.stage_workers.push_back(
          {.name = absl::StrCat("worker/", task, " at there:", task),
           .worker = task,
           .peer = allreduce::MakeDataPeer(std::make_unique<Greeter>(slots_[static_cast<size_t>(task)]),
                                           "127.0.0.1:1", net::Transport::kShm, nullptr)});
    }
    leader_ = StageLeader::Create(std::move(options), {.model = model,
                                                       .objective = nn::kLogits,
                                                       .threads = devices_.pointers(),
                                                       .locations = divided_.On(0),
                                                       .micro_batches = micro_batches})
                  .value();
    stage_workers_.resize(static_cast<size_t>(tasks));
  }
  void Start(int task) {
    const auto index = static_cast<size_t>(task);
    stage_workers_[index] =
        std::make_unique<StageWorkerProcess>(slots_[index], model_, divided_, task, micro_batches_);
  }
  Group& StartAll() {
    for (int task = 1; task < static_cast<int>(stage_workers_.size()); ++task) Start(task);
    return *this;
  }
  StageLeader& leader() { return *leader_; }
  StageWorkerProcess& stage_worker(int task) { return *stage_workers_[static_cast<size_t>(task)]; }
  Slot& slot(int task) { return slots_[static_cast<size_t>(task)]; }

 private:
  const nn::Model& model_;
  const Divided divided_;
  const int64_t micro_batches_;
  std::vector<Slot> slots_;
  nn::Devices devices_;
  std::vector<std::unique_ptr<StageWorkerProcess>> stage_workers_;
  std::unique_ptr<StageLeader> leader_;
};

class SplitTest : public testing::Test {
 protected:
  void Load(const char* json) {
    model_ = std::make_unique<nn::Model>(nn::Model::FromJson(json, "m").value());
  }
  std::unique_ptr<nn::Replica> Alone() { return nn::Replica::Create(*model_, nn::kLogits, *device_).value(); }

  std::unique_ptr<nn::Model> model_;
  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
};

TEST_F(SplitTest, AStepEqualsThatOfOneDevice) {
  for (const char* json : {nn::kSmallCnn, nn::kMlp, nn::kGraph}) {
    Load(json);
    const auto alone = Alone();
    const std::vector<float> parameters = model_->InitialParameters(1);
    for (const int tasks : {2, 3}) {
      for (const int64_t micro_batches : {1, 3}) {
        Group group(*model_, tasks, micro_batches);
        group.StartAll();
        for (const int64_t count : {12, 7, 1, 12}) {
          const Examples examples(*model_, count);
          ExpectSameStep(RunStep(group.leader(), *model_, parameters, examples.Batch()),
                         RunStep(*alone, *model_, parameters, examples.Batch()), 1e-6f);
          ExpectSameStep(RunStep(group.leader(), *model_, parameters, examples.Weighted()),
                         RunStep(*alone, *model_, parameters, examples.Weighted()), 1e-6f);
          const auto expected = alone->Evaluate(parameters, examples.Batch());
          const auto got = group.leader().Evaluate(parameters, examples.Batch());
          ASSERT_TRUE(got.ok() && expected.ok()) << got.status();
          EXPECT_NEAR(got->sums.loss, expected->sums.loss, 1e-5);
          ExpectNear(got->outputs, expected->outputs, 1e-6f, "output");
        }
      }
    }
  }
}

// The layers are on the tasks 0, 1, 0, 1, 0 in turn, so that the stage worker reads the ragged input.
constexpr char kRagged[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 3]}, "inbound_nodes": []},
    {"class_name": "InputLayer", "name": "ids", "inbound_nodes": [],
     "config": {"name": "ids", "batch_shape": [null, null], "dtype": "int64", "ragged": true}},
    {"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 2}, "inbound_nodes": [[["x", 0, 0, {}]]]},
    {"class_name": "Embedding", "name": "e", "config": {"name": "e", "input_dim": 9, "output_dim": 4},
     "inbound_nodes": [[["ids", 0, 0, {}]]]},
    {"class_name": "GlobalAveragePooling1D", "name": "mean", "config": {"name": "mean"},
     "inbound_nodes": [[["e", 0, 0, {}]]]},
    {"class_name": "Concatenate", "name": "all", "config": {"name": "all"},
     "inbound_nodes": [[["d", 0, 0, {}], ["mean", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "last", "config": {"name": "last", "units": 3},
     "inbound_nodes": [[["all", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0], ["ids", 0, 0]], "output_layers": [["last", 0, 0]]}})";

TEST_F(SplitTest, AStageWorkerTakesRaggedInputs) {
  Load(kRagged);
  const auto alone = Alone();
  const std::vector<float> parameters = model_->InitialParameters(1);
  for (const int64_t micro_batches : {1, 3}) {
    Group group(*model_, 2, micro_batches);
    group.StartAll();
    for (const int64_t longest : {3, 500, 2}) {
      const std::vector<float> x = {1, 2, 3, -1, 0, 1, 0.5f, 2, 1, 0, 0, 1}, labels = {0, 1, 2, 1};
      const std::vector<int64_t> splits = {0, longest, longest + 1, 2 * longest + 1, 2 * longest + 3};
      std::vector<int64_t> ids(static_cast<size_t>(splits.back()));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * i % 9);
      nn::BatchView batch = {
          .examples = 4,
          .inputs = {TensorView::OfFloats({4, 3}, x),
                     {DType::kInt64, {splits.back()}, ids.data(), absl::MakeConstSpan(splits)}},
          .targets = labels};
      ExpectSameStep(RunStep(group.leader(), *model_, parameters, batch),
                     RunStep(*alone, *model_, parameters, batch), 1e-6f);
      const nn::BatchView part = batch.Part(1, 2);  // its row splits begin elsewhere
      ExpectSameStep(RunStep(group.leader(), *model_, parameters, part),
                     RunStep(*alone, *model_, parameters, part), 1e-6f);
    }
  }
}

TEST_F(SplitTest, OneMicroBatchGivesTheBitsOfOneDevice) {
  for (const char* json : {nn::kMlp, nn::kGraph, nn::kNormalized}) {
    Load(json);
    const Examples examples(*model_, 12);
    Group group(*model_, 2, 1);
    group.StartAll();
    EXPECT_EQ(Train(group.leader(), *model_, examples, 5), Train(*Alone(), *model_, examples, 5));
  }
}

TEST_F(SplitTest, TwentyStepsGiveTheValuesOfOneDevice) {
  Load(nn::kSmallCnn);
  const Examples examples(*model_, 12);
  Group group(*model_, 2, 4);
  group.StartAll();
  ExpectNear(Train(group.leader(), *model_, examples, 20), Train(*Alone(), *model_, examples, 20), 1e-5f,
             "parameter");
}

TEST_F(SplitTest, ABatchIsRepeatedWhenALostStageWorkerReturns) {
  Load(nn::kMlp);
  Group group(*model_, 2, 3);
  group.StartAll();
  const Examples examples(*model_, 12);
  const std::vector<float> parameters = model_->InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  std::vector<int> announced(model_->variables().size());
  bool cut = false;
  const auto result = group.leader().ForwardBackward(parameters, examples.Batch(), absl::MakeSpan(gradients),
                                                     [&](int variable) {
                                                       ++announced[static_cast<size_t>(variable)];
                                                       if (std::exchange(cut, true)) return;
                                                       group.stage_worker(1).Cut();
                                                       group.Start(1);
                                                     });
  ASSERT_TRUE(result.ok()) << result.status();
  const nn::StepResult alone = RunStep(*Alone(), *model_, parameters, examples.Batch());
  ExpectNear(gradients, alone.gradients, 1e-6f, "gradient");
  EXPECT_THAT(announced, testing::Each(1));
}

TEST_F(SplitTest, AnErrorOfAStageWorkerNamesItAndTheNextStepWorks) {
  Load(nn::kMlp);  // the end of the model is on task 1
  Group group(*model_, 2, 3);
  group.StartAll();
  Examples examples(*model_, 6);
  const std::vector<float> parameters = model_->InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  examples.labels()[3] = 9;
  const auto status =
      group.leader()
          .ForwardBackward(parameters, examples.Batch(), absl::MakeSpan(gradients), [](int) {})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 at there:1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("from example 2 on: label 9 of example 1"));
  examples.labels()[3] = 0;
  ExpectSameStep(RunStep(group.leader(), *model_, parameters, examples.Batch()),
                 RunStep(*Alone(), *model_, parameters, examples.Batch()), 1e-6f);
}

TEST_F(SplitTest, AStageWorkerOfAnotherModelIsRefused) {
  Load(nn::kMlp);
  Group group(*model_, 2, 1);
  group.StartAll();
  Slot& slot = group.slot(1);
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_to(1);
  *request.mutable_plan() = Plan("another");
  v1::GreetResponse response;
  const absl::Status status = slot.host->OnGreet(request, &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("its model is different"));
  *request.mutable_plan() = Plan("m");
  request.set_to(3);
  EXPECT_THAT(std::string(slot.host->OnGreet(request, &response).message()),
              HasSubstr("it is worker 1 of the group of worker 0, but was greeted as worker 3 by worker 0"));
}

TEST_F(SplitTest, AStageWorkerThatIsNotReachedInTimeIsNamed) {
  Load(nn::kMlp);
  Group group(*model_, 2, 1, std::chrono::milliseconds(1));
  const absl::Status status = group.leader().Reach();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 at there:1 was not reached in time: "));
}

TEST_F(SplitTest, StageWorkersEndWithTheStatusOfTheStageLeader) {
  Load(nn::kMlp);
  for (const absl::Status& end : {absl::OkStatus(), absl::InvalidArgumentError("the loss is nan")}) {
    Group group(*model_, 3, 1);
    group.StartAll();
    ASSERT_TRUE(group.leader().Reach().ok());
    group.leader().End(end);
    EXPECT_EQ(group.stage_worker(1).Join().code(), end.code());
    EXPECT_EQ(group.stage_worker(2).Join().code(), end.code());
  }
}

}  // namespace
}  // namespace cairn::split
