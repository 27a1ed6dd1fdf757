// Data sets: examples with their targets, in memory or in mapped files, which can be read in any order.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "common/ids/id_map.h"
#include "data/augment.h"
#include "data/columns.h"
#include "data/input_rows.h"
#include "data/row_source.h"
#include "data/targets.h"
#include "data/tokens_json.h"

namespace cairn::data {

// The targets of a data set.
struct TargetInfo {
  int64_t per_example = 1;  // floats in one example's target: 1 for a class index
  // Largest class index + 1, including examples beyond DataOptions::limit; 0 if targets are not class
  // indices.
  int64_t num_classes = 0;
  // The largest target + 1 if each example has several targets and all of them are non-negative integers,
  // which may be class indices of positions; otherwise 0.
  int64_t position_classes = 0;
  // One example's target, of `per_example` elements: [] or [n], or a mask's [height,width].
  Shape shape{};
  bool are_inputs = false;  // the target of each example is its input (DataOptions::autoencoder)
};

// Immutable after loading; read from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const Shape& example_shape() const = 0;  // [28,28,1]
  virtual TargetInfo target_info() const = 0;
  int64_t num_targets() const { return target_info().per_example; }
  int64_t num_classes() const { return target_info().num_classes; }
  // The name of the inputs in messages: "mnist.npz: x_train".
  virtual std::string inputs_name() const { return "inputs"; }
  // The target of example `index` [num_targets()], as Read() writes it; valid during the data set's lifetime.
  // Empty if it is not in memory.
  virtual absl::Span<const float> Target(int64_t /*index*/) const { return {}; }
  // The name of the target of example `index` in messages: "mnist.npz: y_train: example 7".
  virtual std::string TargetName(int64_t index) const;
  // The weights of at least size() examples, valid during the data set's lifetime. Null: every example weighs 1.
  virtual const Weights* weights() const { return nullptr; }
  bool weighted() const { return weights() != nullptr; }
  int64_t weights_per_example() const { return weighted() ? weights()->per_example() : 0; }
  // The weights of example `index`, [weights_per_example()].
  absl::Span<const float> WeightsOf(int64_t index) const {
    return weighted() ? weights()->Of(index) : absl::Span<const float>();
  }
  // How the loader must vary examples; valid for example_shape().
  virtual Augmentation augmentation() const { return {}; }
  // Announces that `examples` will be read: soon, so that examples on disk are fetched together; or after a few others,
  // so that the processor fetches them from memory. Does not wait. Only the speed depends on it.
  enum class Fetch { kFromDisk, kFromMemory };
  virtual void Prefetch(absl::Span<const uint32_t> /*examples*/, Fetch /*fetch*/) const {}
  // [input of the model] How Read() writes the inputs: together they have the elements of example_shape().
  virtual std::vector<InputSpec> input_specs() const { return {{DType::kFloat32, example_shape()}}; }
  // Writes example `index`: its inputs to `inputs`, which have the types and sizes of input_specs(), its target to
  // `target` [num_targets()].
  virtual void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
                    absl::Span<float> target) const = 0;
  // The first error of Read(), naming the file. Examples read since then may be wrong, so check this after
  // reading and before using examples.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// "class indices", "3 numbers"
std::string DescribeTargets(const Dataset& dataset);

struct DataOptions {
  // A file, or a directory whose files have names that LoadTrainingData() knows. Its NOT_FOUND error lists
  // them.
  std::string path{};
  // The factor by which float32 inputs are multiplied; integers are read as they are. NaN: 1 for numbers, and
  // 1/255 for bytes (as in Keras' MNIST example) unless raw_bytes is true for the input.
  float input_scale = std::numeric_limits<float>::quiet_NaN();
  // [input of the model] True if bytes are passed unchanged, since a layer of the model scales them or uses
  // them as indices. Empty: false for all inputs.
  std::vector<bool> raw_bytes{};
  // Read this many examples of each set; 0 means all.
  int64_t limit = 0;
  // The names of the model's input layers, in the model's order. If there are several, an example is the
  // concatenation of the inputs' values, which come from arrays x_train_NAME, or from columns NAME unless
  // feature_columns selects others.
  std::vector<std::string> input_names{};
  // [input_names] The shape that each input layer takes for one example. Empty: unknown.
  std::vector<Shape> input_shapes{};
  // [input_names] The type in which each input layer takes its numbers. Empty: all inputs are read as one row of
  // float32. Not empty: input_shapes are given too.
  std::vector<DType> input_types{};
  // [input_names] True if examples have different numbers of values for the input, which may be 0. Empty: false for
  // all inputs.
  std::vector<bool> ragged_inputs{};
  // [input_names] The number of rows of the Embedding that looks up the values of each input; 0: none does.
  // Empty: 0 for all inputs.
  std::vector<int64_t> table_rows{};
  bool IsRagged(size_t input) const { return input < ragged_inputs.size() && ragged_inputs[input]; }
  // [input_names] Makes the ids of an input from its values, which are strings if text_inputs is true; null: the input
  // takes the values. Empty: null for all inputs.
  std::vector<std::shared_ptr<const IdMap>> id_maps{};
  std::vector<bool> text_inputs{};
  bool IsText(size_t input) const { return input < text_inputs.size() && text_inputs[input]; }
  // The map of an input of strings; null for any other input.
  const IdMap* TextMapOf(size_t input) const { return IsText(input) ? id_maps[input].get() : nullptr; }
  // [input_names] The input whose ids the values of this input weight, one by one; -1: none. Empty: -1 for all inputs.
  std::vector<int> weights_of{};
  int WeightsOf(size_t input) const { return input < weights_of.size() ? weights_of[input] : -1; }
  // The shape of one example in the model. Examples of a compatible shape (example_shape.h) get this shape if
  // it has at least two axes. All other examples keep their own shape.
  Shape example_shape{};

