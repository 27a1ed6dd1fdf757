#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/core/files.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "nn/input_sizes.h"
#include "nn/model.h"
#include "worker/adapt/adapt_model.h"
#include "worker/export/model_source.h"
#include "worker/options/options.h"

namespace cairn::cli {
namespace {

constexpr char kModelProgram[] = "cairn model", kAdaptProgram[] = "cairn model adapt";

class ModelCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(0, 1);
    AddFlags(app, {{"MODEL FILE", &path_, "Model file: Keras JSON, .keras, or a .h5 file with a whole model"},
                   {"--input_shape [INPUT:]SIZE,...", Parsed(&input_shapes_, &nn::ParseInputSizes),
                    "Shape of an example, for sizes that the file leaves open, such as 224,224,3"}});
    adapt_ = app.add_subcommand(
        "adapt", "Find vocabularies, means and boundaries of preprocessing layers in a training set");
    AddFlags(*adapt_,
             {{"MODEL FILE", &options_.model, "Model file: Keras JSON or .keras", {}, kRequired},
              {"--out FILE", &output_, "File to write: the model's JSON with all values", {}, kRequired}});
    AddDataFlags(*adapt_, options_);
  }

  int Run(const CLI::App&) override {
    if (adapt_->parsed()) {
      if (path_.empty() && input_shapes_.empty()) return Adapt();
      return static_cast<int>(UsageError(kModelProgram, "the arguments of adapt come after it"));
    }
    if (path_.empty()) return static_cast<int>(UsageError(kModelProgram, "MODEL is required"));
    const auto model = worker::ReadModelFile(path_, {.given = input_shapes_});
    if (!model.ok()) return static_cast<int>(UsageError(kModelProgram, model.status().message()));
    const std::string table = nn::SummaryTable(*model);
    std::fwrite(table.data(), 1, table.size(), stdout);
    if (table.empty() || table.back() != '\n') std::putchar('\n');
    return 0;
  }

 private:
  int Adapt() const {
    if (absl::EndsWith(output_, ".keras"))
      return static_cast<int>(
          UsageError(kAdaptProgram, "--out: the model is written as JSON, not as a .keras file"));
    if (const absl::Status status = CheckWritable(output_); !status.ok())
      return static_cast<int>(UsageError(kAdaptProgram, absl::StrCat("--out: ", status.message())));
    const auto adapted = worker::AdaptModel(options_);
    if (!adapted.ok()) return static_cast<int>(UsageError(kAdaptProgram, adapted.status().message()));
    if (const absl::Status status = WriteFileAtomically(output_, adapted->json); !status.ok()) {
      std::fprintf(stderr, "%s: --out: %s\n", kAdaptProgram, std::string(status.message()).c_str());
      return static_cast<int>(ExitCode::kFailure);
    }
    for (const std::string& note : adapted->notes) std::printf("%s\n", note.c_str());
    return 0;
  }

  std::string path_;
  std::map<std::string, std::vector<int64_t>> input_shapes_;
  CLI::App* adapt_ = nullptr;
  std::string output_;  // of adapt
  worker::TrainOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeModelCommand() {
  return std::make_unique<ModelCommand>();
}

}  // namespace cairn::cli
