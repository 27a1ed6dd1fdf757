#include "tests/bench/wire/ucx_peer.h"

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "tests/bench/wire/forked_process.h"

namespace cairn::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr auto kAwake = std::chrono::milliseconds(20);
constexpr auto kNap = std::chrono::milliseconds(5);
constexpr ucp_tag_t kExact = ~ucp_tag_t{0};
constexpr ucp_request_param_t kDefaults{};

// A tag: what the message is, of how many, and which. An answer has the tag of the last message that it answers.
enum class Kind : uint64_t { kHello, kPush, kPull, kComplete };
constexpr int kKindShift = 56, kCountShift = 28;
constexpr uint64_t kNumberMask = (uint64_t{1} << kCountShift) - 1;

ucp_tag_t TagOf(Kind kind, size_t messages, size_t index) {
  return static_cast<uint64_t>(kind) << kKindShift | uint64_t{messages} << kCountShift | index;
}

absl::Status ToStatus(ucs_status_t status, absl::string_view what) {
  if (status == UCS_OK) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("ucx: ", what, ": ", ucs_status_string(status)));
}

// UCX's side of one process. Lives as long as the process: the other end may read and write its memory.
class Engine {
 public:
  absl::Status Open(const std::string& transport) {
    ucp_config_t* config = nullptr;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_config_read(nullptr, nullptr, &config), "configuration"));
    const char* const kinds = transport == "shm" ? "posix,sysv,cma" : "tcp";
    ucs_status_t status = ucp_config_modify(config, "TLS", kinds);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
    if (status == UCS_OK) status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    CAIRN_RETURN_IF_ERROR(ToStatus(status, "context"));
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    return ToStatus(ucp_worker_create(context_, &worker, &worker_), "worker");
  }
  absl::StatusOr<std::string> Address() const {
    ucp_address_t* address = nullptr;
    size_t bytes = 0;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_worker_get_address(worker_, &address, &bytes), "address"));
    std::string copy(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_, address);
    return copy;
  }
  absl::StatusOr<ucp_ep_h> ConnectTo(const std::string& address) const {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h end = nullptr;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_ep_create(worker_, &params, &end), "endpoint"));
    return end;
  }
  // Releases the requests.
  absl::Status Wait(std::vector<ucs_status_ptr_t> requests) const {
    const auto deadline = Clock::now() + kTimeout;
    for (const ucs_status_ptr_t request : requests) {
      if (!UCS_PTR_IS_PTR(request)) {
        CAIRN_RETURN_IF_ERROR(ToStatus(UCS_PTR_STATUS(request), "transfer"));
        continue;
      }
      ucs_status_t status = ucp_request_check_status(request);
      for (; status == UCS_INPROGRESS; status = ucp_request_check_status(request)) {
        if (ucp_worker_progress(worker_) == 0 && Clock::now() > deadline) {
          return absl::DeadlineExceededError("ucx: a transfer has not ended in 60 s");
        }
      }
      ucp_request_free(request);
      CAIRN_RETURN_IF_ERROR(ToStatus(status, "transfer"));
    }
    return absl::OkStatus();
  }
  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
};

// The report of the other process: its address, and the address and key of its memory.
struct Report {
  uint64_t memory = 0;
  std::string key, address;

  std::string Serialize() const {
    const uint64_t head[] = {memory, key.size()};
    return std::string(reinterpret_cast<const char*>(head), sizeof head) + key + address;
  }
  static Report Parse(const std::string& text) {
    uint64_t head[2];
    std::memcpy(head, text.data(), sizeof head);
    return {head[0], text.substr(sizeof head, head[1]), text.substr(sizeof head + head[1])};
  }
};

// The other process.
class Server {
 public:
  explicit Server(size_t bytes) : bytes_(bytes), values_(static_cast<int64_t>(bytes / sizeof(float))) {}

