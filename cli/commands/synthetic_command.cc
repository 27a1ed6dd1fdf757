#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/commands/command.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/path_checks.h"
#include "data/criteo/synthetic_ctr.h"
#include "data/image/synthetic_shapes.h"
#include "data/text/synthetic_entities.h"
#include "data/text/synthetic_reviews.h"
#include "data/text/synthetic_translation.h"
#include "data/tokens/synthetic_text.h"

namespace cairn::cli {
namespace {

constexpr char kSyntheticProgram[] = "cairn synthetic";

// `cairn synthetic`: writes a set. The best possible result is known but for shapes, and no model exceeds it except by
// chance.
class SyntheticCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(
        app,
        {{"KIND ctr|text|reviews|entities|translation|shapes", &kind_,
          "ctr: a click log in Criteo's format; text: files of tokens, for language models of characters; "
          "reviews: texts with labels; entities: sentences with tags of names; translation: pairs of "
          "sentences; shapes: images and the classes of their pixels, for segmentation",
          OneOf({"ctr", "text", "reviews", "entities", "translation", "shapes"}), kRequired},
         {"DIR DIR", &directory_, "Directory for the training set and the test set", {}, kRequired},
         {"--rows N", &train_rows_,
          "Number of training examples; text: of characters [ctr, text: 1000000; reviews: 20000; "
          "entities: 5000; translation: 10000; shapes: 4000]",
          WholeNumberFrom(1), kDefaultInText},
         {"--test_rows N", &test_rows_,
          "Number of test examples; text: of characters [ctr, text: 100000; reviews: 4000; others: 1000]",
          WholeNumberFrom(1), kDefaultInText},
         {"--scale X", &scale_,
          "ctr: factor for the numbers of categories; 1: those of Criteo's Kaggle set, 33.8 million [0.01]",
          NumberAbove(0), kDefaultInText},
         {"--words N", &words_, "text, reviews, entities: number of different words [200, 2000, 1000]",
          WholeNumberBetween(16, 20'000), kDefaultInText},
         {"--seed N", &seed_, "Seed of the generator; the same seed generates the same files",
          WholeNumberFrom(0)}});
  }

  int Run(const CLI::App&) override {
    if (scale_ && kind_ != "ctr") return Refuse("--scale: only ctr has categories");
    if (words_ && (kind_ == "ctr" || kind_ == "shapes"))
      return Refuse(absl::StrCat("--words: ", kind_, " has no words"));
    if (words_ && kind_ == "translation") return Refuse("--words: the words of translation are fixed");
    if (const absl::Status status = CheckDirectoryWritable(directory_); !status.ok())
      return Refuse(absl::StrCat("DIR: ", status.message()));
    const absl::Status written = Write();
    if (written.ok()) return 0;
    std::fprintf(stderr, "%s: %s\n", kSyntheticProgram, std::string(written.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }

 private:
  static int Refuse(absl::string_view fault) {
    return static_cast<int>(UsageError(kSyntheticProgram, fault));
  }

  absl::Status Write() const {
    if (kind_ == "ctr") return WriteClickLog();
    if (kind_ == "text") return WriteText();
    if (kind_ == "reviews") return WriteReviews();
    if (kind_ == "entities") return WriteEntities();
    return kind_ == "translation" ? WriteTranslation() : WriteShapes();
  }

  absl::Status WriteClickLog() const {
    data::SyntheticCtrOptions options{.seed = seed_};
    options.scale = scale_.value_or(options.scale);
    options.train_rows = train_rows_.value_or(options.train_rows);
    options.test_rows = test_rows_.value_or(options.test_rows);
    CAIRN_ASSIGN_OR_RETURN(const data::SyntheticCtrTeacher teacher,
                           data::WriteSyntheticCtr(directory_, options));
    absl::PrintF(
        "%s: %d training examples, %d test examples, %d categories, click rate %.4f\n"
        "best possible on the test set: AUC %.4f, log loss %.4f\n",
        directory_, options.train_rows, options.test_rows, teacher.categories, teacher.click_rate,
        teacher.auc, teacher.log_loss);
    return absl::OkStatus();
  }

  absl::Status WriteText() const {
    data::SyntheticTextOptions options{.seed = seed_};
    options.train_tokens = train_rows_.value_or(options.train_tokens);
    options.test_tokens = test_rows_.value_or(options.test_tokens);
    options.words = words_.value_or(options.words);
    CAIRN_ASSIGN_OR_RETURN(const double perplexity, data::WriteSyntheticText(directory_, options));
    absl::PrintF(
        "%s: %d training characters, %d test characters, %d words\n"
        "best possible on the test set: perplexity %.4f\n",
        directory_, options.train_tokens, options.test_tokens, options.words, perplexity);
    return absl::OkStatus();
  }

  absl::Status WriteReviews() const {
    data::SyntheticReviewsOptions options{.seed = seed_};
    options.train_rows = train_rows_.value_or(options.train_rows);
    options.test_rows = test_rows_.value_or(options.test_rows);
    options.words = words_.value_or(options.words);
    CAIRN_ASSIGN_OR_RETURN(const double accuracy, data::WriteSyntheticReviews(directory_, options));
    absl::PrintF(
        "%s: %d training reviews, %d test reviews, %d words\n"
        "best possible on the test set: accuracy %.4f\n",
        directory_, options.train_rows, options.test_rows, options.words, accuracy);
    return absl::OkStatus();
  }

  absl::Status WriteEntities() const {
    data::SyntheticEntitiesOptions options{.seed = seed_};
    options.train_rows = train_rows_.value_or(options.train_rows);
    options.test_rows = test_rows_.value_or(options.test_rows);
    options.words = words_.value_or(options.words);
    CAIRN_ASSIGN_OR_RETURN(const auto accuracy, data::WriteSyntheticEntities(directory_, options));
    absl::PrintF(
        "%s: %d training sentences, %d test sentences, %d words\n"
        "best possible on the test set: accuracy %.4f, by each word alone %.4f\n",
        directory_, options.train_rows, options.test_rows, options.words, accuracy.best, accuracy.by_word);
    return absl::OkStatus();
  }

  absl::Status WriteTranslation() const {
    data::SyntheticTranslationOptions options{.seed = seed_};
    options.train_rows = train_rows_.value_or(options.train_rows);
    options.test_rows = test_rows_.value_or(options.test_rows);
    CAIRN_RETURN_IF_ERROR(data::WriteSyntheticTranslation(directory_, options));
    absl::PrintF(
        "%s: %d training pairs, %d test pairs, %d and %d tokens\n"
        "best possible on the test set: accuracy 1\n",
        directory_, options.train_rows, options.test_rows, data::kSourceTokens, data::kTargetTokens);
    return absl::OkStatus();
  }

  absl::Status WriteShapes() const {
    data::SyntheticShapesOptions options{.seed = seed_};
    options.train_images = train_rows_.value_or(options.train_images);
    options.test_images = test_rows_.value_or(options.test_images);
    CAIRN_RETURN_IF_ERROR(data::WriteSyntheticShapes(directory_, options));
    absl::PrintF("%s: %d training images, %d test images, %d classes of pixels\n", directory_,
                 options.train_images, options.test_images, data::kShapesClasses);
    return absl::OkStatus();
  }

  std::string kind_;
  std::string directory_;
  std::optional<int64_t> train_rows_, test_rows_, words_;  // nullopt: the default of the kind
  std::optional<double> scale_;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeSyntheticCommand() {
  return std::make_unique<SyntheticCommand>();
}

}  // namespace cairn::cli
