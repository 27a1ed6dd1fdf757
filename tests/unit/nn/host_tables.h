// Embedding tables in host memory: what servers and workers do with the tables of a model, in a few lines. And the
// model and the batches with which tests compare it to the model as it was.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "nn/replace_embeddings.h"
#include "nn/replica/replica.h"

namespace cairn::nn {

// {"class_name": "Dense", "config": {"name": "d", "units": 2}, "inbound_nodes": [[["x", 0, 0, {}]]]}
inline std::string LayerOf(absl::string_view class_name, absl::string_view name, absl::string_view config,
                           absl::string_view inbound) {
  return absl::StrCat(R"({"class_name": ")", class_name, R"(", "name": ")", name,
                      R"(", "config": {"name": ")", name, "\"", config.empty() ? "" : ", ", config,
                      R"(}, "inbound_nodes": [)", inbound, "]}");
}

// A recommender: "users" is looked up once, "items" twice, one of them by a sequence, "tags" by ragged ids. "unused"
// and "numbers" are floats. "bottom", a tower of its own, comes after the tables in the file.
inline std::string Recommender(absl::string_view of_users = "") {
  const std::string layers = absl::StrCat(
      LayerOf("InputLayer", "numbers", R"("batch_shape": [null, 2])", ""), ",",
      LayerOf("InputLayer", "user", R"("batch_shape": [null, 1], "dtype": "int64")", ""), ",",
      LayerOf("InputLayer", "unused", R"("batch_shape": [null, 1])", ""), ",",
      LayerOf("InputLayer", "seen", R"("batch_shape": [null, 4], "dtype": "int32")", ""), ",",
      LayerOf("InputLayer", "item", R"("batch_shape": [null, 1], "dtype": "int64")", ""), ",",
      LayerOf("InputLayer", "tag", R"("batch_shape": [null, null], "dtype": "int64", "ragged": true)", ""),
      ",",
      LayerOf("Embedding", "users", absl::StrCat(R"("input_dim": 5, "output_dim": 3)", of_users),
              R"([["user", 0, 0]])"),
      ",", LayerOf("Flatten", "user_row", "", R"([["users", 0, 0]])"), ",",
      LayerOf("Reshape", "pairs", R"("target_shape": [2, 2])", R"([["seen", 0, 0]])"), ",",
      LayerOf("Embedding", "items", R"("input_dim": 7, "output_dim": 3)",
              R"([["pairs", 0, 0]], [["item", 0, 0]])"),
      ",", LayerOf("Reshape", "seen_rows", R"("target_shape": [4, 3])", R"([["items", 0, 0]])"), ",",
      LayerOf("GlobalAveragePooling1D", "seen_mean", "", R"([["seen_rows", 0, 0]])"), ",",
      LayerOf("Flatten", "item_row", "", R"([["items", 1, 0]])"), ",",
      LayerOf("Embedding", "tags", R"("input_dim": 6, "output_dim": 3)", R"([["tag", 0, 0]])"), ",",
      LayerOf("GlobalAveragePooling1D", "tag_mean", "", R"([["tags", 0, 0]])"), ",",
      LayerOf("Dense", "bottom", R"("units": 3, "activation": "tanh")", R"([["numbers", 0, 0]])"), ",",
      LayerOf("Multiply", "match", "", R"([["user_row", 0, 0], ["seen_mean", 0, 0]])"), ",",
      LayerOf("Concatenate", "all", "",
              R"([["user_row", 0, 0], ["match", 0, 0], ["item_row", 0, 0], ["tag_mean", 0, 0],
                  ["bottom", 0, 0]])"),
      ",", LayerOf("Dense", "hidden", R"("units": 6, "activation": "tanh")", R"([["all", 0, 0]])"), ",",
      LayerOf("Dense", "scores", R"("units": 3)", R"([["hidden", 0, 0]])"));
  return absl::StrCat(
      R"({"class_name": "Functional", "config": {"name": "recommender", "layers": [)", layers,
      R"(], "input_layers": [["numbers", 0, 0], ["user", 0, 0], ["unused", 0, 0], ["seen", 0, 0],
                                              ["item", 0, 0], ["tag", 0, 0]],
                            "output_layers": [["scores", 0, 0]]}})");
}

