// Frames from an untrusted source to a server that keeps the backup of ps/0's shard, and later calls of
// clients.
#include <memory>

#include "ps/rpc/backup_session.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"

namespace {

using namespace cairn;

class Sink final : public ps::ReplicationSink {
 public:
  void Answer(const v1::ReplicationAck&) override {}
  void Close(absl::Status reason) override { FUZZ_CHECK(!reason.ok() && !reason.message().empty()); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto script = fuzz::ParseText<fuzz::BackupScript>(data, size);
  fuzz::ServerPlayer player(0, /*host_index=*/1);
  auto session = std::make_unique<ps::BackupSession>(player.server().hosted_job(), std::make_shared<Sink>());
  for (const fuzz::ReplicationStep& step : script.steps()) {
    switch (step.what_case()) {
      case fuzz::ReplicationStep::kItem: {  // well-formed, so that most of it is read
        if (player.IsTooLarge(step.item().body().origin())) break;
        v1::ReplicationHeader header;
        const std::string& floats = step.item().floats();
        if (!floats.empty()) {
          header.mutable_floats()->set_state(step.item().state());
          const absl::Span<const char> run(floats);
          (void)session->OnFrame(header, {&run, 1});
        }
        v1::ReplicationItem& item = *header.add_items();
        item.set_number(step.item().number());
        item.set_text(step.item().body().SerializeAsString());
        item.set_floats(static_cast<int64_t>(floats.size() / sizeof(float)));
        const absl::Status status = session->OnFrame(header, {});
        FUZZ_CHECK(status.ok() || !status.message().empty());
        break;
      }
      case fuzz::ReplicationStep::kFrame: {
        const absl::Span<const char> run(step.frame().payload());
        const net::Payload payload = run.empty() ? net::Payload() : net::Payload(&run, 1);
        const absl::Status status = session->OnFrame(step.frame().header(), payload);
        FUZZ_CHECK(status.ok() || !status.message().empty());
        break;
      }
      case fuzz::ReplicationStep::kAgain:
        session = std::make_unique<ps::BackupSession>(player.server().hosted_job(), std::make_shared<Sink>());
        break;
      case fuzz::ReplicationStep::kPromote: {
        bool answered = false;
        player.server().Promote(step.promote(), [&](const auto& response) {
          answered = true;
          FUZZ_CHECK(response.ok() || !response.status().message().empty());
        });
        FUZZ_CHECK(answered);
        break;
      }
      case fuzz::ReplicationStep::kCall: {
        fuzz::Script one;
        *one.add_steps() = step.call();
        player.Play(one);
        break;
      }
      case fuzz::ReplicationStep::WHAT_NOT_SET:
        break;
    }
  }
  return 0;
}
