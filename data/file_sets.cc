#include "data/file_sets.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

constexpr int64_t kMaxPieces = int64_t{1} << 20;
constexpr const char* kValidationSets[] = {"test", "validation", "valid", "val"};

// Matches "-00000-of-00002", "_3" and "": the texts that may stand before and after a suffix.
bool IsPieceNumber(absl::string_view text) {
  const std::string digits = absl::StrReplaceAll(text, {{"-of-", "-"}});
  return digits.find_first_not_of("0123456789-_.") == std::string::npos;
}

std::string NameOf(absl::string_view path) {
  return std::filesystem::path(std::string(path)).filename().string();
}

// A file's name without ".gz", and the numbers in it.
struct Piece {
  std::string name;    // "train-00000-of-00002.csv"
  std::string before;  // "train-": the part before the number, or the whole name without a number
  std::string after;   // ".csv": the part after the number, or after the total
  std::string number;  // "00000"; empty: no number
  std::string total;   // "00002"; empty: no total
};

size_t DigitsAt(absl::string_view text, size_t at) {
  return std::min(text.find_first_not_of("0123456789", at), text.size()) - at;
}

Piece ParsePiece(absl::string_view path) {
  Piece piece;
  piece.name = std::string(absl::StripSuffix(NameOf(path), ".gz"));
  piece.before = piece.name;
  const absl::string_view name = piece.name;
  const auto split = [&](size_t at, size_t digits, size_t of, size_t total_digits) {
    piece.before = std::string(name.substr(0, at));
    piece.number = std::string(name.substr(at, digits));
    piece.total = std::string(name.substr(of, total_digits));
    piece.after = std::string(name.substr(of + total_digits));
  };
  for (size_t at = 0; at < name.size(); ++at) {
    const size_t digits = DigitsAt(name, at);
    if (digits == 0) continue;
    constexpr absl::string_view kOf = "-of-";
    const size_t of = at + digits + kOf.size();
    if (absl::StartsWith(name.substr(at + digits), kOf) && DigitsAt(name, of) > 0) {
      split(at, digits, of, DigitsAt(name, of));
      return piece;
    }
    split(at, digits, at + digits, 0);  // a later number replaces this one
    at += digits;
  }
  return piece;
}

std::string NameOfPiece(const Piece& like, int64_t number) {
  const std::string digits = absl::StrCat(number);
  const size_t width = std::max(like.number.size(), digits.size());
  return absl::StrCat(like.before, std::string(width - digits.size(), '0'), digits, "-of-", like.total,
                      like.after);
}

// The maximum number of file names in a message.
constexpr size_t kMaxListed = 5;

std::string Listed(const std::vector<std::string>& names) {
  const auto shown = absl::MakeConstSpan(names).subspan(0, kMaxListed);
  return absl::StrCat(
      absl::StrJoin(shown, ", "),
      names.size() > kMaxListed ? absl::StrCat(" and ", names.size() - kMaxListed, " more") : "");
}

// Checks `pieces`, whose names have totals. `files` are their paths.
absl::Status CheckTotals(const std::vector<Piece>& pieces, absl::Span<const std::string> files) {
  const Piece& first = pieces.front();
  int64_t total = 0;
  if (!absl::SimpleAtoi(first.total, &total) || total < 1 || total > kMaxPieces) {
    return absl::InvalidArgumentError(
        absl::StrCat(files[0], ": names an invalid number of pieces: ", first.total));
  }
  std::vector<const std::string*> found(static_cast<size_t>(total), nullptr);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.total != first.total || piece.before != first.before || piece.after != first.after) {
      return absl::InvalidArgumentError(absl::StrCat(files[0], " and ", NameOf(files[i]),
                                                     " belong to different sets: keep the files of one set"));
    }
    int64_t number = 0;
    if (!absl::SimpleAtoi(piece.number, &number) || number >= total) {
      return absl::InvalidArgumentError(
          absl::StrCat(files[i], ": pieces of a set of ", total, " have the numbers 0 to ", total - 1));
    }
    const std::string*& there = found[static_cast<size_t>(number)];
    if (there != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(*there, " and ", NameOf(files[i]), " are the same piece"));
    }
    there = &files[i];
  }
  std::vector<std::string> missing;
  for (int64_t number = 0; number < total; ++number) {
    if (found[static_cast<size_t>(number)] == nullptr) missing.push_back(NameOfPiece(first, number));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(files[0], ": of ", total, " pieces ", missing.size(),
                                          missing.size() == 1 ? " is" : " are",
                                          " missing: ", Listed(missing)));
}

