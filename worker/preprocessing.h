// How training makes inputs of what is in the files: the columns that it reads and the factors that it
// multiplies by. Kept as preprocessing.json beside a trained model, so that its inputs mean the same wherever
// it is used.
//
// Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/columns.h"
#include "worker/data/dataset.h"

namespace cairn::worker {

struct Preprocessing {
  struct Input {
    std::string name;  // of the model's input layer
    bool bytes = false;
    float scale = 1;  // the factor of its values, given or by default

    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs{};             // in the model's order
  std::optional<float> input_scale{};      // --input_scale; nullopt: the default
  std::optional<data::Columns> columns{};  // of CSV and TFRecord files

  friend bool operator==(const Preprocessing&, const Preprocessing&) = default;
};

// How `options`, which name the model's inputs, read files with these bytes and columns (data::TrainingData).
Preprocessing PreprocessingOf(const data::DataOptions& options, const std::vector<bool>& byte_inputs,
                              const std::optional<data::Columns>& columns);

std::string ToText(const Preprocessing& preprocessing);
// INVALID_ARGUMENT naming `source` and the field for anything that ToText() does not write.
absl::StatusOr<Preprocessing> ParsePreprocessing(absl::string_view text, absl::string_view source);

// Sets what the flags behind `options` leave open to what it was in training.
void UseWhereOpen(const Preprocessing& trained, data::DataOptions& options);

// INVALID_ARGUMENT with both values where `now` gives an input another meaning than `trained`: another factor
// for values of the same type (those of another type may need another one), or other columns by name.
absl::Status CheckSame(const Preprocessing& trained, const Preprocessing& now);

// What UseWhereOpen() took over for files that are read as `now`: "columns a, b, label y; --input_scale 0.5";
// and the inputs that are of another type than in training. Empty: nothing.
std::string DescribeUse(const Preprocessing& trained, const Preprocessing& now);

}  // namespace cairn::worker