// Examples of any model, with classes as targets. Ids are below 5, so that they repeat.
class IdExamples {
 public:
  IdExamples(const Model& model, int64_t count) : count_(count) {
    Random random(1, "examples");
    for (const ModelInput& input : model.inputs()) {
      Memory& memory = memory_.emplace_back();
      int64_t elements = count * input.shape.num_elements();
      if (input.ragged) {
        memory.splits = {0};
        for (int64_t i = 0; i < count; ++i) memory.splits.push_back(memory.splits.back() + 1 + i % 3);
        elements = memory.splits.back();
      }
      for (int64_t i = 0; i < elements; ++i) {
        memory.floats.push_back(random.NextUniform(-1, 1));
        memory.wide.push_back(static_cast<int64_t>(random.NextBelow(5)));
        memory.narrow.push_back(static_cast<int32_t>(memory.wide.back()));
      }
    }
    const auto classes = static_cast<uint64_t>(model.output_shape()[model.output_shape().rank() - 1]);
    for (int64_t i = 0; i < count; ++i) {
      labels_.push_back(classes == 1 ? random.NextUniform() : static_cast<float>(random.NextBelow(classes)));
      weights_.push_back(0.5f + random.NextUniform());
    }
    for (size_t i = 0; i < memory_.size(); ++i) inputs_.push_back(View(model.inputs()[i], memory_[i]));
  }

  BatchView Batch() const { return {.examples = count_, .inputs = inputs_, .targets = labels_}; }
  BatchView Weighted() const {
    BatchView batch = Batch();
    batch.weights = weights_;
    return batch;
  }

 private:
  struct Memory {
    std::vector<float> floats;
    std::vector<int64_t> wide, splits;
    std::vector<int32_t> narrow;
  };
  TensorView View(const ModelInput& input, const Memory& memory) const {
    if (input.ragged) {
      return {DType::kInt64, {memory.splits.back()}, memory.wide.data(), absl::MakeConstSpan(memory.splits)};
    }
    const Shape shape = {count_, input.shape.num_elements()};
    if (input.dtype == DType::kInt64) return {input.dtype, shape, memory.wide.data()};
    if (input.dtype == DType::kInt32) return {input.dtype, shape, memory.narrow.data()};
    return TensorView::OfFloats(shape, memory.floats);
  }

  const int64_t count_;
  std::vector<Memory> memory_;  // [input of the model]
  TensorViews inputs_;
  std::vector<float> labels_, weights_;
};

// The tables and the variables of a model without tables, as they are trained.
class HostTables {
 public:
  struct Step {
    BatchResult result;
    std::map<std::string, std::vector<float>> gradients;  // [variable of the original model]
    std::vector<int> announced;                           // what on_gradient() got, in order
  };

  HostTables(const Model& original, const ModelWithoutTables& without)
      : without_(without), parameters_(without.model.InitialParameters(1)) {
    const std::vector<float> parameters = original.InitialParameters(1);
    for (const TableLookup& lookup : without.lookups) {
      for (const ModelVariable& variable : original.variables()) {
        if (variable.name != lookup.layer + "/embeddings") continue;
        const auto begin = parameters.begin() + variable.offset;
        tables_[lookup.layer] = std::vector<float>(begin, begin + variable.shape.num_elements());
      }
    }
  }

  // Looks up the rows for a batch of the original model. The batch is valid until the next call.
  BatchView Lookup(const BatchView& batch) {
    rows_.clear();
    input_gradients_.clear();
    BatchView looked_up = batch;
    looked_up.inputs.clear();
    for (const int input : without_.kept_inputs) {
      looked_up.inputs.push_back(batch.inputs[static_cast<size_t>(input)]);
      looked_up.input_gradients.push_back({});
    }
    rows_.reserve(without_.lookups.size());
    input_gradients_.reserve(without_.lookups.size());
    for (const TableLookup& lookup : without_.lookups) {
      std::vector<float>& rows = rows_.emplace_back();
      Visit(lookup, batch, [&](int64_t id, int64_t to, float divisor) {
        rows.resize(std::max(rows.size(), static_cast<size_t>((to + 1) * lookup.width)));
        for (int64_t j = 0; j < lookup.width; ++j)
          rows[At(to, j, lookup)] += tables_[lookup.layer][At(id, j, lookup)];
        // The last of an example's ids divides the sum.
        if (divisor > 0) {
          for (int64_t j = 0; j < lookup.width; ++j) rows[At(to, j, lookup)] /= divisor;
        }
      });
      const Shape& shape = without_.model.inputs()[static_cast<size_t>(lookup.input)].shape;
      looked_up.inputs.push_back(TensorView::OfFloats({batch.examples, shape.num_elements()}, rows));
      std::vector<float>& gradient = input_gradients_.emplace_back(rows.size(), std::nanf(""));
      looked_up.input_gradients.push_back(absl::MakeSpan(gradient));
    }
    return looked_up;
  }

