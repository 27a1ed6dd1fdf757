#include "worker/allreduce/left_neighbour.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::allreduce {

absl::Status LeftNeighbour::CheckIsGone(const v1::GreetRequest& request, TimePoint now) {
  if (contender_ != request.incarnation()) {
    contender_ = request.incarnation();
    contended_at_ = now;
  }
  const auto describe = [](const v1::Process& process) {
    return absl::StrCat("process ", process.pid(), " on ", process.host());
  };
  // A message received within a quarter of a lease does not prove that its sender lives: the sender may have
  // died after sending it.
  if (heard_ - contended_at_ > lease_ / 4) {
    contender_ = 0;
    return absl::FailedPreconditionError(absl::StrCat(
        name_, " is already running: ", describe(process_), " is alive, and this is ",
        describe(request.process()), "; give every task an index of its own (--task_index, TF_CONFIG)"));
  }
  if (now - contended_at_ > lease_ / 2) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, " was ", describe(process_),
                                             " until now: waiting to see whether that one is still alive"));
}

void LeftNeighbour::Connect(std::shared_ptr<RingStream> stream, uint64_t incarnation, TimePoint now) {
  stream_ = std::move(stream);
  incarnation_ = incarnation;
  heard_ = now;
}

std::shared_ptr<RingStream> LeftNeighbour::Disconnect() {
  bye_ = false;
  return std::exchange(stream_, nullptr);
}

}  // namespace cairn::allreduce
