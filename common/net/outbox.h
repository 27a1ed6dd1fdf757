// Messages on their way to one reader, the front being written; and whether the other direction should rest
// meanwhile: who does not take its answers may ask for no more.
//
// Not thread-safe: the stream's lock guards it. One answer may be many messages, so what is in it is bounded
// by kMostBeforeRest and the answers to what has been asked by then.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace cairn::net {

template <typename Message>
class Outbox {
 public:
  // The reading of requests rests while there are more.
  static constexpr size_t kMostBeforeRest = 64;

  // True: it is the only one, so its writing must be started.
  bool Push(Message message) {
    messages_.push_back(std::move(message));
    return messages_.size() == 1;
  }
  // The front has been written. True: there is a next one to write.
  bool Pop() {
    messages_.pop_front();
    return !messages_.empty();
  }
  // Drops all but the one that is being written.
  void DropRest() {
    if (messages_.size() > 1) messages_.erase(messages_.begin() + 1, messages_.end());
  }
  void Clear() { messages_.clear(); }

  // Before the next request is read: whether to rest instead. Then Wakes() tells once when that is over.
  bool Rests() { return resting_ = messages_.size() > kMostBeforeRest; }
  bool Wakes() { return resting_ && messages_.size() <= kMostBeforeRest && std::exchange(resting_, false); }

  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }
  Message& front() { return messages_.front(); }

 private:
  std::deque<Message> messages_;
  bool resting_ = false;
};

}  // namespace cairn::net
