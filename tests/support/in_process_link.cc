#include "tests/support/in_process_link.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/system/thread.h"
#include "ps/rpc/session.h"

namespace cairn::test {
namespace {

absl::Status Refused(const std::string& address) {
  return absl::UnavailableError(absl::StrCat("failed to connect to ", address, ": Connection refused"));
}

absl::Span<const char> BytesOf(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

// Cuts the runs into fragments that may end anywhere, even within a float.
std::vector<absl::Span<const char>> CutAnywhere(const std::vector<absl::Span<const char>>& runs,
                                                Random& random) {
  std::vector<absl::Span<const char>> pieces;
  for (absl::Span<const char> run : runs) {
    while (run.size() > 1) {
      const size_t cut = 1 + random.NextBelow(static_cast<uint32_t>(run.size()));
      pieces.push_back(run.subspan(0, cut));
      run.remove_prefix(cut);
    }
    if (!run.empty()) pieces.push_back(run);
  }
  return pieces;
}

}  // namespace

// The wire of one stream. The server's answers may keep it longer than both ends exist.
class Wire final : public ps::SessionSink {
 public:
  struct Up {
    v1::ClientHeader header;
    std::vector<absl::Span<const char>> payload;  // the client's memory
  };
  struct Down {
    v1::ServerHeader header;
    std::vector<absl::Span<const char>> payload;
    std::shared_ptr<const void> owner;
  };

  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    Down frame = {header, {}, owner};
    for (const auto& run : payload) frame.payload.push_back(BytesOf(run));
    down.Push(std::move(frame));
  }

  // Only the first reason is kept.
  void Close(absl::Status reason) {
    {
      MutexLock lock(mutex_);
      if (!reason_.has_value()) reason_ = std::move(reason);
    }
    up.Close();
    down.Close();
  }
  absl::Status reason() {
    MutexLock lock(mutex_);
    return reason_.value_or(absl::OkStatus());
  }

  Pipe<Up> up;
  Pipe<Down> down;

 private:
  Mutex mutex_;
  std::optional<absl::Status> reason_ ABSL_GUARDED_BY(mutex_);
};

class InProcessStream final : public client::FrameStream {
 public:
  InProcessStream(Link& link, client::FrameHandler& handler)
      : InProcessStream(link, handler, std::make_shared<Wire>()) {}
  InProcessStream(Link& link, client::FrameHandler& handler, const std::shared_ptr<Wire>& wire)
      : link_(link),
        handler_(handler),
        server_(link.Reach()),
        wire_(wire),
        number_(link.Register(wire)),
        delay_(link.delay_.seed, 2 * number_ + 1, link.delay_.longest),
        cuts_(link.delay_.seed, 2 * number_ + 1) {
    {
      MutexLock lock(link.mutex_);
      client_tap_ = link.client_tap_;
      server_tap_ = link.server_tap_;
    }
    if (server_ == nullptr) wire_->Close(Refused(link.address_));
    up_ = Thread("to-server", [this] { CarryUp(); });
    down_ = Thread("to-client", [this] { CarryDown(); });
  }
  ~InProcessStream() override {
    wire_->Close(absl::OkStatus());
    up_.Join();
    down_.Join();
  }