// "numbers 2, 3 are missing": the gaps between the numbers of `pieces`. `missing`: how many numbers are
// missing in total.
std::string MissingNumbers(const std::map<int64_t, const std::string*>& pieces, uint64_t missing) {
  std::vector<std::string> numbers;
  int64_t next = pieces.begin()->first;
  for (const auto& [number, file] : pieces) {
    for (; next < number && numbers.size() < kMaxListed; ++next) numbers.push_back(absl::StrCat(next));
    next = number + 1;
  }
  return absl::StrCat(
      missing == 1 ? "number " : "numbers ", absl::StrJoin(numbers, ", "),
      missing > numbers.size() ? absl::StrCat(" and ", missing - numbers.size(), " more") : "",
      missing == 1 ? " is missing" : " are missing");
}

// Checks pieces whose names have no totals. Returns a remark if there are gaps in the numbers, or if a file
// without a number is among the pieces.
absl::StatusOr<std::string> CheckNumbers(const std::vector<Piece>& pieces,
                                         absl::Span<const std::string> files) {
  const std::string* whole = nullptr;
  // The paths of the pieces, by the text before and after the number, then by the number.
  std::map<std::pair<std::string, std::string>, std::map<int64_t, const std::string*>> series;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    int64_t number = 0;
    const bool numbered = absl::SimpleAtoi(piece.number, &number);
    const std::string*& there = numbered ? series[{piece.before, piece.after}][number] : whole;
    if (there != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(*there, " and ", NameOf(files[i]), " ",
                       numbered ? "have the same number" : "are both complete sets", ": remove one of them"));
    }
    there = &files[i];
  }
  std::vector<std::string> remarks;
  for (const auto& [around, numbers] : series) {
    const int64_t first = numbers.begin()->first, last = numbers.rbegin()->first;
    const uint64_t missing = static_cast<uint64_t>(last - first) + 1 - numbers.size();
    if (missing == 0) continue;
    remarks.push_back(absl::StrCat(*numbers.begin()->second, ": the pieces are numbered from ", first, " to ",
                                   last, ", and ", MissingNumbers(numbers, missing)));
  }
  if (whole != nullptr && !series.empty()) {
    remarks.push_back(absl::StrCat(*whole, " is read as one more piece of its set"));
  }
  return absl::StrJoin(remarks, "; ");
}

// A remark on files of `directory` with `suffix` in their name that are not in `used`. Empty: none.
std::string UnusedFilesRemark(const std::string& directory, absl::string_view suffix,
                              absl::Span<const std::string> used) {
  const std::set<std::string> known(used.begin(), used.end());
  std::vector<std::string> unused;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::StrContains(name, suffix) && known.count(absl::StrCat(directory, "/", name)) == 0) {
      unused.push_back(name);
    }
  }
  return UnusedRemark(directory, std::move(unused));
}

}  // namespace

