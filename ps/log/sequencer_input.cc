#include "ps/log/sequencer_input.h"

#include <utility>

#include "common/core/status.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

void Save(const WorkerJoined& joined, v1::SequencerInput& proto) {
  proto.mutable_joined()->set_worker(joined.worker);
  proto.mutable_joined()->set_incarnation(joined.incarnation);
}

void Save(const WorkerLeft& left, v1::SequencerInput& proto) {
  proto.mutable_left()->set_worker(left.worker);
  proto.mutable_left()->set_incarnation(left.incarnation);
}

void Save(const PushStaged& staged, v1::SequencerInput& proto) {
  proto.mutable_staged()->set_server(staged.server);
  *proto.mutable_staged()->mutable_gradient() = ToProto(staged.gradient);
}

void Save(const SumsReported& reported, v1::SequencerInput& proto) {
  proto.mutable_measured()->set_server(reported.server);
  *proto.mutable_measured()->mutable_sums() = ToProto(reported.sums);
}

void Save(const EntriesExecuted& executed, v1::SequencerInput& proto) {
  proto.mutable_executed()->set_server(executed.server);
  proto.mutable_executed()->set_index(executed.index);
}

void Save(const MarkerPlaced& placed, v1::SequencerInput& proto) {
  *proto.mutable_marker() = ToProto(placed.marker);
}

void Save(const ConfigChanged& changed, v1::SequencerInput& proto) {
  v1::SequencerInput::ConfigRequest& request = *proto.mutable_config_request();
  request.set_incarnation(changed.incarnation);
  request.set_number(changed.number);
  *request.mutable_config_change() = ToProto(changed.config_change);
}

}  // namespace

std::optional<int> ServerOf(const SequencerInput& input) {
  return std::visit(
      [](const auto& what) -> std::optional<int> {
        if constexpr (requires { what.server; }) return what.server;
        return std::nullopt;
      },
      input);
}

std::optional<int> WorkerOf(const SequencerInput& input) {
  return std::visit(
      [](const auto& what) -> std::optional<int> {
        if constexpr (requires { what.worker; }) return what.worker;
        if constexpr (requires { what.gradient; }) return what.gradient.key.worker;
        return std::nullopt;
      },
      input);
}

v1::SequencerInput ToProto(const SequencerInput& input) {
  v1::SequencerInput proto;
  std::visit([&proto](const auto& what) { Save(what, proto); }, input);
  return proto;
}

absl::StatusOr<SequencerInput> FromProto(const v1::SequencerInput& proto) {
  switch (proto.what_case()) {
    case v1::SequencerInput::kJoined:
      return WorkerJoined{proto.joined().worker(), proto.joined().incarnation()};
    case v1::SequencerInput::kLeft:
      return WorkerLeft{proto.left().worker(), proto.left().incarnation()};
    case v1::SequencerInput::kStaged: {
      CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(proto.staged().gradient()));
      return PushStaged{proto.staged().server(), gradient};
    }
    case v1::SequencerInput::kMeasured: {
      CAIRN_ASSIGN_OR_RETURN(Sums sums, FromProto(proto.measured().sums()));
      return SumsReported{proto.measured().server(), std::move(sums)};
    }
    case v1::SequencerInput::kExecuted:
      return EntriesExecuted{proto.executed().server(), proto.executed().index()};
    case v1::SequencerInput::kMarker: {
      CAIRN_ASSIGN_OR_RETURN(Marker marker, FromProto(proto.marker()));
      return MarkerPlaced{std::move(marker)};
    }
    case v1::SequencerInput::kConfigRequest: {
      const v1::SequencerInput::ConfigRequest& request = proto.config_request();
      CAIRN_ASSIGN_OR_RETURN(const ConfigChange config_change, FromProto(request.config_change()));
      return ConfigChanged{request.incarnation(), request.number(), config_change};
    }
    case v1::SequencerInput::WHAT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("an input of the sequencer has an unknown kind");
}

}  // namespace cairn::ps
