// Embedding tables outside the model: each Embedding layer becomes an input that takes the rows which the layer would
// look up. This is how tables are trained that servers store by rows.
//
//   the caller looks up rows of the table by the ids ─► Replica::ForwardBackward() on the model without the tables
//   ─► the gradients with respect to the new inputs, which the caller adds up by id
//
// The functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/layer/initializer.h"
#include "nn/layers/row_table.h"
#include "nn/model.h"

namespace cairn::nn {

// A call of an Embedding layer that an input replaces.
struct TableLookup {
  std::string
      layer;    // the Embedding: its table. Two lookups have the same layer if the layer was called twice
  int ids = 0;  // the input of the original model that contains the ids
  std::string ids_name{};  // its name
  int input = 0;           // the input of the new model that takes the rows of the table
  // The table is [rows, width]. Ids outside [0, rows) are errors; the caller may set `rows` to 0, for any id.
  int64_t rows = 0, width = 0;
  InitializerSpec initializer;
  // The number of ids in each example. The new input takes as many rows, in the order of the ids. 0 if the ids are
  // ragged.
  int64_t ids_per_example = 0;
  // Not empty: the new input takes one row for each example, in which its rows are pooled: "sum", "mean" or "sqrtn".
  std::string combiner{};
  int weights = -1;                 // the input of the original model with the weights of the ids; -1: none
  const RowTable* table = nullptr;  // of the layer, if it has one; lives as long as the original model
};

struct ModelWithoutTables {
  // The inputs are those of the original model that are still read, or were never read, and then one for each lookup,
  // named after the layer: "words", and "words:1" for the second call. These need a gradient (see ModelInput).
  // canonical_json() is that of the original model.
  Model model;
  std::vector<int> kept_inputs;  // [input of `model` before those of lookups] its index in the original model
  std::vector<TableLookup> lookups;  // in the order of the nodes, which is that of the inputs
};

// The names of the layers whose tables are always replaced (Layer::row_table), in the order of their first calls.
std::vector<std::string> LayersOfRowTables(const Model& model);
// The names of the Embedding layers, and of those above, in the order of their first calls.
std::vector<std::string> EmbeddingLayers(const Model& model);
// Those among them whose table has more than `rows` rows.
std::vector<std::string> EmbeddingLayersAbove(const Model& model, int64_t rows);
// INVALID_ARGUMENT, naming the layer, if it is absent or no Embedding.
absl::Status CheckIsEmbedding(const Model& model, const std::string& layer);

// Replaces every call of the Embeddings named in `layers`. Where an Embedding reads a ragged input, the
// GlobalAveragePooling1D behind it is replaced too. Variables of other layers keep their names, order and initial
// values. INVALID_ARGUMENT, naming the layer, if it is absent or no Embedding, if its ids are not an input of the
// model, its table has a regularizer or a constraint or is not trainable, or it makes the output of the model.
absl::StatusOr<ModelWithoutTables> ReplaceEmbeddings(const Model& model,
                                                     absl::Span<const std::string> layers);

}  // namespace cairn::nn
