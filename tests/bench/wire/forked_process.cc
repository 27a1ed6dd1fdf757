#include "tests/bench/wire/forked_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "common/net/data_channel/socket/socket.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::bench {

void Forker::Report(std::string_view words) const {
  if (write(words_, words.data(), words.size()) != static_cast<ssize_t>(words.size())) _exit(1);
}

void Forker::ExitWhenItIsDone() const {
  char end;
  (void)!read(lifeline_, &end, 1);
  _exit(0);
}

absl::StatusOr<std::unique_ptr<ForkedProcess>> ForkedProcess::Start(
    absl::FunctionRef<void(const Forker&)> serve) {
  int words[2], lifeline[2];
  if (pipe(words) != 0 || pipe(lifeline) != 0) return net::SystemFailure("pipe");
  const pid_t pid = fork();
  if (pid < 0) return net::SystemFailure("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(words[0]);
    close(lifeline[1]);
    net::TuneMalloc();
    serve(Forker(words[1], lifeline[0]));
    _exit(1);
  }
  close(words[1]);
  close(lifeline[0]);
  std::unique_ptr<ForkedProcess> process(new ForkedProcess(pid, lifeline[1]));
  std::array<char, 4096> room;
  const ssize_t got = read(words[0], room.data(), room.size());
  close(words[0]);
  if (got <= 0) return absl::InternalError("a process for the other side did not start");
  process->told_.assign(room.data(), static_cast<size_t>(got));
  return process;
}

ForkedProcess::~ForkedProcess() {
  close(lifeline_);
  kill(pid_, SIGKILL);  // processes that were forked later also hold the lifeline open
  waitpid(pid_, nullptr, 0);
}

}  // namespace cairn::bench