std::vector<std::string> FindFiles(const std::string& directory, absl::string_view set,
                                   absl::string_view suffix) {
  std::vector<std::string> found;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, set)) continue;
    absl::ConsumeSuffix(&rest, ".gz");
    const size_t at = rest.rfind(suffix);
    if (at == absl::string_view::npos) continue;
    if (IsPieceNumber(rest.substr(0, at)) && IsPieceNumber(rest.substr(at + suffix.size()))) {
      found.push_back(absl::StrCat(directory, "/", name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool IsSetName(absl::string_view stem) {
  const auto names = [stem](absl::string_view set) {
    absl::string_view rest = stem;
    return absl::ConsumePrefix(&rest, set) && IsPieceNumber(rest);
  };
  return names("train") || std::any_of(std::begin(kValidationSets), std::end(kValidationSets), names);
}

std::optional<int64_t> WholeNumber(absl::string_view digits) {
  int64_t number = 0;
  if (DigitsAt(digits, 0) != digits.size() || !absl::SimpleAtoi(digits, &number)) return std::nullopt;
  return number;
}

std::optional<int64_t> DayIn(absl::string_view stem) {
  return absl::ConsumePrefix(&stem, "day_") ? WholeNumber(stem) : std::nullopt;
}

std::vector<std::string> FindDays(const std::string& directory, absl::Span<const char* const> suffixes) {
  std::set<std::pair<int64_t, std::string>> days;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const char* suffix : suffixes) {
      absl::string_view stem = name;
      if (!absl::ConsumeSuffix(&stem, suffix)) continue;
      if (const auto day = DayIn(stem)) days.emplace(*day, absl::StrCat(directory, "/", name));
    }
  }
  std::vector<std::string> files;
  for (const auto& [day, file] : days) files.push_back(file);
  return files;
}

absl::StatusOr<std::string> CheckPieces(absl::Span<const std::string> files) {
  std::vector<Piece> pieces;
  std::map<std::string, const std::string*> names;
  const std::string* with_total = nullptr;
  const std::string* without = nullptr;
  for (const std::string& file : files) {
    const Piece& piece = pieces.emplace_back(ParsePiece(file));
    const auto [there, is_new] = names.emplace(piece.name, &file);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat(*there->second, " and ", NameOf(file), " are the same piece: remove one of them"));
    }
    (piece.total.empty() ? without : with_total) = &file;
  }
  if (with_total == nullptr) return CheckNumbers(pieces, files);
  if (without != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(*without,
                                                   " exists in addition to the pieces of a set, such as ",
                                                   NameOf(*with_total), ": keep one or the other"));
  }
  CAIRN_RETURN_IF_ERROR(CheckTotals(pieces, files));
  return "";
}

std::string IncompleteSetRemark(absl::string_view path) {
  const Piece piece = ParsePiece(path);
  std::error_code error;
  if (piece.total.empty() || !std::filesystem::is_regular_file(std::string(path), error)) return "";
  int64_t total = 0;
  if (!absl::SimpleAtoi(piece.total, &total) || total < 2) return "";
  return absl::StrCat(path, " is one of ", total,
                      " pieces, and the others are not read: give their directory");
}

std::string UnusedRemark(const std::string& directory, std::vector<std::string> unused) {
  if (unused.empty()) return "";
  std::sort(unused.begin(), unused.end());
  return absl::StrCat(directory,
                      ": not part of the training or validation set, and not read: ", Listed(unused));
}

bool IsFileNamed(const std::string& path, absl::string_view suffix) {
  const std::filesystem::path file(path);
  std::error_code error;
  return absl::StrContains(file.filename().string(), suffix) && std::filesystem::is_regular_file(file, error);
}

absl::StatusOr<SetFiles> FindSets(const std::string& directory, absl::Span<const char* const> suffixes) {
  SetFiles sets;
  for (const char* suffix : suffixes) {
    for (auto& file : FindFiles(directory, "train", suffix)) sets.train.push_back(std::move(file));
    for (auto& file : FindValidationFiles(directory, suffix)) sets.validation.push_back(std::move(file));
  }
  if (sets.train.empty()) return sets;
  for (const auto* files : {&sets.train, &sets.validation}) {
    CAIRN_ASSIGN_OR_RETURN(std::string remark, CheckPieces(*files));
    if (!remark.empty()) sets.remarks.push_back(std::move(remark));
  }
  std::vector<std::string> used = sets.train;
  used.insert(used.end(), sets.validation.begin(), sets.validation.end());
  std::string remark = UnusedFilesRemark(directory, suffixes.front(), used);
  if (!remark.empty()) sets.remarks.push_back(std::move(remark));
  return sets;
}

std::vector<std::string> FindValidationFiles(const std::string& directory, absl::string_view suffix) {
  for (const char* set : kValidationSets) {
    std::vector<std::string> files = FindFiles(directory, set, suffix);
    if (!files.empty()) return files;
  }
  return {};
}

}  // namespace cairn::data