  absl::StatusOr<Report> Open(const std::string& transport) {
    CAIRN_RETURN_IF_ERROR(engine_.Open(transport));
    ucp_mem_map_params_t params{};  // memory of UCX, which the other end can map
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = bytes_;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucp_mem_h mapped = nullptr;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_mem_map(engine_.context(), &params, &mapped), "memory"));
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_mem_query(mapped, &attributes), "memory"));
    void* key = nullptr;
    size_t key_bytes = 0;
    CAIRN_RETURN_IF_ERROR(ToStatus(ucp_rkey_pack(engine_.context(), mapped, &key, &key_bytes), "key"));
    Report report;
    report.memory = reinterpret_cast<uint64_t>(attributes.address);
    report.key.assign(static_cast<const char*>(key), key_bytes);
    ucp_rkey_buffer_release(key);
    CAIRN_ASSIGN_OR_RETURN(report.address, engine_.Address());
    return report;
  }
  absl::Status Serve() {
    auto last = Clock::now();
    for (;;) {
      ucp_tag_recv_info_t info;
      const ucp_tag_message_h message = ucp_tag_probe_nb(engine_.worker(), 0, 0, /*remove=*/1, &info);
      if (message != nullptr) {
        CAIRN_RETURN_IF_ERROR(OnMessage(message, info));
      } else if (ucp_worker_progress(engine_.worker()) == 0) {
        if (Clock::now() - last > kAwake) std::this_thread::sleep_for(kNap);
        continue;
      }
      last = Clock::now();
    }
  }

 private:
  absl::Status OnMessage(ucp_tag_message_h message, const ucp_tag_recv_info_t& info) {
    const auto kind = static_cast<Kind>(info.sender_tag >> kKindShift);
    const size_t messages = info.sender_tag >> kCountShift & kNumberMask,
                 index = info.sender_tag & kNumberMask;
    const size_t size = messages == 0 ? 0 : bytes_ / messages;
    std::string address(kind == Kind::kHello ? info.length : 0, '\0');
    char* const memory = reinterpret_cast<char*>(values_.data());
    char* const to = kind == Kind::kPush ? memory + index * size : address.data();
    CAIRN_CHECK(kind == Kind::kHello || info.length == (kind == Kind::kPush ? size : 0));
    received_.push_back(ucp_tag_msg_recv_nbx(engine_.worker(), to, info.length, message, &kDefaults));
    if (kind == Kind::kPush && index + 1 < messages) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(engine_.Wait(std::exchange(received_, {})));
    if (kind == Kind::kHello) {
      CAIRN_ASSIGN_OR_RETURN(client_, engine_.ConnectTo(address));
    }
    std::vector<ucs_status_ptr_t> sent;
    if (kind == Kind::kPull) {
      for (size_t i = 0; i < messages; ++i) {
        sent.push_back(
            ucp_tag_send_nbx(client_, memory + i * size, size, TagOf(Kind::kPull, messages, i), &kDefaults));
      }
    } else {
      sent.push_back(ucp_tag_send_nbx(client_, nullptr, 0, info.sender_tag, &kDefaults));
    }
    return engine_.Wait(std::move(sent));
  }

  const size_t bytes_;
  AlignedBuffer values_;  // for messages; remote access has memory of its own
  Engine engine_;
  ucp_ep_h client_ = nullptr;
  std::vector<ucs_status_ptr_t> received_;  // of the push that is coming
};

class Client final : public UcxPeer {
 public:
  Client(std::string transport, std::unique_ptr<ForkedProcess> process)
      : transport_(std::move(transport)), process_(std::move(process)) {}