  void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
    Wire::Up frame = {header, {}};
    for (const auto& run : payload) frame.payload.push_back(BytesOf(run));
    wire_->up.Push(std::move(frame));
  }
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) override {
    {
      MutexLock lock(mutex_);
      if (receiving_ != Receiving::kNobody) return false;
      receiving_ = Receiving::kCaller;
      nudged_ = false;
    }
    while (!wire_->down.closed() && !enough() && AwaitFrame(deadline)) Deliver();
    MutexLock lock(mutex_);
    receiving_ = Receiving::kNobody;
    changed_.NotifyAll();
    return !wire_->down.closed();
  }
  void Nudge() override {
    MutexLock lock(mutex_);
    nudged_ = true;
  }

 private:
  enum class Receiving { kNobody, kThread, kCaller };

  void CarryUp() {
    if (server_ == nullptr) return;
    ps::Session session(*server_, wire_);
    Delay delay(link_.delay_.seed, 2 * number_, link_.delay_.longest);
    Random cuts(link_.delay_.seed, 2 * number_);
    while (std::optional<Wire::Up> frame = wire_->up.Pop()) {
      delay.Wait();
      const Fate fate = client_tap_ ? client_tap_(frame->header) : Fate::kDeliver;
      if (fate == Fate::kBreakBefore) {
        Lose();
        return;
      }
      absl::Status status = session.OnFrame(frame->header, CutAnywhere(frame->payload, cuts));
      if (!status.ok()) wire_->Close(std::move(status));
      if (fate == Fate::kBreakAfter) Lose();
    }
  }

  void CarryDown() {
    for (;;) {
      wire_->down.Await(std::chrono::steady_clock::now() + std::chrono::hours(1));
      {
        MutexLock lock(mutex_);
        while (receiving_ == Receiving::kCaller) changed_.Wait(mutex_);
        receiving_ = Receiving::kThread;
      }
      if (wire_->down.closed()) break;
      Deliver();
      MutexLock lock(mutex_);
      receiving_ = Receiving::kNobody;
    }
    handler_.OnClosed(wire_->reason());
  }
  // For the caller. False: no frame by `deadline`, or the caller was nudged.
  bool AwaitFrame(TimePoint deadline) {
    for (;;) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (wire_->down.Await(std::min(deadline, now + std::chrono::milliseconds(1)))) return true;
      MutexLock lock(mutex_);
      if (nudged_ || now >= deadline) return false;
    }
  }
  // Called by the receiving thread.
  void Deliver() {
    const std::optional<Wire::Down> frame = wire_->down.TryPop();
    if (!frame.has_value()) return;
    delay_.Wait();
    const Fate fate = server_tap_ ? server_tap_(frame->header) : Fate::kDeliver;
    if (fate != Fate::kBreakBefore) handler_.OnFrame(frame->header, CutAnywhere(frame->payload, cuts_));
    if (fate != Fate::kDeliver) Lose();
  }

  void Lose() { wire_->Close(absl::UnavailableError("the connection was broken")); }

  Link& link_;
  client::FrameHandler& handler_;
  const std::shared_ptr<ps::Server> server_;  // null: it cannot be reached
  const std::shared_ptr<Wire> wire_;
  ClientFrameTap client_tap_;
  ServerFrameTap server_tap_;
  const uint64_t number_;
  Delay delay_;  // of who receives
  Random cuts_;
  Mutex mutex_;
  CondVar changed_;
  Receiving receiving_ ABSL_GUARDED_BY(mutex_) = Receiving::kNobody;
  bool nudged_ ABSL_GUARDED_BY(mutex_) = false;
  Thread up_, down_;
};

class InProcessStreams final : public client::StreamFactory {
 public:
  explicit InProcessStreams(Link& link) : link_(link) {}
  std::unique_ptr<client::FrameStream> Open(client::FrameHandler& handler,
                                            const client::StopCheck&) override {
    return std::make_unique<InProcessStream>(link_, handler);
  }

 private:
  Link& link_;
};

// Executes calls on the link's server.
class InProcessControl final : public client::ControlStub {
 public:
  explicit InProcessControl(Link& link) : link_(link) {
    Add(&ps::Server::Connect);
    Add(&ps::Server::Create);
    Add(&ps::Server::Wait);
    Add(&ps::Server::Join);
    Add(&ps::Server::Heartbeat);
    Add(&ps::Server::BatchMean);
    Add(&ps::Server::Leave);
    Add(&ps::Server::PlaceMarker);
    Add(&ps::Server::ChangeConfig);
    Add(&ps::Server::Finish);
    Add(&ps::Server::Promote);
  }

  absl::Status Call(const google::protobuf::MethodDescriptor& method,
                    const google::protobuf::Message& request, google::protobuf::Message* response,
                    client::Timeout timeout, const client::StopCheck&) override {
    return calls_.at(method.input_type())(request, response, timeout);
  }

