// Messages on their way to one reader, the front being written; and whether the other direction should rest
// meanwhile: who does not take its answers may ask for no more.
//
// One message at a time is the transport's: that is all the credit there is, and whatever waits here may
// still change places. Messages with a rank that wait one behind another go by it, the lowest first; one
// without is overtaken by none, and overtakes none.
//
// Not thread-safe: the stream's lock guards it. One answer may be many messages, so what is in it is bounded
// by kMostBeforeRest and the answers to what has been asked by then.
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
  // The reading of requests rests while there are more.
  static constexpr size_t kMostBeforeRest = 64;

  // True: it is the only one, so its writing must be started.
  bool Push(Message message, std::optional<int64_t> rank = std::nullopt) {
    auto before = messages_.end();
    while (rank.has_value() && before != messages_.begin() && std::prev(before) != messages_.begin() &&
           std::prev(before)->rank > rank) {
      --before;
    }
    messages_.insert(before, {std::move(message), rank});
    return messages_.size() == 1;
  }
  // Likewise, ahead of all that wait: of what has no place among them.
  bool PushFirst(Message message) {
    const auto place = messages_.empty() ? messages_.end() : std::next(messages_.begin());
    messages_.insert(place, {std::move(message), std::nullopt});
    return messages_.size() == 1;
  }
  // Likewise, ahead of the front too, which must not be begun.
  void PushFront(Message message) { messages_.push_front({std::move(message), std::nullopt}); }
  // The front has been written. True: there is a next one to write.
  bool Pop() {
    messages_.pop_front();
    return !messages_.empty();
  }
  // Drops all but the one that is being written.
  void DropRest() {
    if (messages_.size() > 1) messages_.erase(std::next(messages_.begin()), messages_.end());
  }
  void Clear() { messages_.clear(); }

  // Before the next request is read: whether to rest instead. Then Wakes() tells once when that is over.
  bool Rests() { return resting_ = messages_.size() > kMostBeforeRest; }
  bool Wakes() { return resting_ && messages_.size() <= kMostBeforeRest && std::exchange(resting_, false); }

  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }
  // Stays where it is until Pop().
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
