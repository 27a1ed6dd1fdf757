#include "common/core/thread.h"

#include <pthread.h>

namespace cairn {

Thread::Thread(std::string name, absl::AnyInvocable<void()> body)
    : thread_([name = name.substr(0, 15), body = std::move(body)]() mutable {
        pthread_setname_np(pthread_self(), name.c_str());
        body();
      }) {}

}  // namespace cairn
