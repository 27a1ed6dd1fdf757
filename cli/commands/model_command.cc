#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "nn/input_sizes.h"
#include "nn/model.h"
#include "worker/export/model_source.h"

namespace cairn::cli {
namespace {

class ModelCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"MODEL FILE",
                    &path_,
                    "Model file: Keras JSON, .keras, or a .h5 file with a whole model",
                    {},
                    kRequired},
                   {"--input_shape [INPUT:]SIZE,...", Parsed(&input_shapes_, &nn::ParseInputSizes),
                    "Shape of an example, for sizes that the file leaves open, such as 224,224,3"}});
  }

  int Run(const CLI::App&) override {
    const auto model = worker::ReadModelFile(path_, {.given = input_shapes_});
    if (!model.ok()) return static_cast<int>(UsageError("cairn model", model.status().message()));
    const std::string table = nn::SummaryTable(*model);
    std::fwrite(table.data(), 1, table.size(), stdout);
    if (table.empty() || table.back() != '\n') std::putchar('\n');
    return 0;
  }

 private:
  std::string path_;
  std::map<std::string, std::vector<int64_t>> input_shapes_;
};

}  // namespace

std::unique_ptr<Command> MakeModelCommand() {
  return std::make_unique<ModelCommand>();
}

}  // namespace cairn::cli
