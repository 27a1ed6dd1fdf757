#include "worker/placement/layer_placement.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/net/cluster/placement.h"
#include "worker/devices/placement_rule.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

bool Fits(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string LayerNames(const nn::Model& model) {
  std::vector<std::string> names;
  std::set<const nn::Layer*> seen;
  for (const nn::Node& node : model.nodes()) {
    if (seen.insert(node.layer.get()).second) names.push_back(node.layer->name());
  }
  return absl::StrJoin(names, ", ");
}

// The error for a device that does not exist, in TensorFlow's words.
absl::Status CannotAssign(const nn::Layer& layer, const DeviceName& asked, const DeviceRequest& request,
                          const DeviceMakers& makers) {
  const std::string available =
      absl::StrJoin(AvailableDevices(request, makers), ", ",
                    [](std::string* out, const DeviceName& name) { out->append(name.ToString()); });
  const auto gpus = makers.count_gpus();
  return absl::InvalidArgumentError(
      absl::StrCat("Cannot assign a device for layer '", layer.name(), "' (", layer.class_name(),
                   "): it was explicitly assigned to ", asked.ToString(), " but available devices are [ ",
                   available, " ]. Make sure the device specification refers to a valid device.",
                   asked.type == kGpu && !gpus.ok() ? absl::StrCat(" (", gpus.status().message(), ")") : ""));
}

class Placer {
 public:
  // `any_task`: ignore the task in a device name.
  Placer(const DeviceRequest& request, const DeviceMakers& makers, DeviceName base, bool any_task)
      : request_(request), makers_(makers), base_(std::move(base)), any_task_(any_task) {}

  absl::StatusOr<FoundDevice> Find(const nn::Layer& layer, const AskedDevice& asked) {
    auto name = ParseDeviceName(asked.text);
    if (!name.ok()) return Annotate(name.status(), asked.source);
    if (any_task_) name = DeviceName{.type = name->type, .index = name->index};
    const DeviceName wanted = OverrideDeviceName(base_, *name);
    auto found = FindDevice(wanted.ToString(), asked.source, request_, makers_);
    if (!found.ok() && Compatible(wanted, {.job = request_.task.job, .task = request_.task.index}) &&
        CpuOperands(request_.cuda.precision).ok()) {
      return CannotAssign(layer, wanted, request_, makers_);
    }
    if (!found.ok()) return Annotate(found.status(), absl::StrCat("layer '", layer.name(), "'"));
    for (std::string& warning : found->warnings) {
      warning = absl::StrCat("layer '", layer.name(), "': ", warning, "; it is on ", found->name.ShortName());
    }
    return found;
  }

 private:
  const DeviceRequest& request_;
  const DeviceMakers& makers_;
  const DeviceName base_;
  const bool any_task_;
};

// The last rule that matches `layer`; null: none. Sets `fitted` [rule] for each matching rule, and adds a
// remark for each rule that a later one overrides.
const PlacementRule* LastThatFits(const std::vector<PlacementRule>& rules, const nn::Layer& layer,
                                  std::vector<bool>& fitted, std::vector<std::string>& remarks) {
  const PlacementRule* last = nullptr;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!Fits(rules[i].layers, layer.name())) continue;
    fitted[i] = true;
    if (last != nullptr && last->device != rules[i].device) {
      remarks.push_back(absl::StrCat("layer '", layer.name(), "': --place '", rules[i].layers, "=",
                                     rules[i].device, "' overrides the earlier '", last->layers, "=",
                                     last->device, "'"));
    }
    last = &rules[i];
  }
  return last;
}

// [node] The index of the first node with the same layer, or with the layer whose variables the node's layer shares.
// It is the node's own index unless such a layer was used before.
std::vector<size_t> FirstUses(const nn::Model& model) {
  std::map<const nn::Layer*, size_t> first;
  std::vector<size_t> uses;
  for (const nn::Node& node : model.nodes()) {
    const auto owner = std::find_if(model.nodes().begin(), model.nodes().end(), [&](const nn::Node& other) {
      return other.layer->name() == node.layer->variables_of() && !other.layer->is_mask();
    });
    const nn::Layer* const layer = owner == model.nodes().end() ? node.layer.get() : owner->layer.get();
    uses.push_back(first.try_emplace(layer, uses.size()).first->second);
  }
  return uses;
}

std::string Bytes(int64_t elements) {
  return absl::StrCat(elements * int64_t{sizeof(float)}, " bytes");
}

}  // namespace