  // The factor for the values of the model's input `input`; NaN: the default, which depends on the type.
  float ScaleOf(size_t input) const;

  // Arrays: the outputs of the model that have targets, in the order of their targets. Empty: the model has one output.
  std::vector<TargetPart> target_parts{};

  // For formats whose examples have named columns (CSV, TFRecord).
  std::string label_column{};                  // its name, or in CSV its index; empty: see the format
  std::vector<std::string> feature_columns{};  // in the order of the inputs; empty: see the format
  // CSV: the value of an empty field; nullopt: an empty field is an error.
  std::optional<float> missing_value{};
  // Targets, of one number each, become class 1 where they are at least this, and class 0 elsewhere. nullopt: targets
  // are as in the files.
  std::optional<float> label_threshold{};
  // The target of an example is its input, of float32, in the place of what the files have.
  bool autoencoder = false;
  // Only the shape of the examples is needed: arrays of targets may be missing, as those of each output of a model that
  // is not known yet.
  bool only_shapes = false;
  // The number of bad rows of each set that may be skipped.
  int64_t max_bad_rows = 0;
  // CSV: the separator; 0: comma, semicolon or tab, as detected in the first file.
  char csv_separator = 0;
  // Criteo, CSV, libsvm: ids are HashedId() in [0, table_rows), instead of the values themselves.
  bool hash_ids = false;
  // The columns that the model was trained on, for files of the same format. Each of label_column,
  // feature_columns and missing_value that is unset is taken from them. An option that contradicts them is an
  // error. nullopt: unknown.
  std::optional<Columns> trained_columns{};

  // For prediction: used by LoadExamples().
  bool labels_optional = false;  // files without labels are accepted
  // The words that occur as labels, in the order of their class indices.
  std::vector<std::string> class_names{};

  // The following options apply to the training set only. `class_weights`: the factor for the weight of each
  // example of a class; 1 if absent.
  std::map<int64_t, float> class_weights{};
  // The numbers of the target of each row of the model's output: 1 for class indices, the number of classes for vectors
  // of them. 0: unknown; then targets are vectors if all of them are one-hot or probabilities.
  int64_t targets_per_row = 0;
  Augmentation augmentation{};
};

// INVALID_ARGUMENT naming `name` if examples of the shape `given` do not fit the model's input `input`. OK if
// the options do not give its shape.
absl::Status CheckInputShape(const DataOptions& options, size_t input, const Shape& given,
                             const std::string& name);

// INVALID_ARGUMENT, naming the inputs, if an example with `values` [input] has other numbers of weights than of ids.
absl::Status CheckWeightCounts(const DataOptions& options, absl::Span<const int64_t> values);

// A message for the user at startup.
struct Note {
  std::string text;
  bool usual = true;  // true: shown only in the log; false: also on the progress display
};

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;   // null if there is none
  std::vector<std::string> class_names;  // [class]; empty if labels are not words or folders
  // Warnings for the log: missing and unused parts of the files.
  std::vector<std::string> remarks;
  std::vector<Note> notes;  // how the files were read
  // [input of the model] True if its values are bytes in the files. Empty: false for all inputs.
  std::vector<bool> byte_inputs;
  std::optional<Columns> columns;  // set for CSV, TFRecord, Criteo and libsvm files
  std::optional<TokensJson>
      tokens{};  // how ids of tokens are stored, and their texts; set for files of tokens
};

// Examples that need not have labels, for prediction.
struct Examples {
  std::unique_ptr<RowSource> inputs{};
  std::optional<Targets> targets{};
  // For the log: how the files were read, and their unused content.
  std::vector<std::string> notes{};
  std::vector<bool> byte_inputs{};   // as in TrainingData
  std::optional<Columns> columns{};  // as in TrainingData
};

// Loads the examples at `given.path`: a CSV, TFRecord, Criteo or libsvm file, or a directory of images, with or
// without a folder for each class. Images are in the order of their names. Returns nullopt for any other path.
// Errors name the file and its fault.
absl::StatusOr<std::optional<Examples>> LoadExamples(const DataOptions& given);

// Loads the data set at `given.path`. NOT_FOUND listing the names that were searched, or INVALID_ARGUMENT
// naming the file and its fault.
absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& given);

}  // namespace cairn::data
