#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/commands/command.h"
#include "cli/commands/generation.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/memory/out_of_memory.h"
#include "common/system/cores.h"
#include "data/array/array_file.h"
#include "data/array/array_rows.h"
#include "data/array/npy.h"
#include "data/class_names.h"
#include "data/csv/csv_schema.h"
#include "data/dataset.h"
#include "data/mapped_rows.h"
#include "data/targets.h"
#include "worker/export/preprocessing.h"
#include "worker/export/weights.h"
#include "worker/inputs/inputs.h"
#include "worker/inputs/prediction.h"
#include "worker/options/job.h"
#include "worker/options/options.h"

namespace cairn::cli {
namespace {

constexpr char kPredictProgram[] = "cairn predict";
constexpr char kRowSplits[] = "row_splits";

// Shortens a number for display, "0.998"; --output has full precision.
std::string Number(float value) {
  return std::isnan(value) ? "nan" : absl::StrFormat("%.6g", value);  // never "-nan"
}

// "ids_row_splits.npy" for "ids.npy" and "row_splits".
std::string PathWith(absl::string_view path, absl::string_view suffix) {
  const size_t name = path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1;
  const size_t end = absl::EndsWith(path, ".gz") ? path.size() - 3 : path.size();
  const size_t last = path.substr(0, end).rfind('.');
  const size_t dot = last == absl::string_view::npos || last < name ? path.size() : last;
  return absl::StrCat(path.substr(0, dot), "_", suffix, path.substr(dot));
}

// The file of one of several outputs: "out_box.npy" for "out.npy". Files of different outputs are different.
std::string PathOfOutput(absl::string_view path, absl::string_view output) {
  return PathWith(path, absl::StrReplaceAll(output, {{"%", "%25"}, {"/", "%2F"}}));
}

// The name of a class, or its index if `names` has no name for it.
std::string ClassOf(int64_t index, absl::Span<const std::string> names) {
  if (index >= static_cast<int64_t>(names.size())) return absl::StrCat(index);
  return absl::Utf8SafeCHexEscape(names[static_cast<size_t>(index)]);
}

// The line of one example. `outputs` [width]: probabilities, if the loss defines them.
std::string LineOf(const nn::LossSpec& loss, absl::Span<const float> outputs,
                   absl::Span<const std::string> class_names) {
  const bool undecided =
      std::any_of(outputs.begin(), outputs.end(), [](float value) { return std::isnan(value); });
  if (nn::IsClassification(loss.kind) && undecided) return "nan\tnan";
  if (nn::IsClassification(loss.kind) && !kernels::IsBinary(loss.kind)) {
    const auto largest = std::max_element(outputs.begin(), outputs.end());
    return absl::StrCat(ClassOf(largest - outputs.begin(), class_names), "\t", Number(*largest));
  }
  if (nn::IsClassification(loss.kind) && outputs.size() == 1) {
    return absl::StrCat(ClassOf(outputs[0] > 0.5f ? 1 : 0, class_names), "\t", Number(outputs[0]));
  }
  return absl::StrJoin(outputs, "\t",
                       [](std::string* out, float value) { absl::StrAppend(out, Number(value)); });
}

// `cairn predict`: prints or writes the outputs of a trained model for new examples.
class PredictCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(
        app,
        {{"WEIGHTS DIR|FILE",
          &weights_,
          "A --train_dir, the directory of one checkpoint, or a .keras, .h5, .safetensors or .npz file",
          {},
          kRequired},
         {"INPUTS FILE|DIR", &inputs_,
          "Examples: one .npy or IDX file, plain or .gz, for each input of the model (a ragged input: "
          "NAME.npy "
          "and NAME_row_splits.npy); or a .csv file, a .tfrecord file or a directory of images, with or "
          "without "
          "labels"},
         {"--labels FILE", &labels_,
          "File with the true labels, .npy or IDX; prints loss and metrics. With several outputs, the labels "
          "of all "
          "in a row, or a file FILE_OUTPUT.npy for each"},
         {"-o, --output FILE.npy", &output_,
          "Write the outputs of the model as float32 to this file, instead of printing one line per example; "
          "several outputs to a file each, FILE_OUTPUT.npy"},
         {"--model FILE", &options_.model,
          "Model file: Keras JSON, .keras or .h5 [the model in WEIGHTS; needed for .safetensors, .npz and "
          ".h5 "
          "files without a model]"},
         {"--input_shape [INPUT:]SIZE,...", Parsed(&options_.input_shapes, &nn::ParseInputSizes),
          "Shape of an example, for sizes that the model file leaves open, such as 224,224,3 [that of the "
          "examples in a "
          ".npy or IDX file]"},
         {"--loss NAME", &options_.loss, "Loss function, by Keras' name [from the model file]"},
         {"--metrics NAME,...", &options_.metrics, "Metrics, by Keras' names [from the model file]"},
         {"--input_scale X",
          &options_.data.input_scale,
          "Factor of float inputs [as in training; if unknown, 1/255 for bytes, unless the "
          "model rescales them itself, and 1 for numbers]",
          {},
          kDefaultInText},
         {"--label_column NAME", &options_.data.label_column,
          "CSV, TFRecord: name of the label column [as in training; if unknown, label, ...; in CSV files the "
          "last column if there is one more than the inputs]"},
         {"--feature_column NAME,...", FlagReader([this](const std::string& names) {
            options_.data.feature_columns = absl::StrSplit(names, ',');
            return absl::OkStatus();
          }),
          "CSV, TFRecord: names of the input columns, in the order of the model's inputs [as in training]"},
         {"--missing_value X", &options_.data.missing_value,
          "CSV: value of an empty field [as in training; if unknown, an empty field is an error]"},
         {"--csv_separator NAME|C", Parsed(&options_.data.csv_separator, &data::ParseCsvSeparator),
          "CSV: comma, semicolon, tab, space, or any single character [detected from the first lines]"},
         {"--limit N", &limit_, "Use only the first N examples; 0: all", WholeNumberFrom(0), kDefaultInText},
         {"--threads N", &threads_, "Compute threads; 0: one per core, and 1 with --generate",
          WholeNumberBetween(0, kMaxThreads), kDefaultInText}});
    DeclareGeneration(app);
  }

