// How training converts the contents of files to inputs: the columns that it reads and the factors that it
// multiplies by. Saved as preprocessing.json next to a trained model, so that inputs mean the same wherever
// the model is used.
//
// Values; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/columns.h"
#include "data/dataset.h"

namespace cairn::worker {

struct Preprocessing {
  struct Input {
    std::string name;  // the name of the model's input layer
    bool bytes = false;
    float scale = 1;  // the factor for the input's values: --input_scale or the default

    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs{};             // in the model's order
  std::optional<float> input_scale{};      // --input_scale; nullopt: the default
  std::optional<data::Columns> columns{};  // of formats with columns
  std::optional<float> label_threshold{};  // --label_threshold; nullopt: labels are as in the files

  friend bool operator==(const Preprocessing&, const Preprocessing&) = default;
};

// The preprocessing of a data set. `options`: the options with which it was read, with the names of the
// model's inputs. `byte_inputs` and `columns`: see data::TrainingData.
Preprocessing PreprocessingOf(const data::DataOptions& options, const std::vector<bool>& byte_inputs,
                              const std::optional<data::Columns>& columns);

std::string ToText(const Preprocessing& preprocessing);
// INVALID_ARGUMENT naming `source` and the field for anything that ToText() does not write.
absl::StatusOr<Preprocessing> ParsePreprocessing(absl::string_view text, absl::string_view source);

// Sets the options that the user left open to their values in training.
void UseWhereOpen(const Preprocessing& trained, data::DataOptions& options);

// INVALID_ARGUMENT with both values if the meaning of an input differs: values of the same type have another
// factor (values of another type may need another factor), the columns have other names, or labels have another
// threshold.
absl::Status CheckSame(const Preprocessing& trained, const Preprocessing& now);

// Describes the settings that UseWhereOpen() took from `trained`: "columns a, b, label y; --input_scale 0.5".
// Also lists the inputs whose type in `now` differs from training. Empty if there is nothing to describe.
std::string DescribeUse(const Preprocessing& trained, const Preprocessing& now);

}  // namespace cairn::worker