 private:
  template <typename Response>
  struct Pending {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::StatusOr<Response>> result ABSL_GUARDED_BY(mutex);
  };

  template <typename Request, typename Response>
  void Add(void (ps::Server::*method)(const Request&, ps::Reply<Response>)) {
    calls_[Request::descriptor()] = [this, method](const google::protobuf::Message& request,
                                                   google::protobuf::Message* response,
                                                   client::Timeout timeout) {
      return Execute(method, dynamic_cast<const Request&>(request), dynamic_cast<Response*>(response),
                     timeout);
    };
  }

  template <typename Request, typename Response>
  absl::Status Execute(void (ps::Server::*method)(const Request&, ps::Reply<Response>),
                       const Request& request, Response* response, client::Timeout timeout) {
    link_.OnCall(Request::descriptor()->name());
    const std::shared_ptr<ps::Server> server = link_.Reach();
    if (server == nullptr) return Refused(link_.address_);
    const auto pending = std::make_shared<Pending<Response>>();
    (server.get()->*method)(request, [pending](absl::StatusOr<Response> result) {
      MutexLock lock(pending->mutex);
      pending->result = std::move(result);
      pending->changed.NotifyAll();
    });
    if (link_.LosesReplyTo(Request::descriptor()->name()))
      return absl::UnavailableError("the answer was lost");
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(pending->mutex);
    while (!pending->result.has_value()) {
      if (!pending->changed.WaitUntil(pending->mutex, deadline) && !pending->result.has_value()) {
        return absl::DeadlineExceededError("no answer in time");
      }
    }
    if (pending->result->ok()) *response = **pending->result;
    return pending->result->status();
  }

  Link& link_;
  // The call of each type of request.
  std::map<const google::protobuf::Descriptor*,
           std::function<absl::Status(const google::protobuf::Message&, google::protobuf::Message*,
                                      client::Timeout)>>
      calls_;
};

std::unique_ptr<client::ServerStub> Link::NewStub() {
  return std::make_unique<client::ServerStub>(
      client::ServerStub::Parts{.address = address_,
                                .control = std::make_unique<InProcessControl>(*this),
                                .streams = std::make_unique<InProcessStreams>(*this)});
}

void Link::Break() {
  std::vector<std::weak_ptr<Wire>> wires;
  {
    MutexLock lock(mutex_);
    wires.swap(wires_);
  }
  for (const auto& weak : wires) {
    if (const auto wire = weak.lock()) wire->Close(absl::UnavailableError("the connection was broken"));
  }
}

void Link::DropReplyTo(const std::string& message) {
  MutexLock lock(mutex_);
  lost_replies_.insert(message);
}

bool Link::LosesReplyTo(const std::string& message) {
  MutexLock lock(mutex_);
  const auto found = lost_replies_.find(message);
  if (found == lost_replies_.end()) return false;
  lost_replies_.erase(found);
  return true;
}

void Link::TapCalls(CallTap tap) {
  MutexLock lock(mutex_);
  call_tap_ = std::move(tap);
}

void Link::OnCall(const std::string& message) {
  CallTap tap;
  {
    MutexLock lock(mutex_);
    tap = call_tap_;
  }
  if (tap) tap(message);
}

void Link::TapClientFrames(ClientFrameTap tap) {
  MutexLock lock(mutex_);
  client_tap_ = std::move(tap);
}

void Link::TapServerFrames(ServerFrameTap tap) {
  MutexLock lock(mutex_);
  server_tap_ = std::move(tap);
}

uint64_t Link::Register(const std::shared_ptr<Wire>& wire) {
  MutexLock lock(mutex_);
  std::erase_if(wires_, [](const std::weak_ptr<Wire>& other) { return other.expired(); });
  wires_.push_back(wire);
  return static_cast<uint64_t>(++streams_opened_);
}

}  // namespace cairn::test
