#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/path_checks.h"
#include "data/criteo/synthetic_ctr.h"
#include "data/image/synthetic_shapes.h"
#include "data/tokens/synthetic_text.h"

namespace cairn::cli {
namespace {

// `cairn synthetic`: writes a set. The best possible result for `ctr` and `text` is known, and no model exceeds it
// except by chance.
class SyntheticCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(
        app,
        {{"KIND ctr|text|shapes", &kind_,
          "ctr: a click log in Criteo's format; text: files of tokens, for language models of characters; "
          "shapes: "
          "images and the classes of their pixels, for segmentation",
          OneOf({"ctr", "text", "shapes"}), kRequired},
         {"DIR DIR",
          &directory_,
          "Directory for train.txt, test.txt and teacher.json, for train.bin, test.bin and tokens.json, or "
          "for "
          "x_train.npy, y_train.npy, x_test.npy and y_test.npy",
          {},
          kRequired},
         {"--rows N", &options_.train_rows,
          "Number of training examples; text: of characters [1000000; shapes: 4000]", WholeNumberFrom(1),
          kDefaultInText},
         {"--test_rows N", &options_.test_rows,
          "Number of test examples; text: of characters [100000; shapes: 1000]", WholeNumberFrom(1),
          kDefaultInText},
         {"--scale X", &options_.scale,
          "ctr: factor for the numbers of categories; 1: those of Criteo's Kaggle set, 33.8 million",
          NumberAbove(0)},
         {"--words N", &words_, "text: number of different words", WholeNumberBetween(16, 20'000)},
         {"--seed N", &options_.seed, "Seed of the generator; the same seed generates the same files",
          WholeNumberFrom(0)}});
  }

  int Run(const CLI::App& app) override {
    if (kind_ != "ctr" && app.count("--scale") > 0)
      return static_cast<int>(UsageError("cairn synthetic", "--scale: only ctr has categories"));
    if (kind_ != "text" && app.count("--words") > 0)
      return static_cast<int>(UsageError("cairn synthetic", "--words: only text has words"));
    if (app.count("--rows") == 0 && kind_ == "shapes")
      options_.train_rows = data::SyntheticShapesOptions().train_images;
    if (app.count("--test_rows") == 0 && kind_ == "shapes")
      options_.test_rows = data::SyntheticShapesOptions().test_images;
    if (const absl::Status status = CheckDirectoryWritable(directory_); !status.ok()) {
      return static_cast<int>(UsageError("cairn synthetic", absl::StrCat("DIR: ", status.message())));
    }
    const absl::Status written = kind_ == "text"     ? WriteText()
                                 : kind_ == "shapes" ? WriteShapes()
                                                     : WriteClickLog();
    if (written.ok()) return 0;
    std::fprintf(stderr, "cairn synthetic: %s\n", std::string(written.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }

 private:
  absl::Status WriteClickLog() const {
    CAIRN_ASSIGN_OR_RETURN(const data::SyntheticCtrTeacher teacher,
                           data::WriteSyntheticCtr(directory_, options_));
    absl::PrintF(
        "%s: %d training examples, %d test examples, %d categories, click rate %.4f\n"
        "best possible on the test set: AUC %.4f, log loss %.4f\n",
        directory_, options_.train_rows, options_.test_rows, teacher.categories, teacher.click_rate,
        teacher.auc, teacher.log_loss);
    return absl::OkStatus();
  }

  absl::Status WriteText() const {
    CAIRN_ASSIGN_OR_RETURN(const double perplexity,
                           data::WriteSyntheticText(directory_, {.train_tokens = options_.train_rows,
                                                                 .test_tokens = options_.test_rows,
                                                                 .words = words_,
                                                                 .seed = options_.seed}));
    absl::PrintF(
        "%s: %d training characters, %d test characters, %d words\n"
        "best possible on the test set: perplexity %.4f\n",
        directory_, options_.train_rows, options_.test_rows, words_, perplexity);
    return absl::OkStatus();
  }

  absl::Status WriteShapes() const {
    CAIRN_RETURN_IF_ERROR(data::WriteSyntheticShapes(
        directory_,
        {.train_images = options_.train_rows, .test_images = options_.test_rows, .seed = options_.seed}));
    absl::PrintF("%s: %d training images, %d test images, %d classes of pixels\n", directory_,
                 options_.train_rows, options_.test_rows, data::kShapesClasses);
    return absl::OkStatus();
  }

  std::string kind_;
  std::string directory_;
  data::SyntheticCtrOptions options_;
  int64_t words_ = data::SyntheticTextOptions().words;
};

}  // namespace

std::unique_ptr<Command> MakeSyntheticCommand() {
  return std::make_unique<SyntheticCommand>();
}

}  // namespace cairn::cli
