#include "common/system/process_start.h"

#include <execinfo.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/system/limits.h"

namespace cairn {
namespace {

// An environment variable that a library reads.
struct Foreign {
  const char* name;
  const char* effect;
  bool before_main = false;  // the library reads it before main begins
};

// The variables that are removed. Not in the table: variables that only change speed, logs or name
// resolution, and those whose effect is clearly intended (CUDA_VISIBLE_DEVICES, ONEDNN_MAX_CPU_ISA,
// GRPC_SSL_CIPHER_SUITES). Proxy variables need no entry: Cairn's channels ignore them (net::MakeChannel).
constexpr Foreign kForeign[] = {
    {"OMP_THREAD_LIMIT", "with fewer threads than --threads, sums would be split differently", true},
    {"OMP_DYNAMIC", "the number of threads, and so how sums are split, would change with the load", true},
    {"OMP_MAX_ACTIVE_LEVELS", "loops would run on one thread", true},
    {"DNNL_DEFAULT_FPMATH_MODE", "float32 would be computed in less precision"},
    {"ONEDNN_DEFAULT_FPMATH_MODE", "float32 would be computed in less precision"},
    {"NVIDIA_TF32_OVERRIDE", "it would override --precision"},
    {"GRPC_POLL_STRATEGY", "with a strategy other than the default, connections may fail"},
    {"GRPC_EXPERIMENTS", "unfinished code of gRPC would run"},
    {"GRPC_ABORT_ON_LEAKS", "a finished job would end in SIGABRT"},
};

// The names that have been removed, separated by commas: kept in the environment for TakeRemarks(), because
// the program may execute itself again before that call.
constexpr char kRemoved[] = "CAIRN_REMOVED_VARIABLES";

std::vector<std::string> Removed() {
  const char* const names = std::getenv(kRemoved);
  return names == nullptr ? std::vector<std::string>() : absl::StrSplit(names, ',');
}

void CleanEnvironment(char** argv) {
  std::vector<std::string> removed = Removed();
  bool too_late = false;
  for (const Foreign& variable : kForeign) {
    if (std::getenv(variable.name) == nullptr) continue;
    unsetenv(variable.name);
    removed.push_back(variable.name);
    too_late = too_late || variable.before_main;
  }
  if (removed.empty()) return;
  setenv(kRemoved, absl::StrJoin(removed, ",").c_str(), 1);
  if (too_late) execv("/proc/self/exe", argv);  // if that fails, the program continues with its old settings
}

// Address space of a task without a job, in addition to its code and the stacks of its threads.
constexpr int64_t kMinBufferBytes = int64_t{64} << 20;

std::terminate_handler default_terminate = nullptr;

// Reports an uncaught lack of threads or memory on any thread. The default handler gets any other exception.
[[noreturn]] void OnTerminate() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      EndProcess(absl::StrCat("out of memory; ", ThreadLimits()));
    } catch (const std::system_error& error) {
      if (error.code().value() == EAGAIN || error.code().value() == ENOMEM) {
        EndProcess(absl::StrCat("the system cannot start a thread: ", error.what(), "; ", ThreadLimits()));
      }
    } catch (...) {
    }
  }
  if (default_terminate != nullptr) default_terminate();
  std::abort();
}

// The line for OnAbort(), which may not allocate memory.
std::string* last_words = nullptr;

// A library that aborts does not report why. Under a limit of address space, a lack of address space is the
// likely reason, so the line names only this reason.
extern "C" void OnAbort(int /*signal*/) {
  (void)!write(STDERR_FILENO, last_words->data(), last_words->size());
  std::_Exit(static_cast<int>(ExitCode::kFailure));
}

void PrepareForLimitedAddressSpace() {
  if (!AddressSpaceLimit().has_value()) return;
  mallopt(M_ARENA_MAX, 1);
  // glibc loads libgcc_s when it first unwinds a stack, and aborts if there is no memory for it.
  void* frame = nullptr;
  backtrace(&frame, 1);
  last_words =
      new std::string(absl::StrCat(program_invocation_short_name,
                                   ": aborted, probably for lack of address space; ", ThreadLimits(), "\n"));
  std::signal(SIGABRT, OnAbort);
}

}  // namespace

void PrepareProcess(char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);
  PrepareForLimitedAddressSpace();
  default_terminate = std::set_terminate(OnTerminate);
  CleanEnvironment(argv);
}

std::vector<std::string> TakeRemarks() {
  const std::vector<std::string> removed = Removed();
  unsetenv(kRemoved);
  std::vector<std::string> remarks;
  for (const Foreign& variable : kForeign) {
    if (!absl::c_linear_search(removed, variable.name)) continue;
    remarks.push_back(
        absl::StrCat("ignored the environment variable ", variable.name, " (", variable.effect, ")"));
  }
  return remarks;
}

absl::Status EnterLimits(const ProcessNeeds& needs, int64_t job_files) {
  for (const std::string& remark : TakeRemarks()) LogWarning(remark);
  const std::string raised = RaiseDescriptorLimit();
  if (!raised.empty()) LogInfo(raised);
  CAIRN_RETURN_IF_ERROR(CheckAddressSpace(needs.threads + needs.peer_threads, kMinBufferBytes));
  CAIRN_RETURN_IF_ERROR(CheckLimits(needs.files, needs.threads));
  if (DescriptorLimit() < job_files) {
    LogWarning("at most ", DescriptorLimit(), " files may be open (ulimit -n), and this task needs about ",
               job_files, " in this cluster: raise the limit, or connections will be refused");
  }
  return absl::OkStatus();
}

void EndProcess(absl::string_view why) {
  const std::string line = absl::StrCat(program_invocation_short_name, ": ", why, "\n");
  (void)!write(STDERR_FILENO, line.data(), line.size());
  std::_Exit(static_cast<int>(ExitCode::kFailure));
}

}  // namespace cairn
