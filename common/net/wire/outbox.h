// A queue of messages to one peer; its front is being written. Also decides when to pause reading from that
// peer: a peer that does not take its answers may not request more.
//
// The transport holds one message at a time, so all waiting messages can still be reordered. Consecutive
// messages with a rank are ordered by rank, lowest first. A message without a rank neither overtakes nor is
// overtaken.
//
// Not thread-safe: guarded by the stream's lock. One answer may be many messages, so the content is bounded
// only by kMaxBeforeBackpressure plus the answers to requests already received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <utility>

namespace cairn::net {

template <typename Message>
class Outbox {
 public:
  // Reading of requests pauses while more messages than this wait.
  static constexpr size_t kMaxBeforeBackpressure = 64;

  // Queues the message. Returns true if it is the only one, so that the caller must start to write it.
  bool Push(Message message, std::optional<int64_t> rank = std::nullopt) {
    auto before = messages_.end();
    while (rank.has_value() && before != messages_.begin() && std::prev(before) != messages_.begin() &&
           std::prev(before)->rank > rank) {
      --before;
    }
    messages_.insert(before, {std::move(message), rank});
    return messages_.size() == 1;
  }
  // Like Push(), but inserts the message ahead of all waiting messages. For messages that need no order.
  bool PushFirst(Message message) {
    const auto place = messages_.empty() ? messages_.end() : std::next(messages_.begin());
    messages_.insert(place, {std::move(message), std::nullopt});
    return messages_.size() == 1;
  }
  // Like PushFirst(), but inserts the message even before the front, whose writing must not have begun.
  void PushFront(Message message) { messages_.push_front({std::move(message), std::nullopt}); }
  // Removes the front, which has been written. Returns true if there is a next message to write.
  bool Pop() {
    messages_.pop_front();
    return !messages_.empty();
  }
  // Drops all messages except the one that is being written.
  void DropRest() {
    if (messages_.size() > 1) messages_.erase(std::next(messages_.begin()), messages_.end());
  }
  void Clear() { messages_.clear(); }

  // To be called before the next request is read. Returns true if reading must pause; ShouldResume() then
  // returns true once, when reading should resume.
  bool Backpressured() { return resting_ = messages_.size() > kMaxBeforeBackpressure; }
  bool ShouldResume() {
    return resting_ && messages_.size() <= kMaxBeforeBackpressure && std::exchange(resting_, false);
  }

  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }
  // The front stays at its address until Pop().
  Message& front() { return messages_.front().message; }

 private:
  struct Waiting {
    Message message;
    std::optional<int64_t> rank;
  };
  std::list<Waiting> messages_;
  bool resting_ = false;
};

}  // namespace cairn::net