  absl::Status Connect() override {
    const Report report = Report::Parse(process_->told());
    memory_ = report.memory;
    CAIRN_RETURN_IF_ERROR(engine_.Open(transport_));
    CAIRN_ASSIGN_OR_RETURN(server_, engine_.ConnectTo(report.address));
    CAIRN_ASSIGN_OR_RETURN(const std::string address, engine_.Address());
    CAIRN_RETURN_IF_ERROR(Call(TagOf(Kind::kHello, 0, 0), address));
    return ToStatus(ucp_ep_rkey_unpack(server_, report.key.data(), &key_), "key");
  }
  pid_t pid() const override { return process_->pid(); }

  absl::Status Push(absl::Span<const char> data, size_t messages) override {
    const size_t size = data.size() / messages;
    std::vector<ucs_status_ptr_t> requests = {Answer(TagOf(Kind::kPush, messages, messages - 1))};
    for (size_t i = 0; i < messages; ++i) {
      requests.push_back(Send(TagOf(Kind::kPush, messages, i), data.subspan(i * size, size)));
    }
    return engine_.Wait(std::move(requests));
  }
  absl::Status Pull(absl::Span<char> data, size_t messages) override {
    const size_t size = data.size() / messages;
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < messages; ++i) {
      requests.push_back(ucp_tag_recv_nbx(engine_.worker(), data.data() + i * size, size,
                                          TagOf(Kind::kPull, messages, i), kExact, &kDefaults));
    }
    requests.push_back(Send(TagOf(Kind::kPull, messages, 0), {}));
    return engine_.Wait(std::move(requests));
  }
  absl::Status Put(absl::Span<const char> data, size_t messages) override {
    const size_t size = data.size() / messages;
    std::vector<ucs_status_ptr_t> requests;
    for (size_t at = 0; at < data.size(); at += size) {
      requests.push_back(ucp_put_nbx(server_, data.data() + at, size, memory_ + at, key_, &kDefaults));
    }
    requests.push_back(ucp_ep_flush_nbx(server_, &kDefaults));
    CAIRN_RETURN_IF_ERROR(engine_.Wait(std::move(requests)));
    return Call(TagOf(Kind::kComplete, 0, 0), {});
  }
  absl::Status Get(absl::Span<char> data, size_t messages) override {
    const size_t size = data.size() / messages;
    std::vector<ucs_status_ptr_t> requests;
    for (size_t at = 0; at < data.size(); at += size) {
      requests.push_back(ucp_get_nbx(server_, data.data() + at, size, memory_ + at, key_, &kDefaults));
    }
    return engine_.Wait(std::move(requests));
  }

 private:
  ucs_status_ptr_t Send(ucp_tag_t tag, absl::Span<const char> data) {
    return ucp_tag_send_nbx(server_, data.data(), data.size(), tag, &kDefaults);
  }
  ucs_status_ptr_t Answer(ucp_tag_t tag) {
    return ucp_tag_recv_nbx(engine_.worker(), nullptr, 0, tag, kExact, &kDefaults);
  }
  absl::Status Call(ucp_tag_t tag, absl::Span<const char> data) {
    return engine_.Wait({Answer(tag), Send(tag, data)});
  }

  const std::string transport_;
  const std::unique_ptr<ForkedProcess> process_;
  Engine engine_;
  ucp_ep_h server_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  uint64_t memory_ = 0;  // an address of the other process
};

void ServeUntilFailure(Server& server) {
  const absl::Status status = server.Serve();
  std::fprintf(stderr, "ucx peer: %s\n", status.ToString().c_str());
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxPeer>> UcxPeer::Start(const std::string& transport, size_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(
      auto process, ForkedProcess::Start([&](const Forker& parent) {
        Server server(bytes);
        const auto report = server.Open(transport);
        if (!report.ok()) {
          std::fprintf(stderr, "ucx peer: %s\n", report.status().ToString().c_str());
          return;
        }
        std::thread(ServeUntilFailure, std::ref(server)).detach();  // ends with the process
        parent.Report(report->Serialize());
        parent.ExitWhenItIsDone();
      }));
  return std::make_unique<Client>(transport, std::move(process));
}

}  // namespace cairn::bench