  int Run(const CLI::App&) override {
    const bool from_flag = !generation_.prompt.empty();
    if (inputs_.empty() && !from_flag) return Fault("INPUTS is required");
    if (generation_.count > 0 && inputs_.size() + (from_flag ? 1 : 0) > 1) {
      return Fault("--generate takes one prompt: a file, or --prompt");
    }
    if (!output_.empty()) {
      if (!absl::EndsWith(output_, ".npy")) {
        return Fault(absl::StrCat("--output: '", output_, "' does not end in .npy, as the file does"));
      }
      if (const absl::Status status = CheckWritable(output_); !status.ok()) {
        return Fault(absl::StrCat("--output: ", status.message()));
      }
    }
    if (const std::string warning = WarnOfThreads(threads_); !warning.empty()) Warn(warning);
    const absl::Status status = CatchOutOfMemory("the examples", [&] { return PredictAndPrint(); });
    if (status.ok()) return 0;
    if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) return Fault(status.message());
    std::fprintf(stderr, "%s: %s\n", kPredictProgram, std::string(status.message()).c_str());
    return static_cast<int>(ExitCodeOf(status));
  }

 private:
  void DeclareGeneration(CLI::App& app) {
    AddFlags(
        app, "Generation",
        {{"--generate N", &generation_.count,
          "Models of language: continue a prompt by N tokens; INPUTS is a file of text, or a .npy file of "
          "ids, with a prompt in each row",
          WholeNumberFrom(1), kDefaultInText},
         {"--prompt TEXT", &generation_.prompt, "The prompt of --generate, in place of INPUTS"},
         {"--start_id N", &generation_.start,
          "Models with an encoder and a decoder: INPUTS has what the encoder reads, and the decoder starts "
          "with token N [[START] of the vocabulary]",
          WholeNumberFrom(0), kDefaultInText},
         {"--end_id N", &generation_.end,
          "End a text before token N [models with an encoder: [END] of the vocabulary]", WholeNumberFrom(0),
          kDefaultInText},
         {"--source_vocabulary FILE", &generation_.source_vocabulary,
          "Models with an encoder and a decoder: the texts of the ids that the encoder reads; INPUTS, or "
          "--prompt, is a text with one source in each line"},
         {"--vocabulary FILE", &generation_.vocabulary,
          "The texts of the ids that are generated [tokens.json beside the model]"},
         {"--decoder_input NAME", &generation_.decoder_input,
          "The input of the decoder, which gets the tokens; the other one is the encoder's [decoder_inputs]"},
         {"--drop_tokens N", &generation_.drop,
          "When the text is longer than the model's input, drop its first N tokens at once",
          WholeNumberFrom(1)},
         {"--beams N", &generation_.beams,
          "Beam search with N beams: the most probable text that it finds, instead of the most probable "
          "token "
          "each time",
          WholeNumberBetween(1, 1000)},
         {"--temperature X", &generation_.sampling.temperature,
          "Draw tokens by their probabilities, with logits divided by X [always the most probable token]",
          NumberAbove(0), kDefaultInText},
         {"--top_k N", &generation_.sampling.top_k, "Draw only among the N most probable tokens [all]",
          WholeNumberFrom(1), kDefaultInText},
         {"--top_p X", &generation_.sampling.top_p,
          "Draw only among the fewest tokens that have the probability X together", NumberAboveUpTo(0, 1)},
         {"--seed N", &generation_.sampling.seed, "Seed of the draws", WholeNumberFrom(0)}});
    AddRules(app, {{"--prompt", kNeeds, "--generate"},
                   {"--start_id", kNeeds, "--generate"},
                   {"--end_id", kNeeds, "--generate"},
                   {"--source_vocabulary", kNeeds, "--generate"},
                   {"--vocabulary", kNeeds, "--generate"},
                   {"--decoder_input", kNeeds, "--generate"},
                   {"--drop_tokens", kNeeds, "--generate"},
                   {"--beams", kNeeds, "--generate"},
                   {"--beams", kExcludes, "--temperature"},
                   {"--temperature", kNeeds, "--generate"},
                   {"--top_k", kNeeds, "--temperature"},
                   {"--top_p", kNeeds, "--temperature"},
                   {"--seed", kNeeds, "--temperature"},
                   {"--generate", kExcludes, "--output"},
                   {"--generate", kExcludes, "--labels"},
                   {"--generate", kExcludes, "--limit"}});
  }

  static void Warn(const std::string& text) {
    std::fprintf(stderr, "%s: warning: %s\n", kPredictProgram, text.c_str());
  }
  static int Fault(absl::string_view text) { return static_cast<int>(UsageError(kPredictProgram, text)); }

  // Reads the examples and their targets, if any: from the data, or from --labels.
  absl::StatusOr<data::Examples> ReadExamples(const worker::TrainedModel& trained) const {
    std::optional<data::Examples> examples;
    if (inputs_.size() == 1) {
      CAIRN_ASSIGN_OR_RETURN(examples, data::LoadExamples(OptionsFor(trained)));
    }
    if (!examples) {
      CAIRN_ASSIGN_OR_RETURN(examples, ReadArrays(trained));
    }
    CAIRN_RETURN_IF_ERROR(CheckReading(trained, *examples));
    for (const std::string& note : examples->notes)
      std::fprintf(stderr, "%s: %s\n", kPredictProgram, note.c_str());
    return *std::move(examples);
  }

  // Reads --labels: one file, or one for each of several outputs.
  absl::StatusOr<data::Targets> ReadLabels(const std::vector<data::TargetPart>& parts) const {
    std::vector<std::string> paths;
    for (const data::TargetPart& part : parts) paths.push_back(PathOfOutput(labels_, part.output));
    if (paths.empty() || FileExists(labels_)) paths = {labels_};
    std::vector<data::Targets> targets;
    for (const std::string& path : paths) {
      CAIRN_ASSIGN_OR_RETURN(const data::Array array, data::ReadArrayFile(path));
      CAIRN_ASSIGN_OR_RETURN(targets.emplace_back(), data::ReadTargets(array, path));
    }
    if (targets.size() == 1) return std::move(targets[0]);
    return data::JoinTargets(targets, parts, paths);
  }

  // Checks that the examples are preprocessed as in training. Adds a note that lists the settings taken from
  // the training.
  absl::Status CheckReading(const worker::TrainedModel& trained, data::Examples& examples) const {
    if (!trained.data.preprocessing) return absl::OkStatus();
    const worker::Preprocessing& before = *trained.data.preprocessing;
    const worker::Preprocessing now =
        worker::PreprocessingOf(OptionsFor(trained), examples.byte_inputs, examples.columns);
    CAIRN_RETURN_IF_ERROR(Annotate(worker::CheckSame(before, now), trained.data.PreprocessingPath()));
    if (const std::string use = worker::DescribeUse(before, now); !use.empty()) {
      examples.notes.push_back(absl::StrCat("as in ", trained.data.PreprocessingPath(), ": ", use));
    }
    return absl::OkStatus();
  }

  data::DataOptions OptionsFor(const worker::TrainedModel& trained) const {
    data::DataOptions options = worker::DataOptionsOf(options_, trained.model);
    if (trained.data.preprocessing) worker::UseWhereOpen(*trained.data.preprocessing, options);
    options.path = inputs_.front();
    options.labels_optional = true;
    options.class_names = trained.data.class_names;
    return options;
  }

  // The shape of an example in the only file of INPUTS.
  absl::StatusOr<Shape> ShapeOfExamples() const {
    if (generation_.count > 0) return absl::InvalidArgumentError("a prompt has any length");
    CAIRN_ASSIGN_OR_RETURN(const data::Array array, data::ReadArrayFile(inputs_.front()));
    if (array.shape.rank() == 0) return Shape();
    return Shape(array.shape.dims().subspan(1));
  }

  // Reads one file for each input of the model.
  absl::StatusOr<data::Examples> ReadArrays(const worker::TrainedModel& trained) const {
    const nn::Model& model = trained.model;
    if (inputs_.size() != model.inputs().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("INPUTS: ", Counted(static_cast<int64_t>(inputs_.size()), "file"),
                       "; the model takes ", model.inputs().size(), ": ",
                       absl::StrJoin(model.inputs(), ", ", [](std::string* out, const nn::ModelInput& input) {
                         absl::StrAppend(out, input.name);
                       })));
    }
    const data::DataOptions how = data::WithTypesInFiles(OptionsFor(trained));
    data::Examples examples;
    std::vector<std::unique_ptr<data::RowSource>> parts;
    std::vector<std::vector<int64_t>> all_splits(inputs_.size());  // of ragged inputs
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& path = inputs_[i];
      CAIRN_ASSIGN_OR_RETURN(data::Array array, data::ReadArrayFile(path));
      examples.byte_inputs.push_back(array.type == data::ElementType::kUint8);
      std::unique_ptr<data::RowSource> rows;
      if (how.IsRagged(i)) {
        CAIRN_ASSIGN_OR_RETURN(const data::Array of_rows, ReadSplitsFile(how, i));
        const bool integers = IsInteger(how.input_types[i]);
        CAIRN_ASSIGN_OR_RETURN(all_splits[i], data::ReadRowSplits(of_rows, array, integers, path));
        rows = data::MakeRaggedRows(std::move(array), all_splits[i], path);
      } else {
        CAIRN_ASSIGN_OR_RETURN(rows, data::MakeArrayRows(std::move(array), path, how.ScaleOf(i)));
        CAIRN_RETURN_IF_ERROR(data::CheckInputShape(how, i, rows->row_shape(), path));
      }
      parts.push_back(std::move(rows));
    }
    CAIRN_RETURN_IF_ERROR(data::CheckSameSplits(how, all_splits, inputs_));
    CAIRN_ASSIGN_OR_RETURN(examples.inputs, data::JoinRows(std::move(parts), inputs_));
    CAIRN_ASSIGN_OR_RETURN(examples.inputs, data::MapRows(how, std::move(examples.inputs), inputs_.front(),
                                                          /*has_texts=*/false));
    return examples;
  }

  // Reads the row splits of the ragged input `input`. Weights without their own share those of their ids.
  absl::StatusOr<data::Array> ReadSplitsFile(const data::DataOptions& how, size_t input) const {
    const std::string splits = PathWith(inputs_[input], kRowSplits);
    auto array = data::ReadArrayFile(splits);
    if (!absl::IsNotFound(array.status())) return array;
    if (const int ids = how.WeightsOf(input); ids >= 0) {
      array = data::ReadArrayFile(PathWith(inputs_[static_cast<size_t>(ids)], kRowSplits));
      if (!absl::IsNotFound(array.status())) return array;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("input '", how.input_names[input], "' of the model is ragged: ", inputs_[input],
                     " has its values, but its row splits are missing: ", splits));
  }

  absl::Status PredictAndPrint() {
    CAIRN_ASSIGN_OR_RETURN(const worker::TrainedModel trained,
                           worker::LoadTrainedModel(weights_, options_.model,
                                                    {.given = options_.input_shapes,
                                                     .in_data = [this] { return ShapeOfExamples(); },
                                                     .data_source = inputs_.empty() ? "" : inputs_.front()}));
    if (generation_.count > 0) {
      return PrintGenerated(trained, options_, generation_, inputs_.empty() ? "" : inputs_.front(),
                            std::max(threads_, 1));
    }
    const nn::Model& model = trained.model;
    CAIRN_ASSIGN_OR_RETURN(data::Examples examples, ReadExamples(trained));
    if (static_cast<int64_t>(trained.data.class_names.size()) > model.output_shape().num_elements() + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(weights_, ": ", data::kClassNamesFile, " names ", trained.data.class_names.size(),
                       " classes, the model's output is ", model.output_shape().ToString()));
    }
    // A model that is not compiled has no loss: targets in its data are ignored, and --labels is refused.
    const auto compiled = worker::MakeObjective(options_, model);
    std::optional<data::Targets>& targets = examples.targets;
    if (!labels_.empty()) {
      CAIRN_RETURN_IF_ERROR(compiled.status());
      CAIRN_ASSIGN_OR_RETURN(targets, ReadLabels(worker::TargetPartsOf(*compiled, model)));
    }
    if (!compiled.ok()) targets.reset();
    const nn::Objective objective = compiled.ok() ? *compiled : nn::Objective::ForAnyOutputs(model);
    std::vector<nn::MetricSpec> metrics;
    if (targets.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(metrics, worker::MakeMetrics(options_, model, objective));
    }
    CAIRN_ASSIGN_OR_RETURN(worker::Prediction prediction,
                           worker::Predict({.model = model,
                                            .parameters = trained.parameters,
                                            .tables = trained.tables.has_value() ? &*trained.tables : nullptr,
                                            .inputs = *examples.inputs,
                                            .limit = limit_,
                                            .targets = targets.has_value() ? &*targets : nullptr,
                                            .objective = objective,
                                            .metrics = metrics,
                                            .threads = threads_ > 0 ? threads_ : UsableCores()}));
    if (const std::string warning = worker::NonFiniteOutputs(prediction, *examples.inputs); !warning.empty())
      Warn(warning);
    CAIRN_RETURN_IF_ERROR(output_.empty() ? PrintOutputs(trained, objective, prediction)
                                          : WriteOutputs(model, prediction));
    if (targets.has_value()) {
      std::printf("%s\n", absl::StrJoin(prediction.metrics, " - ", [](std::string* out, const auto& metric) {
                            absl::StrAppend(out, metric.first, ": ",
                                            Number(static_cast<float>(metric.second)));
                          }).c_str());
    }
    return absl::OkStatus();
  }

  // Writes --output: one file, or one for each of several outputs.
  absl::Status WriteOutputs(const nn::Model& model, const worker::Prediction& prediction) const {
    for (const nn::ModelOutput& output : model.outputs()) {
      Shape shape = {prediction.examples};
      for (const int64_t extent : output.shape.dims()) shape.Append(extent);
      const bool one = model.outputs().size() == 1;
      const std::string path = one ? output_ : PathOfOutput(output_, output.name);
      // A mask may follow the elements, and is not written.
      const bool all = one && !output.masked;
      CAIRN_RETURN_IF_ERROR(data::WriteNpy(path, shape,
                                           all ? absl::MakeConstSpan(prediction.outputs)
                                               : absl::MakeConstSpan(ValuesOf(prediction, model, output))));
    }
    return absl::OkStatus();
  }

  // [examples, the output's shape]
  static std::vector<float> ValuesOf(const worker::Prediction& prediction, const nn::Model& model,
                                     const nn::ModelOutput& output) {
    const int64_t stride = model.output_shape().num_elements(), count = output.shape.num_elements();
    std::vector<float> values;
    values.reserve(static_cast<size_t>(prediction.examples * count));
    for (int64_t i = 0; i < prediction.examples; ++i) {
      const auto first = prediction.outputs.begin() + i * stride + output.begin;
      values.insert(values.end(), first, first + count);
    }
    return values;
  }

  // Prints a line for each example. With several outputs the name of each comes before its values.
  static absl::Status PrintOutputs(const worker::TrainedModel& trained, const nn::Objective& objective,
                                   const worker::Prediction& prediction) {
    const nn::Model& model = trained.model;
    const bool one = model.outputs().size() == 1;
    std::vector<std::string> lines(static_cast<size_t>(prediction.examples));
    for (size_t index = 0; index < model.outputs().size(); ++index) {
      const nn::ModelOutput& output = model.outputs()[index];
      if (output.shape.rank() > 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("outputs ", output.shape.ToString(),
                         " do not fit on one line per example: write them to a file with --output FILE.npy"));
      }
      const auto part = absl::c_find_if(objective.losses(),
                                        [&](const nn::OutputLoss& loss) { return loss.output == index; });
      // The values of an output without a loss are plain numbers.
      const nn::LossSpec loss = part != objective.losses().end()
                                    ? part->loss
                                    : nn::LossSpec{.kind = kernels::LossKind::kMeanSquaredError};
      const int64_t width = output.shape.num_elements();
      std::vector<float> values = ValuesOf(prediction, model, output);
      worker::ToProbabilities(loss, width, absl::MakeSpan(values));
      for (size_t i = 0; i < lines.size(); ++i) {
        const auto of_example =
            absl::MakeConstSpan(values).subspan(i * static_cast<size_t>(width), static_cast<size_t>(width));
        absl::StrAppend(&lines[i], "\t", one ? "" : absl::StrCat(output.name, "\t"),
                        LineOf(loss, of_example, trained.data.class_names));
      }
    }
    for (size_t i = 0; i < lines.size(); ++i)
      std::printf("%s%s\n", absl::StrCat(i).c_str(), lines[i].c_str());
    return absl::OkStatus();
  }

  std::string weights_, labels_, output_;
  std::vector<std::string> inputs_;
  worker::TrainOptions options_;
  GenerationFlags generation_;
  int64_t limit_ = 0;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakePredictCommand() {
  return std::make_unique<PredictCommand>();
}

}  // namespace cairn::cli