  // One training step: lookups, the replica's part, and the sums of the gradients of rows.
  Step Run(Replica& replica, const BatchView& batch) {
    Step step;
    std::vector<float> dense(parameters_.size(), std::nanf(""));
    const BatchView looked_up = Lookup(batch);
    const std::vector<std::vector<float>>& final = input_gradients_;
    std::map<int, std::vector<float>> at_announcement;
    const auto result =
        replica.ForwardBackward(parameters_, looked_up, absl::MakeSpan(dense), [&](int gradient) {
          step.announced.push_back(gradient);
          if (gradient >= 0) return;
          const auto index = static_cast<size_t>(Node::OfModelInput(gradient)) - without_.kept_inputs.size();
          at_announcement[gradient] = final[index];
        });
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return step;
    step.result = *result;
    const std::vector<ModelVariable>& variables = without_.model.variables();
    EXPECT_EQ(step.announced.size(), variables.size() + without_.lookups.size());
    EXPECT_EQ(std::set<int>(step.announced.begin(), step.announced.end()).size(), step.announced.size());
    for (const ModelVariable& variable : variables) {
      const auto begin = dense.begin() + variable.offset;
      step.gradients[variable.name] = std::vector<float>(begin, begin + variable.shape.num_elements());
    }
    for (size_t i = 0; i < without_.lookups.size(); ++i) {
      const TableLookup& lookup = without_.lookups[i];
      EXPECT_EQ(at_announcement[Node::OfModelInput(lookup.input)], final[i]) << "announced too early";
      Sum(lookup, batch, final[i], step.gradients[lookup.layer + "/embeddings"]);
    }
    return step;
  }

  // Gradient descent on everything.
  void Descend(const Step& step) {
    for (auto& [layer, table] : tables_) {
      const std::vector<float>& gradient = step.gradients.at(layer + "/embeddings");
      for (size_t i = 0; i < table.size(); ++i) table[i] -= 0.5f * gradient[i];
    }
    for (const ModelVariable& variable : without_.model.variables()) {
      const std::vector<float>& gradient = step.gradients.at(variable.name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        parameters_[static_cast<size_t>(variable.offset) + i] -= 0.5f * gradient[i];
      }
    }
  }

  std::map<std::string, std::vector<float>>& tables() { return tables_; }
  std::vector<float>& parameters() { return parameters_; }
  // The last step's gradients with respect to the rows.
  std::vector<std::vector<float>>& input_gradients() { return input_gradients_; }

 private:
  static size_t At(int64_t row, int64_t column, const TableLookup& lookup) {
    return static_cast<size_t>(row * lookup.width + column);
  }

  // Calls `visit(id, row of the input, divisor)` for each id of the batch. The divisor is 0 except for the last id of
  // a ragged example, where it is the number of its ids.
  template <typename Visitor>
  static void Visit(const TableLookup& lookup, const BatchView& batch, const Visitor& visit) {
    const TensorView& ids = batch.inputs[static_cast<size_t>(lookup.ids)];
    if (lookup.ids_per_example > 0) {
      for (int64_t i = 0; i < batch.examples * lookup.ids_per_example; ++i) visit(ids.Integer(i), i, 0);
      return;
    }
    for (int64_t example = 0; example < batch.examples; ++example) {
      const int64_t begin = ids.row_splits[static_cast<size_t>(example)];
      const int64_t end = ids.row_splits[static_cast<size_t>(example) + 1];
      for (int64_t i = begin; i < end; ++i) {
        visit(ids.Integer(i), example, i + 1 == end ? static_cast<float>(end - begin) : 0.0f);
      }
    }
  }

  // Adds the gradients of rows up, as the layer would: one lookup after another, in the order of its ids.
  void Sum(const TableLookup& lookup, const BatchView& batch, const std::vector<float>& of_rows,
           std::vector<float>& total) const {
    std::vector<float> sum(static_cast<size_t>(lookup.rows * lookup.width));
    const TensorView& ids = batch.inputs[static_cast<size_t>(lookup.ids)];
    Visit(lookup, batch, [&](int64_t id, int64_t from, float) {
      const auto example = static_cast<size_t>(from);
      const float count = lookup.ids_per_example == 0
                              ? static_cast<float>(ids.row_splits[example + 1] - ids.row_splits[example])
                              : 1.0f;
      for (int64_t j = 0; j < lookup.width; ++j)
        sum[At(id, j, lookup)] += of_rows[At(from, j, lookup)] / count;
    });
    if (total.empty()) total.resize(sum.size());
    for (size_t i = 0; i < sum.size(); ++i) total[i] += sum[i];
  }

  const ModelWithoutTables& without_;
  std::map<std::string, std::vector<float>> tables_;        // [layer]
  std::vector<float> parameters_;                           // of the model without tables
  std::vector<std::vector<float>> rows_, input_gradients_;  // [lookup] of the last Lookup()
};

// The gradients of a step of the original model, by variable.
inline std::map<std::string, std::vector<float>> GradientsOf(const Model& model, Replica& replica,
                                                             absl::Span<const float> parameters,
                                                             const BatchView& batch) {
  std::vector<float> gradients(parameters.size());
  const auto result = replica.ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {});
  EXPECT_TRUE(result.ok()) << result.status();
  std::map<std::string, std::vector<float>> by_name;
  for (const ModelVariable& variable : model.variables()) {
    const auto begin = gradients.begin() + variable.offset;
    by_name[variable.name] = std::vector<float>(begin, begin + variable.shape.num_elements());
  }
  return by_name;
}

}  // namespace cairn::nn
