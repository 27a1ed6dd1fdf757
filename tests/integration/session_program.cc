// A worker that session_test.py starts and kills: a training loop on the public headers, with checkpoints and
// slow steps.
//
//   session_program SERVERS WORKER WORKERS sync|async CHECKPOINT_DIRECTORY STEP_MILLISECONDS
//
// Minimises (w - 3)^2 from w = 0 in 200 updates. Prints "step N" after every tenth step of its own, and the result.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "cairn/session.h"

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  cairn::SessionOptions options = {.worker = std::atoi(argv[2])};
  std::istringstream servers(argv[1]);
  for (std::string server; std::getline(servers, server, ',');) options.connect.servers.push_back(server);
  options.connect.log = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  options.checkpoint_directory = argv[5];
  options.checkpoint_every_updates = 20;
  cairn::Job job = {.variables = {{.name = "w", .shape = {2}}},
                    .optimizer = {.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}}},
                    .workers = std::atoi(argv[3]),
                    .updates = 200,
                    .lease = std::chrono::seconds(2)};
  if (argv[4] == std::string("async")) job.mode = cairn::Mode::kAsync;
  const auto pause = std::chrono::milliseconds(std::atoi(argv[6]));

  std::unique_ptr<cairn::Session> session;
  cairn::Status status = cairn::Session::Open(job, options, &session);
  int steps = 0;
  if (status.ok()) {
    status = session->Run([&](cairn::Session& s) -> cairn::Status {
      std::this_thread::sleep_for(pause);
      if (cairn::Status begun = s.BeginStep(1); !begun.ok()) return begun;
      for (size_t i = 0; i < 2; ++i) s.gradients()[i] = 2 * (s.values()[i] - 3);
      if (cairn::Status finished = s.FinishStep(); !finished.ok()) return finished;
      if (++steps % 10 == 0) std::printf("step %d\n", steps);
      std::fflush(stdout);
      return cairn::Status();
    });
  }
  if (status.ok()) std::printf("w = %.3f %.3f\n", session->values()[0], session->values()[1]);
  if (!status.ok()) std::fprintf(stderr, "session_program: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
