#include "client/gradients/arrivals.h"

#include <algorithm>
#include <utility>

namespace cairn::client {

Arrivals::Pages Arrivals::PagesOf(int server, int64_t begin, int64_t count) {
  return {.server = server, .first = begin / kPage, .end = (begin + count + kPage - 1) / kPage};
}

bool Arrivals::Has(const Part& part, int64_t begin, int64_t count) {
  return begin >= 0 && count > 0 && begin < part.size && count <= part.size - begin;
}

bool Arrivals::CutsNoPage(const Part& part, int64_t begin, int64_t count) {
  return begin % kPage == 0 && (count % kPage == 0 || begin + count == part.size);
}

void Arrivals::Begin(const net::Layout& layout) {
  MutexLock lock(mutex_);
  layout_ = &layout;
  parts_.resize(static_cast<size_t>(layout.servers()));
  for (size_t server = 0; server < parts_.size(); ++server) {
    Part& part = parts_[server];
    part.size = layout.arena_size(static_cast<int>(server));
    part.here.assign(static_cast<size_t>((part.size + kPage - 1) / kPage), false);
    part.closed = false;
  }
  awaited_ = false;
  intact_ = true;
  failed_ = false;
}

bool Arrivals::Admit(int server, int64_t begin, int64_t count) {
  MutexLock lock(mutex_);
  Part& part = parts_[static_cast<size_t>(server)];
  if (!Has(part, begin, count)) return true;  // the code that writes the values checks the range
  const Pages come = PagesOf(server, begin, count);
  const auto first = part.here.begin() + come.first, last = part.here.begin() + come.end;
  if (CutsNoPage(part, begin, count) && std::find(first, last, true) == last) return true;
  if (awaited_) {
    intact_ = false;
    changed_.NotifyAll();
    return false;
  }
  std::fill(first, last, false);
  return true;
}

void Arrivals::Add(int server, int64_t begin, int64_t count) {
  MutexLock lock(mutex_);
  Part& part = parts_[static_cast<size_t>(server)];
  if (!Has(part, begin, count) || !CutsNoPage(part, begin, count)) return;
  const Pages come = PagesOf(server, begin, count);
  std::fill(part.here.begin() + come.first, part.here.begin() + come.end, true);
  if (missing_ == 0 || server != wanted_.server) return;
  missing_ -= std::max<int64_t>(0, std::min(come.end, wanted_.end) - std::max(come.first, wanted_.first));
  // Callers are not woken earlier: every wakeup takes a core from the thread that receives the rest.
  if (missing_ == 0) changed_.NotifyAll();
}

void Arrivals::Close(int server) {
  MutexLock lock(mutex_);
  parts_[static_cast<size_t>(server)].closed = true;
  changed_.NotifyAll();
}

void Arrivals::Fail() {
  MutexLock lock(mutex_);
  failed_ = true;
  changed_.NotifyAll();
}

bool Arrivals::Await(int variable, TimePoint deadline, absl::FunctionRef<absl::Status()> failure,
                     Receive receive) {
  absl::Span<const net::Extent> extents;
  {
    MutexLock lock(mutex_);
    awaited_ = true;
    extents = layout_->extents_of(variable);
  }
  for (const net::Extent& extent : extents) {
    const auto over = [&] {
      MutexLock lock(mutex_);
      return IsOver(failure);
    };
    {
      MutexLock lock(mutex_);
      const Part& part = parts_[static_cast<size_t>(extent.server)];
      wanted_ = PagesOf(extent.server, extent.server_offset, extent.count);
      missing_ = std::count(part.here.begin() + wanted_.first, part.here.begin() + wanted_.end, false);
    }
    if (!over()) receive(extent.server, over);
    MutexLock lock(mutex_);
    while (!IsOver(failure) && changed_.WaitUntil(mutex_, deadline)) {
    }
    if (std::exchange(missing_, 0) > 0) return false;
  }
  return intact();
}

bool Arrivals::IsOver(absl::FunctionRef<absl::Status()> failure) const {
  return missing_ == 0 || !intact_ || failed_ || parts_[static_cast<size_t>(wanted_.server)].closed ||
         !failure().ok();
}

void Arrivals::Wake() {
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

bool Arrivals::intact() const {
  MutexLock lock(mutex_);
  return intact_;
}

}  // namespace cairn::client
