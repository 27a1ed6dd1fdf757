// Which device computes which layer: resolves --place and the "device" fields of the model file, and
// describes the result for the log. Computed once by cairn-worker's main thread; values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/cluster_spec.h"
#include "nn/model.h"
#include "worker/devices/device_choice.h"

namespace cairn::worker {

// The device that is requested for a layer.
struct AskedDevice {
  std::string text;    // a device name; empty: none is requested
  std::string source;  // the origin of the request: "--place 'dense*=/gpu:1'"
};
// [node of the model] The device requested for each node: by the last rule that matches its layer's name,
// else by the layer's own "device" field. INVALID_ARGUMENT if a rule matches no layer. If a rule overrides an
// earlier one, a note is added to `remarks`.
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
// a name are taken from `request.device`. INVALID_ARGUMENT for a rule that matches no layer and, unless
// `request.allow_soft_placement` is set, for a device that does not exist (TensorFlow's message, which lists
// the existing devices). If the model is divided over workers, `here` [node of the model] marks this worker's
// layers: only these are placed, and tasks in device names are ignored. Null: all layers are on this worker.
absl::StatusOr<LayerPlacement> PlaceLayers(const nn::Model& model, absl::Span<const std::string> rules,
                                           const DeviceRequest& request, const DeviceMakers& makers,
                                           const std::vector<bool>* here = nullptr);

// The lines of --log_device_placement for layers: "dense: (Dense): /job:worker/task:0/device:CPU:0".
std::vector<std::string> DescribeLayers(const nn::Model& model, const LayerPlacement& placement);
// The lines of --log_device_placement for variables: the rows and bytes of each variable on each server, and
// how evenly the servers are filled.
std::vector<std::string> DescribeVariables(const nn::Model& model, int servers);

}  // namespace cairn::worker
