#include "worker/export/in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status SystemFault(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// The current size of this process's address space.
int64_t AddressSpaceBytes() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

void Limit(int resource, int64_t most) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(most));
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// Runs in the child: writes the error of `work`, if any, to `report`, and never returns.
[[noreturn]] void Work(int report, const ChildLimits& limits, absl::FunctionRef<absl::Status()> work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM, SIGXCPU})
    std::signal(signal, SIG_DFL);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDERR_FILENO);  // hides the allocator's message when it aborts
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_CPU, limits.seconds);
  Limit(RLIMIT_AS, AddressSpaceBytes() + limits.memory_bytes);
  const absl::Status status = work();
  std::string text;
  if (!status.ok()) text = absl::StrCat(static_cast<int>(status.code()), " ", status.message());
  absl::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = write(report, left.data(), left.size());
    if (written < 0) break;
    left.remove_prefix(static_cast<size_t>(written));
  }
  _exit(left.empty() ? 0 : 1);
}

// Reads until the other end is closed; false after the deadline.
bool ReadAll(int from, Clock::time_point deadline, std::string& text) {
  constexpr size_t kLongest = 1 << 20;
  for (char part[4096];;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || text.size() > kLongest) return false;
    pollfd wait = {.fd = from, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    const ssize_t got = read(from, part, sizeof(part));
    if (got == 0) return true;
    if (got > 0) text.append(part, static_cast<size_t>(got));
  }
}

// Waits for the child and sets `how` it ended. Kills it at the deadline and returns false.
bool Reap(pid_t child, Clock::time_point deadline, int& how) {
  for (;;) {
    const pid_t reaped = waitpid(child, &how, WNOHANG);
    if (reaped == child) return true;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  return false;
}

absl::Status DamagedFile(absl::string_view how) {
  return absl::InvalidArgumentError(absl::StrCat("damaged: reading it ", how));
}

// Parses "3 which argument", a status code and a message. A damaged child may have written anything.
absl::Status ReadReport(absl::string_view report) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(report, absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code) || code <= 0 ||
      code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return DamagedFile("gives no valid result");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

// Zeroed memory that this process and its children share.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes)
      : bytes_(std::max<size_t>(bytes, 1)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  bool ok() const { return data_ != MAP_FAILED; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  const size_t bytes_;
  void* const data_;
};

// Runs `work` in a child process and returns its status.
absl::Status RunStatusInChild(const ChildLimits& limits, absl::FunctionRef<absl::Status()> work) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return SystemFault("pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[0]);
    Work(pipe_ends[1], limits, work);
  }
  close(pipe_ends[1]);
  const absl::Cleanup close_pipe = [&] { close(pipe_ends[0]); };
  if (child < 0) return SystemFault("fork");

  std::string report;
  const auto deadline = Clock::now() + std::chrono::seconds(limits.seconds);
  const bool told = ReadAll(pipe_ends[0], deadline, report);
  int how = 0;
  const bool ended = Reap(child, told ? deadline : Clock::now(), how);
  if (!told || !ended || (WIFSIGNALED(how) && WTERMSIG(how) == SIGXCPU)) {
    return DamagedFile(absl::StrCat("does not end within ", limits.seconds, " s"));
  }
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) return DamagedFile("crashes");
  return report.empty() ? absl::OkStatus() : ReadReport(report);
}

}  // namespace

absl::StatusOr<std::vector<float>> RunInChild(size_t values, const ChildLimits& limits,
                                              absl::FunctionRef<absl::Status(absl::Span<float>)> work) {
  const SharedMemory memory(values * sizeof(float));
  if (!memory.ok()) return SystemFault("memory");
  const absl::Span<float> span(memory.as<float>(), values);
  CAIRN_RETURN_IF_ERROR(RunStatusInChild(limits, [&] { return work(span); }));
  return std::vector<float>(span.begin(), span.end());
}

absl::StatusOr<std::string> ReadTextInChild(size_t max_bytes, const ChildLimits& limits,
                                            absl::FunctionRef<absl::StatusOr<std::string>()> work) {
  const SharedMemory memory(sizeof(uint64_t) + max_bytes);  // the text's length, and the text
  if (!memory.ok()) return SystemFault("memory");
  char* const text = memory.as<char>() + sizeof(uint64_t);
  CAIRN_RETURN_IF_ERROR(RunStatusInChild(limits, [&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const std::string read, work());
    if (read.size() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a text of ", read.size(), " bytes exceeds the limit of ", max_bytes));
    }
    std::memcpy(text, read.data(), read.size());
    *memory.as<uint64_t>() = read.size();
    return absl::OkStatus();
  }));
  return std::string(text, std::min<uint64_t>(*memory.as<uint64_t>(), max_bytes));
}

}  // namespace cairn::worker