absl::StatusOr<std::vector<AskedDevice>> AskedDevices(const nn::Model& model,
                                                      absl::Span<const std::string> rules,
                                                      std::vector<std::string>& remarks) {
  std::vector<PlacementRule> parsed;
  for (const std::string& rule : rules) {
    CAIRN_ASSIGN_OR_RETURN(parsed.emplace_back(), ParsePlacementRule(rule));
  }
  std::vector<AskedDevice> asked;
  std::vector<bool> fitted(parsed.size());
  const std::vector<size_t> first_uses = FirstUses(model);
  for (size_t i = 0; i < model.nodes().size(); ++i) {
    const nn::Node& node = model.nodes()[i];
    if (first_uses[i] < i) {
      asked.push_back(asked[first_uses[i]]);
      continue;
    }
    const PlacementRule* rule = LastThatFits(parsed, *node.layer, fitted, remarks);
    if (rule != nullptr) {
      asked.push_back({rule->device, absl::StrCat("--place '", rule->layers, "=", rule->device, "'")});
    } else if (!node.device.empty()) {
      asked.push_back({node.device, absl::StrCat("layer '", node.layer->name(), "': device")});
    } else {
      asked.emplace_back();
    }
  }
  for (size_t i = 0; i < parsed.size(); ++i) {
    if (fitted[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("--place: no layer's name matches '", parsed[i].layers,
                                                   "'; layers: ", LayerNames(model)));
  }
  return asked;
}

absl::StatusOr<LayerPlacement> PlaceLayers(const nn::Model& model, absl::Span<const std::string> rules,
                                           const DeviceRequest& request, const DeviceMakers& makers,
                                           const std::vector<bool>* here) {
  LayerPlacement placement;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<AskedDevice> asked, AskedDevices(model, rules, placement.remarks));
  // The default device. Looked up only if a layer needs it, since it may not exist.
  std::optional<FoundDevice> usual;
  const auto find_usual = [&]() -> absl::Status {
    if (usual.has_value()) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(usual, FindDevice(request.device, "--device", request, makers));
    return absl::OkStatus();
  };
  DeviceName base;
  if (request.device != "auto") {
    CAIRN_ASSIGN_OR_RETURN(base, ParseDeviceName(request.device));
  }
  Placer placer(request, makers, base, /*any_task=*/here != nullptr);
  const std::vector<size_t> first_uses = FirstUses(model);

  for (size_t i = 0; i < model.nodes().size(); ++i) {
    const nn::Node& node = model.nodes()[i];
    if (here != nullptr && !(*here)[i]) {
      placement.device_of.push_back(-1);
      continue;
    }
    if (first_uses[i] < i) {
      placement.device_of.push_back(placement.device_of[first_uses[i]]);
      continue;
    }
    FoundDevice found;
    if (!asked[i].text.empty()) {
      CAIRN_ASSIGN_OR_RETURN(found, placer.Find(*node.layer, asked[i]));
    } else {
      CAIRN_RETURN_IF_ERROR(find_usual());
      found = *usual;
      usual->warnings.clear();
    }
    std::move(found.warnings.begin(), found.warnings.end(), std::back_inserter(placement.warnings));
    found.warnings.clear();
    const auto known = std::find_if(placement.devices.begin(), placement.devices.end(),
                                    [&](const FoundDevice& device) { return device.name == found.name; });
    placement.device_of.push_back(static_cast<int>(known - placement.devices.begin()));
    if (known == placement.devices.end()) placement.devices.push_back(std::move(found));
  }
  return placement;
}

std::vector<std::string> DescribeLayers(const nn::Model& model, const LayerPlacement& placement) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < model.nodes().size(); ++i) {
    const nn::Layer& layer = *model.nodes()[i].layer;
    const int device = placement.device_of[i];
    DeviceName name =
        device < 0 ? placement.elsewhere[i] : placement.devices[static_cast<size_t>(device)].name;
    name.replica.reset();
    lines.push_back(absl::StrCat(layer.name(), ": (", layer.class_name(), "): ", name.ToString()));
  }
  return lines;
}

std::vector<std::string> DescribeVariables(const nn::Model& model, int servers) {
  const auto slices = net::PlaceVariables(VariablesOf(model), {.servers = servers});
  std::map<std::string, std::vector<std::string>> places;  // by variable: one line per slice
  for (size_t server = 0; server < slices.size(); ++server) {
    for (const net::Slice& slice : slices[server]) {
      places[slice.name].push_back(absl::StrCat(
          slice.name, ": ", slice.shape.ToString(),
          slice.whole() ? "" : absl::StrCat(" rows ", slice.row_begin, " to ", slice.row_end - 1), ": ",
          Bytes(slice.elements()), " on /job:ps/task:", server));
    }
  }
  std::vector<std::string> lines;
  for (const nn::ModelVariable& variable : model.variables()) {
    const std::vector<std::string>& of_variable = places[variable.name];
    lines.insert(lines.end(), of_variable.begin(), of_variable.end());
  }
  int64_t most = 0;
  for (size_t server = 0; server < slices.size(); ++server) {
    int64_t elements = 0;
    for (const net::Slice& slice : slices[server]) elements += slice.elements();
    most = std::max(most, elements);
    lines.push_back(absl::StrCat("/job:ps/task:", server, ": ", Bytes(elements), " in ",
                                 slices[server].size(), slices[server].size() == 1 ? " piece" : " pieces"));
  }
  const double mean = static_cast<double>(model.num_parameters()) / servers;
  lines.push_back(absl::StrFormat("the fullest server holds %.3f times the mean",
                                  mean > 0 ? static_cast<double>(most) / mean : 1.0));
  return lines;
}

}  // namespace cairn::worker
