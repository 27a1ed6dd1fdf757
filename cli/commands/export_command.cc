#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "nn/input_sizes.h"
#include "worker/embedding/table_rows.h"
#include "worker/export/model_files.h"
#include "worker/export/weights.h"

namespace cairn::cli {
namespace {

constexpr char kExportProgram[] = "cairn export";

// `cairn export`: writes a trained model for other programs.
class ExportCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(
        app,
        {{"WEIGHTS DIR|FILE",
          &weights_,
          "A --train_dir, the directory of one checkpoint, or a .keras, .h5, .safetensors or .npz file",
          {},
          kRequired},
         {"-o, --output FILE", &output_, "File to write: .onnx or .safetensors", {}, kRequired},
         {"--model FILE", &model_,
          "Model file: Keras JSON, .keras or .h5 [the model in WEIGHTS; needed for .safetensors, .npz and "
          ".h5 files without a model]"},
         {"--input_shape [INPUT:]SIZE,...", Parsed(&input_shapes_, &nn::ParseInputSizes),
          "Shape of an example, for sizes that the model file leaves open, such as 224,224,3"}});
  }

  int Run(const CLI::App&) override {
    if (const absl::Status status = worker::CheckModelFile(output_); !status.ok()) {
      return static_cast<int>(UsageError(kExportProgram, absl::StrCat("--output: ", status.message())));
    }
    const absl::Status status = Write();
    if (status.ok()) return 0;
    if (absl::IsInvalidArgument(status))
      return static_cast<int>(UsageError(kExportProgram, status.message()));
    std::fprintf(stderr, "%s: %s\n", kExportProgram, std::string(status.message()).c_str());
    return static_cast<int>(ExitCodeOf(status));
  }

 private:
  absl::Status Write() const {
    CAIRN_ASSIGN_OR_RETURN(const worker::TrainedModel trained,
                           worker::LoadTrainedModel(weights_, model_, {.given = input_shapes_}));
    std::map<std::string, std::string> metadata;
    if (trained.global_step.has_value()) metadata["global_step"] = absl::StrCat(*trained.global_step);
    std::optional<worker::TableRows> tables;
    if (trained.tables.has_value()) tables.emplace(worker::RowsOf(*trained.tables));
    return worker::WriteModelFile(output_, trained.model, trained.parameters, metadata,
                                  tables.has_value() ? &*tables : nullptr);
  }

  std::string weights_, output_, model_;
  std::map<std::string, std::vector<int64_t>> input_shapes_;
};

}  // namespace

std::unique_ptr<Command> MakeExportCommand() {
  return std::make_unique<ExportCommand>();
}

}  // namespace cairn::cli
