// A model as its JSON describes it: layers, and their calls on one another. A layer may itself be a model. Made by
// ReadModelGraph(), and then added to a ModelBuilder, where only layers and their calls remain.
//
// Used while a model is read, by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nn/layer/keras_class.h"
#include "nn/model_builder.h"

namespace cairn::nn {

// The output of a call of a layer. A model within the model, or a recurrent layer that returns its states, has several.
struct Tensor {
  std::string layer;  // its name within its own model
  int64_t call = 0;
  int64_t output = 0;
  friend bool operator<(const Tensor& a, const Tensor& b) {
    return std::tie(a.layer, a.call, a.output) < std::tie(b.layer, b.call, b.output);
  }
  friend bool operator==(const Tensor& a, const Tensor& b) {
    return std::tie(a.layer, a.call, a.output) == std::tie(b.layer, b.call, b.output);
  }
};

struct ModelGraph;

struct GraphLayer {
  struct Call {
    std::vector<Tensor> inputs;
    std::vector<Tensor> masks{};  // the keyword argument `mask`
    bool takes_masks = true;      // of its inputs, if the layer takes masks
  };

  ReadLayer read;
  std::shared_ptr<const ModelGraph> model{};  // null unless the layer is a model
  std::vector<Call> calls{};

  bool is_input() const { return read.layer == nullptr && read.function == nullptr && model == nullptr; }
};

// A function of a class with which Keras 3 computes masks. ModelGraph::layers has it too if it computes other values.
struct MaskFunction {
  std::string class_name;
  std::vector<Tensor> inputs{};
  std::optional<double> number{};  // the last argument that is a number
  absl::Status fault{};            // why it cannot compute other values
};

struct ModelGraph {
  std::string name, class_name;      // "Functional", "Sequential", or a class of keras_hub
  std::vector<GraphLayer> layers{};  // in the file's order
  std::vector<Tensor> inputs{}, outputs{};
  std::vector<std::string>
      output_keys{};  // [output] its key, if the file has a dictionary of outputs; else empty

  // The name that Keras gives to an output.
  const std::string& NameOfOutput(size_t output) const {
    return output_keys.empty() ? outputs[output].layer : output_keys[output];
  }
  std::map<std::string, MaskFunction> mask_functions{};  // by name
};

// Where a model is in its file, and what its layers take from the models around it.
struct GraphPlace {
  const std::map<std::string, int64_t>& lines;  // of LinesOfElements()
  std::string pointer{};                        // the JSON pointer of the model
  LayerScope scope{};
  std::vector<KerasGroup> groups{};  // of the models around the layers
  bool of_hub_layer = false;         // the model is a layer of keras_hub (nn/hub)
};

// Reads the entries of a model's list of layers, except for their calls.
class LayerListReader {
 public:
  // `lines` [layer] may be shorter than the list. The other arguments must outlive the reader.
  LayerListReader(const GraphPlace& place, std::vector<int64_t> lines, ModelBuilder& builder)
      : place_(place), lines_(std::move(lines)), builder_(builder) {}

  // Reads the entry number `position` of the list. Entries must come in their order.
  absl::StatusOr<GraphLayer> Read(const nlohmann::json& entry, size_t position);

 private:
  absl::StatusOr<GraphLayer> ReadModel(const nlohmann::json& entry, size_t position);
  // The group of the next layer in Keras' files.
  KerasGroup GroupOf(const std::string& class_name, const std::string& layer);
  int64_t line(size_t position) const { return position < lines_.size() ? lines_[position] : 0; }

  const GraphPlace& place_;
  const std::vector<int64_t> lines_;
  ModelBuilder& builder_;
  GroupNames group_names_;
};

// Reads a document with class_name and config. `builder` keeps the names of layers unique.
absl::StatusOr<ModelGraph> ReadModelGraph(const nlohmann::json& document, const GraphPlace& place,
                                          ModelBuilder& builder);

// Read the config of one kind of model.
absl::StatusOr<ModelGraph> ReadFunctional(const nlohmann::json& config, std::vector<int64_t> lines,
                                          const GraphPlace& place, ModelBuilder& builder);
absl::StatusOr<ModelGraph> ReadSequential(const nlohmann::json& config, std::vector<int64_t> lines,
                                          const GraphPlace& place, ModelBuilder& builder);

// Adds the model's inputs, the calls that its output depends on, and the rows of its summary.
absl::Status AddModel(const ModelGraph& graph, ModelBuilder& builder);

}  // namespace cairn::nn
