#include "ps/replication/replication_item.h"

namespace cairn::ps {

int64_t ReplicationItem::bytes() const {
  int64_t elements = 0;
  for (const auto& buffer : floats) elements += buffer->size();
  for (const auto& table : tables) {
    for (const auto& buffer : table) elements += buffer->size();
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

void SentMean::Add(const MeanRun& run) {
  if (version_ != run.version) elements_ = 0;
  version_ = run.version;
  elements_ += run.end - run.begin;
}

void SentMean::LeaveOut(ReplicationItem& item) const {
  if (!item.mean_in_runs || version_ != item.body.entry().decision().apply().version() ||
      elements_ * static_cast<int64_t>(sizeof(float)) != item.bytes()) {
    return;
  }
  item.floats.clear();
  item.body.mutable_entry()->set_sent(true);
}

void Backlog::Add(uint64_t number, const ReplicationItem& item) {
  const int64_t bytes = item.bytes();
  if (bytes == 0 || item.state) return;
  items_.emplace_back(number, bytes);
  bytes_ += bytes;
}

void Backlog::Receive(uint64_t number) {
  for (; !items_.empty() && items_.front().first <= number; items_.pop_front()) {
    bytes_ -= items_.front().second;
  }
}

}  // namespace cairn::ps
