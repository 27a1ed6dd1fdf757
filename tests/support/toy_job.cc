#include "tests/support/toy_job.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/system/thread.h"
#include "gtest/gtest.h"

namespace cairn::test {

ToyJob::ToyJob(int workers, std::vector<ToyVariable> toy_variables) {
  job.set_run_id("toy");
  job.set_mode(v1::MODE_SYNC);
  job.set_model_sha256("0123456789abcdef");
  for (int worker = 0; worker < workers; ++worker) job.add_workers(TaskName(worker));
  job.set_replicas_to_aggregate(workers);
  job.mutable_optimizer()->set_name("SGD");
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
  job.set_batch_size(1);
  job.set_epochs(1);
  job.set_lease_seconds(30);
  for (ToyVariable& variable : toy_variables) {
    CAIRN_CHECK(variable.shape.num_elements() == static_cast<int64_t>(variable.initial.size()));
    variables.push_back({variable.name, variable.shape, static_cast<int64_t>(initial.size())});
    initial.insert(initial.end(), variable.initial.begin(), variable.initial.end());
  }
}

std::string TaskName(int worker) {
  return absl::StrCat("worker/", worker);
}

ToyWorker::ToyWorker(InProcessCluster& cluster, const ToyJob& toy, int worker)
    : num_variables_(static_cast<int>(toy.variables.size())),
      client_(client::Connection::Open(
                  cluster.Stubs(TaskName(worker)),
                  {.task = TaskName(worker),
                   .cluster_hash = 0,
                   .connect_timeout = std::chrono::seconds(10),
                   .say = nullptr,
                   .stop = nullptr,
                   .stub_factory = toy.job.ps_replication() > 0 ? cluster.StubFactoryFor(TaskName(worker))
                                                                : client::ConnectionOptions::StubFactory()})
                  .value(),
              toy.variables,
              {.worker = worker,
               .task = TaskName(worker),
               .step_timeout = toy.step_timeout,
               .split_bytes = toy.split_bytes,
               .make_partitioner = toy.make_partitioner}) {}

absl::StatusOr<client::StepResult> ToyWorker::Push(absl::Span<const float> gradient, int64_t examples) {
  client::Step& step = client_.steps().BeginStep(gradient, examples);
  for (int variable = num_variables_ - 1; variable >= 0; --variable) step.Announce(variable);
  std::vector<float> coming;
  const absl::Span<const float> values = step.ComingParameters();
  int here = 0;
  while (here < num_variables_ && step.AwaitComing(here)) ++here;
  if (here == num_variables_) coming.assign(values.begin(), values.end());
  auto result = step.Finish();
  if (result.ok() && result->as_awaited && !coming.empty()) {
    ++steps_as_awaited_;
    EXPECT_TRUE(coming == Values()) << "what came was not what the step left";
  }
  return result;
}

v1::Job JobFor(const InProcessCluster& cluster, const ToyJob& toy) {
  v1::Job job = toy.job;
  for (int server = 0; server < cluster.num_servers(); ++server) {
    job.add_servers(absl::StrCat("host", server, ":2222"));
  }
  return job;
}

ToyWorkers StartAll(InProcessCluster& cluster, const ToyJob& toy) {
  const v1::Job job = JobFor(cluster, toy);
  ToyWorkers workers;
  for (int worker = 0; worker < job.workers_size(); ++worker) {
    workers.push_back(std::make_unique<ToyWorker>(cluster, toy, worker));
    client::TrainingClient& client = workers.back()->client();
    if (worker == 0) {
      client::FirstValues first(toy.initial);
      EXPECT_EQ(client.Initialise(job, first), absl::OkStatus());
    }
    EXPECT_EQ(client.WaitReady(job), absl::OkStatus());
    EXPECT_EQ(client.Join(), absl::OkStatus());
  }
  return workers;
}

std::vector<absl::StatusOr<client::StepResult>> PushAll(ToyWorkers& workers,
                                                        const std::vector<std::vector<float>>& gradients,
                                                        const std::vector<int64_t>& examples) {
  std::vector<absl::StatusOr<client::StepResult>> results(workers.size());
  InParallel(static_cast<int>(workers.size()), [&](int worker) {
    const auto w = static_cast<size_t>(worker);
    results[w] = workers[w]->Push(gradients[w], examples.empty() ? 1 : examples[w]);
  });
  return results;
}

void InParallel(int count, absl::FunctionRef<void(int)> body) {
  std::vector<Thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(absl::StrCat("test-", i), [i, body] { body(i); });
}

}  // namespace cairn::test
