// Which device computes which layer: resolves --place and the "device" fields of the model file, and
// describes the result for the log. Computed once by cairn-worker's main thread; values.
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

// "dense*=/gpu:1". `layers` is a pattern for names: * matches any letters, ? one, and [abc] one of those
// listed.
struct PlacementRule {
  std::string layers;
  std::string device;  // a DeviceName
};
absl::StatusOr<PlacementRule> ParsePlacementRule(absl::string_view text);

// The device that is requested for a layer.
struct AskedDevice {
  std::string text;    // a device name; empty: none is requested
  std::string source;  // the origin of the request: "--place 'dense*=/gpu:1'"
};
// [node of the model] The last rule that matches a layer's name decides, else the layer's own "device" field.
// INVALID_ARGUMENT if a rule matches no layer. If several rules match a layer, `remarks` gets the one that
// decides.
absl::StatusOr<std::vector<AskedDevice>> AskedDevices(const nn::Model& model,
                                                      absl::Span<const std::string> rules,
                                                      std::vector<std::string>& remarks);

struct LayerPlacement {
  std::vector<FoundDevice> devices;  // each device once, in the order of the layers
  std::vector<int> device_of;        // [node of the model] index in `devices`; -1: on another worker
  // [node of the model] The node's task, if the model is divided over workers; else empty.
  std::vector<DeviceName> elsewhere{};
  std::vector<std::string> remarks{}, warnings{};
};

// Places each layer on the device that AskedDevices() returns for it, else on `request.device`. Open parts of
// a name are taken from `request.device`. INVALID_ARGUMENT: a rule that matches no layer; a device that does
// not exist (TensorFlow's message, with the devices that do exist), unless `request.allow_soft_placement` is
// set. `here` [node of the model], for a model that is divided over workers, marks this worker's layers: the
// others are left out, and tasks in names are ignored. Null: all layers are on this worker.
absl::StatusOr<LayerPlacement> PlaceLayers(const nn::Model& model, absl::Span<const std::string> rules,
                                           const DeviceRequest& request, const DeviceMakers& makers,
                                           const std::vector<bool>* here = nullptr);

// The lines of --log_device_placement for layers: "dense: (Dense): /job:worker/task:0/device:CPU:0".
std::vector<std::string> DescribeLayers(const nn::Model& model, const LayerPlacement& placement);
// The lines for a job's variables: the rows and bytes of each one on each server, and how evenly the servers
// are filled.
std::vector<std::string> DescribeVariables(const nn::Model& model, int servers);

}  // namespace cairn::worker
