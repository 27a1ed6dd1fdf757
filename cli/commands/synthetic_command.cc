#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/path_checks.h"
#include "data/criteo/synthetic_ctr.h"

namespace cairn::cli {
namespace {

// `cairn synthetic ctr`: writes a click log in Criteo's format, with the AUC that no model can exceed but by chance.
class SyntheticCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app,
             {{"KIND ctr", &kind_, "ctr: a click log in Criteo's format", OneOf({"ctr"}), kRequired},
              {"DIR DIR", &directory_, "Directory for train.txt, test.txt and teacher.json", {}, kRequired},
              {"--rows N", &options_.train_rows, "Number of training examples", WholeNumberFrom(1)},
              {"--test_rows N", &options_.test_rows, "Number of test examples", WholeNumberFrom(1)},
              {"--scale X", &options_.scale,
               "Factor for the numbers of categories; 1: those of Criteo's Kaggle set, 33.8 million",
               NumberAbove(0)},
              {"--seed N", &options_.seed, "Seed of the generator; the same seed generates the same files",
               WholeNumberFrom(0)}});
  }

  int Run(const CLI::App&) override {
    if (const absl::Status status = CheckDirectoryWritable(directory_); !status.ok()) {
      return static_cast<int>(UsageError("cairn synthetic", absl::StrCat("DIR: ", status.message())));
    }
    const auto teacher = data::WriteSyntheticCtr(directory_, options_);
    if (!teacher.ok()) {
      std::fprintf(stderr, "cairn synthetic: %s\n", std::string(teacher.status().message()).c_str());
      return static_cast<int>(ExitCode::kFailure);
    }
    absl::PrintF(
        "%s: %d training examples, %d test examples, %d categories, click rate %.4f\n"
        "best possible on the test set: AUC %.4f, log loss %.4f\n",
        directory_, options_.train_rows, options_.test_rows, teacher->categories, teacher->click_rate,
        teacher->auc, teacher->log_loss);
    return 0;
  }

 private:
  std::string kind_;
  std::string directory_;
  data::SyntheticCtrOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeSyntheticCommand() {
  return std::make_unique<SyntheticCommand>();
}

}  // namespace cairn::cli
