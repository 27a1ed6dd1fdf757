// The ids of a text, as Keras' TextVectorization computes them: the text is simplified and divided, and the pieces are
// looked up in a vocabulary.
//
// Letters are those of ASCII, as in tf.strings.lower(): É stays É. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/ids/id_map.h"

namespace cairn {

struct TextDivision {
  enum class Split { kWhitespace, kCharacter, kNone };
  bool lower = true;
  bool strip_punctuation = true;
  Split split = Split::kWhitespace;
  // Numbers of adjacent pieces, in this order, that are joined by blanks: {1, 2} gives all pieces, then all pairs.
  // Empty: the pieces.
  std::vector<int64_t> ngrams{};
  int64_t length =
      0;  // the number of ids of a text, cut off or filled up with 0; 0: as many as there are pieces
};

// The pieces of `text`. Bytes that are not UTF-8 are characters of their own.
std::vector<std::string> DivideText(absl::string_view text, const TextDivision& division);

// A map with ids_per_text(). `vocabulary` has an id for every text.
std::shared_ptr<const IdMap> MakeTextIds(TextDivision division, std::shared_ptr<const IdMap> vocabulary);

}  // namespace cairn
