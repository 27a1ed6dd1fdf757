// Which layer computes on which device: what --place and the model file say, found among the devices that
// there are, and how that is told. Made once by cairn-worker's main thread; values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster_spec.h"
#include "worker/device_choice.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// "dense*=/gpu:1": layers by their names, with * for any letters, ? for one and [abc] for one of these.
struct PlaceRule {
  std::string layers;
  std::string device;  // a DeviceName
};
absl::StatusOr<PlaceRule> ParsePlaceRule(absl::string_view text);

// What is asked for a layer.
struct AskedDevice {
  std::string text;    // a device's name; empty: nobody asks
  std::string source;  // who does: "--place 'dense*=/gpu:1'"
};
// [node of the model]. A layer is where the last rule that fits its name says, else where its own "device"
// field says. INVALID_ARGUMENT: a rule that fits no layer. `remarks`: of several rules that fit the one that
// counts.
absl::StatusOr<std::vector<AskedDevice>> AskedDevices(const nn::Model& model,
                                                      absl::Span<const std::string> rules,
                                                      std::vector<std::string>& remarks);

struct LayerPlacement {
  std::vector<FoundDevice> devices;     // each once, in the order of the layers
  std::vector<int> device_of;           // [node of the model] of `devices`; -1: another worker's
  std::vector<DeviceName> elsewhere{};  // [node of the model] where that is; empty: there are none
  std::vector<std::string> remarks{}, warnings{};
};

// A layer is where AskedDevices() has it, else on
// `request.device`. Its name may leave parts open, which are as in `request.device`. INVALID_ARGUMENT: a rule
// that fits no layer; a device that does not exist, in TensorFlow's words with those that do, unless
// `request.allow_soft_placement`. `here` [node of the model], of a model that is divided over workers: those
// that are not are left out, and the task that a name says is not looked at. Null: all are.
absl::StatusOr<LayerPlacement> PlaceLayers(const nn::Model& model, absl::Span<const std::string> rules,
                                           const DeviceRequest& request, const DeviceMakers& makers,
                                           const std::vector<bool>* here = nullptr);

// What --log_device_placement tells, line by line. Layers: "dense: (Dense): /job:worker/task:0/device:CPU:0".
std::vector<std::string> DescribeLayers(const nn::Model& model, const LayerPlacement& placement);
// Of a job: each variable's rows and bytes on each server, and how evenly the servers are filled.
std::vector<std::string> DescribeVariables(const nn::Model& model, int servers);

}  // namespace cairn::worker
