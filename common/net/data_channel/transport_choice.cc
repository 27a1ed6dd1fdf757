#include "common/net/data_channel/transport_choice.h"

namespace cairn::net {

TransportChoice::Way TransportChoice::way() const {
  MutexLock lock(mutex_);
  return way_;
}

void TransportChoice::Learn(const DataEndpoint& endpoint, uint64_t process) {
  MutexLock lock(mutex_);
  const bool given_up = way_.transport != options_.best && Now() - failed_ >= options_.try_again_after;
  if (endpoint == way_.endpoint && process == way_.incarnation && !given_up) return;
  way_ = {.transport = options_.best, .endpoint = endpoint, .incarnation = process};
}

void TransportChoice::Fail(const Way& way) {
  MutexLock lock(mutex_);
  if (way_.endpoint == way.endpoint && way_.transport == way.transport) {
    way_.transport = NextBest(way.transport);
    failed_ = Now();
  }
}

void TransportChoice::Say(Transport used) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(said_, used) == used) return;
  }
  if (options_.say != nullptr) options_.say(InWords(used));
}

}  // namespace cairn::net
