#include <cstdio>

#include "cli/commands/command.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
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
                    kRequired}});
  }

  int Run(const CLI::App&) override {
    const auto model = worker::ReadModelFile(path_);
    if (!model.ok()) return static_cast<int>(UsageError("cairn model", model.status().message()));
    const std::string table = nn::SummaryTable(*model);
    std::fwrite(table.data(), 1, table.size(), stdout);
    if (table.empty() || table.back() != '\n') std::putchar('\n');
    return 0;
  }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<Command> MakeModelCommand() {
  return std::make_unique<ModelCommand>();
}

}  // namespace cairn::cli
