#include "common/system/thread.h"

#include <pthread.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/system/limits.h"
#include "common/system/process_start.h"

namespace cairn {

Thread::Thread(std::string name, absl::AnyInvocable<void()> body) {
  auto started = Start(std::move(name), std::move(body));
  if (!started.ok()) EndProcess(started.status().message());
  thread_ = std::move(started->thread_);
}

absl::StatusOr<Thread> Thread::Start(std::string name, absl::AnyInvocable<void()> body) {
  try {
    return Thread(std::thread([name = name.substr(0, 15), body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    }));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the thread '", name, "': ", error.code().message(), "; ", ThreadLimits()));
  }
}

}  // namespace cairn
