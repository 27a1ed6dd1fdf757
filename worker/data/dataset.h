// Examples with their targets, in memory or in mapped files, that can be read in any order.
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
#include "worker/data/augment.h"
#include "worker/data/columns.h"
#include "worker/data/row_source.h"
#include "worker/data/targets.h"

namespace cairn::data {

// Immutable after loading; read from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const Shape& example_shape() const = 0;  // [28,28,1]
  virtual int64_t num_targets() const = 0;         // floats of one example's target: 1 for a class index
  // Largest class index + 1, also of examples beyond DataOptions::limit; 0 where targets are no class
  // indices.
  virtual int64_t num_classes() const = 0;
  // The largest target + 1, if each example has several integers as its target and none is negative, as if
  // they were class indices of positions; 0 for other targets.
  virtual int64_t position_classes() const { return 0; }
  // The shape of one example's target, of num_targets() elements: [] or [n], or a mask's [height,width].
  virtual Shape target_shape() const { return {num_targets()}; }
  // The name of the inputs in messages: "mnist.npz: x_train".
  virtual std::string inputs_name() const { return "inputs"; }
  // The target of example `index` [num_targets()], as Read() writes it; valid as long as the data set. Empty
  // where it is not in memory.
  virtual absl::Span<const float> Target(int64_t /*index*/) const { return {}; }
  // The name of the target of example `index` in messages: "mnist.npz: y_train: example 7".
  virtual std::string TargetName(int64_t index) const;
  // False: every example weighs 1.
  virtual bool weighted() const { return false; }
  // How the loader varies examples before it hands them out; valid for example_shape().
  virtual Augmentation augmentation() const { return {}; }
  // Says that `examples` are about to be read, so that those on the disk are fetched together. Does not wait.
  virtual void Prefetch(absl::Span<const uint32_t> /*examples*/) const {}
  // Writes example `index`: its inputs, scaled, to `inputs` [example_shape().num_elements()], its target to
  // `target` [num_targets()]. Returns its weight.
  virtual float Read(int64_t index, absl::Span<float> inputs, absl::Span<float> target) const = 0;
  // The first error that Read() met, naming the file: examples since then may be wrong. Ask after reading,
  // before anything is made of the examples.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// "class indices", "3 numbers"
std::string DescribeTargets(const Dataset& dataset);

struct DataOptions {
  // A file, or a directory with files under the names that LoadTrainingData() lists when it finds none.
  std::string path{};
  // Inputs are multiplied by this. NaN: numbers by 1, and bytes by 1/255, as Keras' MNIST example does by
  // hand, unless raw_bytes says otherwise.
  float input_scale = std::numeric_limits<float>::quiet_NaN();
  // [input of the model] bytes are passed as they are, since a layer of the model scales or indexes by them.
  // Empty: none.
  std::vector<bool> raw_bytes{};
  // Read this many examples of the training set and of the validation set; 0 is all.
  int64_t limit = 0;
  // The model's input layers, in its order. From two on, an example is what belongs to each, one behind the
  // other: arrays x_train_NAME, or columns NAME, where feature_columns does not say otherwise.
  std::vector<std::string> input_names{};
  // [input_names] What each input layer takes of one example. Empty: not known.
  std::vector<Shape> input_shapes{};
  // The shape of one example in the model. Compatible examples (example_shape.h) get this shape, unless it is
  // flat. A scalar: examples keep their own shape.
  Shape example_shape{};

  // The factor for the values of the model's input `input`; NaN: the default, which depends on the type.
  float ScaleOf(size_t input) const;

  // Of formats whose examples have named columns (CSV, TFRecord).
  std::string label_column{};                  // its name, or in CSV its index; empty: see the format
  std::vector<std::string> feature_columns{};  // in the order of the inputs; empty: see the format
  std::optional<float> missing_value{};  // what an empty field of CSV stands for; otherwise it is a fault
  int64_t max_bad_rows = 0;              // so many faulty rows of each set are left out and counted
  char csv_separator = 0;                // of CSV; 0: comma, semicolon or tab, as the first file shows
  // Those that the model was trained on, for files of the same format: used where label_column,
  // feature_columns or missing_value say nothing; where they say otherwise, an error. nullopt: not known.
  std::optional<Columns> trained_columns{};

  // For prediction, LoadExamples().
  bool labels_optional = false;  // files without labels are good too
  std::vector<std::string>
      class_names{};  // what labels that are words stand for, in the order of their indices

  // Of the training set alone.
  std::map<int64_t, float> class_weights{};  // multiply the weights of the examples of a class; otherwise 1
  Augmentation augmentation{};
};

// INVALID_ARGUMENT naming `name` where examples of the shape `given` do not fit the model's input `input`. OK
// where options do not say what it takes.
absl::Status CheckInputShape(const DataOptions& options, size_t input, const Shape& given,
                             const std::string& name);

// A message for the user at start.
struct Note {
  std::string text;
  bool usual = true;  // shown only in the log; otherwise on the progress display too
};

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;   // null when there is none
  std::vector<std::string> class_names;  // [class]; empty where labels are not words or folders
  std::vector<std::string> remarks;      // warnings for the log: what the files lack, or have and is not used
  std::vector<Note> notes;               // how the files were read
  std::vector<bool> byte_inputs;   // [input of the model] its values are bytes in the files; empty: none
  std::optional<Columns> columns;  // of CSV and TFRecord files
};

// Examples that need not have labels, for prediction.
struct Examples {
  std::unique_ptr<RowSource> inputs{};
  std::optional<Targets> targets{};
  std::vector<std::string>
      notes{};  // for the log: how the files were read, and what they have that is not used
  std::vector<bool> byte_inputs{};   // as in TrainingData
  std::optional<Columns> columns{};  // as in TrainingData
};

// The examples of `given.path`: a CSV or TFRecord file, or a directory of images, in the order of their
// names, with or without a folder for each class. nullopt for any other path; an error names the file and its
// fault.
absl::StatusOr<std::optional<Examples>> LoadExamples(const DataOptions& given);

// NOT_FOUND listing the names that were looked for, or INVALID_ARGUMENT naming the file and its fault.
absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& given);

}  // namespace cairn::data
